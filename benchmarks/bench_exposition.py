"""CPU time of a whole metrics page, and the most that it takes between two looks at the loop.

Run: python -m pytest benchmarks/bench_exposition.py --benchmark-enable
"""

import argparse
import asyncio
import time

import pytest

from headrace import config as configuration
from headrace.control import membership
from headrace.control.loop import Control
from headrace.core.segment import Segment
from headrace.observe.exposition import Families

PROCESSES = 8


@pytest.fixture
def control(replicas):
    urls = [{"url": f"http://10.1.{n // 256}.{n % 256}:8000", "models": ["m"]} for n in replicas]
    config = configuration.parse(
        {"replicas": urls, "routing": {"prefix_table_bytes": 65536}, "server": {"processes": 1}}
    )
    segment = Segment.create(PROCESSES, 65536)

    async def make():
        made = Control(config, segment, argparse.Namespace())
        made.sources.configure(config)
        membership.apply(made)
        made.publish()
        for tasks in made._tasks.values():
            for task in tasks:
                task.cancel()
        return made

    return asyncio.run(make())


def longest_step_s(control):
    """The most CPU time between two looks at the loop."""
    families, longest, began = Families(), 0.0, time.process_time()
    for _ in control.metrics_page.steps(families):
        longest = max(longest, time.process_time() - began)
        began = time.process_time()
    families.page("")
    return max(longest, time.process_time() - began)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("replicas", [range(128), range(1024)], ids=["128", "1024"])
def test_render_page(benchmark, control):
    page, _ = asyncio.run(control.metrics_page.render(""))
    assert page.count(b"headrace_ttft_seconds_count") == len(control.registry.members)
    benchmark(lambda: asyncio.run(control.metrics_page.render("")))
    if benchmark.stats:
        benchmark.extra_info["page_bytes"] = len(page)
        steps = [longest_step_s(control) for _ in range(5)]
        benchmark.extra_info["longest_step_ms"] = round(1e3 * min(steps), 2)
