"""English, Chinese and code for prompts: what comes with Python, and sentences of our own."""

import ast
import sysconfig
from pathlib import Path

STDLIB = Path(sysconfig.get_path("stdlib"))
_SENTENCES = """
请把下面这段话翻译成英文，并保持原来的语气和格式。
我们公司去年在华东地区的销售额增长了百分之十二，其中杭州和苏州的表现最好。
如果服务器在高峰时段响应变慢，应该先检查队列长度，再看显存是否不足。
这本小说讲的是一个年轻医生回到故乡，在山区小学旁边开诊所的故事。
昨天晚上下了一场大雨，河边的小路被冲坏了，村民们正在修理。
请根据以上资料写一篇八百字左右的文章，要求观点明确、条理清楚。
大语言模型的推理分为两个阶段：预填充阶段计算量大，解码阶段受内存带宽限制。
妈妈做的红烧肉肥而不腻，配上一碗白米饭，真是人间美味。
数据库的索引并不是越多越好，因为每次写入都要更新所有的索引。
老师说，学习外语最重要的是每天坚持，而不是一次学很久。
这个函数的作用是把列表按照日期排序，然后去掉重复的记录。
春天来了，公园里的樱花开了，许多人带着孩子去拍照。
为了提高缓存的命中率，路由器会把前缀相同的请求发到同一个副本。
医生建议他少吃盐，多运动，每个月量一次血压。
会议改到下周三下午三点，地点在六楼的小会议室，请大家准时参加。
研究人员发现，睡眠不足会影响记忆力，也会让人更容易生气。
他花了三年时间才写完那篇论文，其间换了两次题目。
如果合同没有写明交货日期，双方应当在十天之内补充协议。
地铁二号线延长之后，从机场到市中心只要四十分钟。
请解释什么是量子纠缠，并举一个容易理解的例子。
小王把电脑拿去修理，店员说主板坏了，换一块要一千多块钱。
气象台预报，明天白天晴转多云，最高气温二十六度，北风三到四级。
在这种情况下，我们应该先停止接收新的任务，等旧的任务完成以后再关机。
图书馆的自习室每天早上八点开门，晚上十点关门，周末不休息。
她从小喜欢画画，后来成了一名建筑设计师，设计过好几座桥。
客户反映网页打不开，经过排查，原因是证书已经过期。
中秋节那天，全家人坐在院子里一边吃月饼一边看月亮。
这道题可以用动态规划来解，时间复杂度是平方级别。
由于原材料价格上涨，工厂决定从下个月起调整产品的价格。
请列出三个主要的风险，并说明每个风险的应对办法。
足球比赛进行到第八十五分钟，客队的前锋终于打进了一个球。
这幅画是明朝的，画的是江南水乡的早晨，颜色非常淡雅。
系统每隔五秒检查一次副本的健康状况，连续失败三次就把它摘除。
农民们正在收割小麦，今年的收成比往年好得多。
他不喜欢喝咖啡，只喝绿茶，而且一定要用烧开的泉水来泡。
我想知道怎样才能在不影响线上业务的情况下升级这个组件。
"""
CHINESE = _SENTENCES.split()


def chinese(rng, sentences):
    """A text of so many sentences, in paragraphs."""
    found = [rng.choice(CHINESE) for _ in range(sentences)]
    return "\n".join("".join(found[i : i + 5]) for i in range(0, sentences, 5))


def modules(start, stop):
    """Sources of the standard library, by place in the alphabet."""
    return [p.read_text(errors="replace") for p in sorted(STDLIB.glob("*.py"))[start:stop]]


def english(sources):
    """The docstrings of sources."""
    found = []
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            kinds = ast.Module | ast.ClassDef | ast.FunctionDef
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text and len(text) > 80:
                found.append(text)
    return found
