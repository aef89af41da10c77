import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.vllm import EngineSample, EngineTracker, read_page

FIXTURES = Path(__file__).parent.parent / "fixtures"
LABELS = 'engine="0",model_name="m"'
ODD_MODEL = 'org/My model, v2 {beta} "x"'


def page(name):
    return (FIXTURES / f"vllm-0.32.0-metrics-{name}.txt").read_bytes()


def vllm(**values):
    return "\n".join(f"vllm:{name}{{{LABELS}}} {value}" for name, value in values.items()).encode()


@pytest.mark.parametrize(
    "name, running, waiting, kv, queries, preemptions",
    [
        ("idle", 0, 0, 0, 0, 0),
        ("busy", 12, 36, 0.949, 9321, 34),
        ("kv-pressure", 13, 5, 0.996, 7804, 30),
    ],
)
def test_real_pages_are_read(name, running, waiting, kv, queries, preemptions):
    sample = read_page(page(name))
    assert (sample.running, sample.waiting) == (running, waiting)
    assert sample.kv_usage == pytest.approx(kv, abs=5e-4)
    assert (sample.prefix_queries, sample.prefix_hits) == (queries, 0)
    assert sample.preemptions == preemptions
    assert sample.kv_capacity_tokens == 8192
    assert sample.started_at_s == 1795952843.09
    assert (sample.models, sample.bad, sample.hit_ratio) == (("tiny",), 0, None)


@pytest.mark.parametrize("order", [1, -1])
def test_the_new_name_of_kv_usage_wins_in_either_order(order):
    lines = [vllm(kv_cache_usage_perc=0.5), vllm(gpu_cache_usage_perc=0.1)][::order]
    assert read_page(b"\n".join(lines)).kv_usage == 0.5
    assert read_page(vllm(gpu_cache_usage_perc=0.1)).kv_usage == 0.1


def test_engines_are_added_up_and_kv_is_of_the_fullest():
    lines = []
    escaped = ODD_MODEL.replace('"', '\\"')
    for engine, running, waiting, kv in (("0", 3, 1, 0.2), ("1", 4, 2, 0.8)):
        labels = f'engine="{engine}",model_name="{escaped}"'
        lines += [
            f"vllm:num_requests_running{{{labels}}} {running}",
            f"vllm:num_requests_waiting{{{labels}}} {waiting}",
            f"vllm:kv_cache_usage_perc{{{labels}}} {kv}",
            f'vllm:cache_config_info{{block_size="16",engine="{engine}",num_gpu_blocks="100"}} 1',
        ]
    sample = read_page("\n".join(lines).encode())
    assert (sample.running, sample.waiting, sample.kv_usage) == (7, 3, 0.8)
    assert sample.kv_capacity_tokens == 3200
    assert sample.models == (ODD_MODEL,)


def test_loose_spelling_is_read():
    loose = (
        b"# TYPE vllm:num_requests_running gaugehistogram2\r\n"
        b'  vllm:num_requests_running { engine = "0" , model_name = "m" , }   3   1795952876812\r\n'
        b'vllm:num_requests_waiting\t{engine="0"}\t1e0 # {trace_id="abc"} 0.4\r\n'
        b'vllm:num_requests_running_other{engine="0"} 99\r\n# EOF'
    )
    sample = read_page(loose)
    assert (sample.running, sample.waiting, sample.bad) == (3, 1, 0)


def test_sglang_pages_are_read():
    lines = [
        f'sglang:{name}{{model_name="s",tp_rank="{rank}"}} {value}'
        for rank in (0, 1)
        for name, value in (
            ("num_running_reqs", 5),
            ("num_queue_reqs", 2),
            ("token_usage", 0.28),
            ("cache_hit_rate", 0.5),
            ("max_total_num_tokens", 1000),
            ("prompt_tokens_total", 80),
            ("cached_tokens_total", 20),
        )
    ]
    sample = read_page("\n".join(lines).encode())
    assert (sample.running, sample.waiting, sample.kv_usage) == (5, 2, 0.28)
    assert (sample.kv_capacity_tokens, sample.hit_ratio) == (1000, 0.5)
    assert (sample.prefix_queries, sample.prefix_hits) == (80, 20)


def test_absent_is_unknown():
    sample = read_page(vllm(num_requests_running=3))
    assert (sample.waiting, sample.kv_usage, sample.kv_capacity_tokens) == (None, None, None)
    assert read_page(b"<html>login</html>").is_empty


@pytest.mark.parametrize("value", ["-5", "1e300", "+Inf", "-Inf"])
def test_impossible_values_are_dropped_and_counted(value):
    sample = read_page(
        vllm(num_requests_running=value, num_requests_waiting=value, kv_cache_usage_perc=value)
    )
    assert sample.is_empty
    assert sample.bad == 3


def test_nan_is_no_value_and_no_fault():
    sample = read_page(vllm(num_requests_running="NaN", num_requests_waiting=1))
    assert (sample.running, sample.waiting, sample.bad) == (None, 1, 0)


def test_one_impossible_engine_makes_the_sum_unknown():
    lines = b'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} -1\n'
    sample = read_page(lines)
    assert (sample.running, sample.bad) == (None, 1)


@pytest.mark.parametrize(
    "labels", ['block_size="None",num_gpu_blocks="9"', 'num_gpu_blocks="9"', 'block_size="-1"', ""]
)
def test_unreadable_cache_config_is_unknown(labels):
    page = f"vllm:cache_config_info{{{labels}}} 1\n".encode()
    assert read_page(page).kv_capacity_tokens is None


def counters(queries, hits, started=None):
    return EngineSample(running=1, prefix_queries=queries, prefix_hits=hits, started_at_s=started)


def ratios(*samples):
    tracker = EngineTracker()
    return [tracker.update(sample).hit_ratio for sample in samples], tracker.generation


def test_hit_ratio_is_of_the_interval_and_a_reset_counts_from_zero():
    pairs = [(0, 0), (1000, 500), (2000, 1400), (50, 10), (80, 12), (10, 10), (10, 10), (5, 0)]
    seen, generation = ratios(*(counters(*pair) for pair in pairs))
    assert seen == [None, 0.5, 0.9, 0.2, pytest.approx(2 / 30), 1.0, 1.0, 0.0]
    assert generation == 3


def test_a_moved_start_time_is_a_restart_even_if_counters_grew():
    seen, generation = ratios(counters(10, 5, 100.0), counters(40, 10, 200.0))
    assert (seen, generation) == ([None, 0.25], 1)


def test_the_same_start_time_and_growing_counters_are_no_restart():
    _, generation = ratios(counters(10, 5, 100.0), counters(10, 5, 100.4), counters(12, 5, None))
    assert generation == 0


def test_real_pages_in_another_order_are_restarts():
    tracker = EngineTracker()
    news = [tracker.update(read_page(page(n))) for n in ("kv-pressure", "busy", "idle", "busy")]
    assert [one.restarted for one in news] == [False, False, True, False]
    assert [one.new_preemptions for one in news] == [0, 4, 0, 34]


def test_an_empty_page_changes_nothing():
    seen, generation = ratios(counters(10, 5), EngineSample(), counters(20, 15))
    assert (seen, generation) == ([None, None, 1.0], 0)


def test_an_engine_that_prints_only_a_ratio_is_believed():
    seen, _ = ratios(EngineSample(running=1, hit_ratio=0.3), EngineSample(running=1, hit_ratio=0.4))
    assert seen == [0.3, 0.4]


FIGURE = st.none() | st.floats(0, 1e6) | st.integers(0, 50).map(float)


@given(st.lists(st.builds(EngineSample, running=FIGURE, prefix_queries=FIGURE, prefix_hits=FIGURE)))
def test_no_sequence_of_counters_gives_an_impossible_ratio(samples):
    tracker = EngineTracker()
    for sample in samples:
        before = tracker.generation
        news = tracker.update(sample)
        assert news.hit_ratio is None or 0 <= news.hit_ratio <= 1
        assert news.generation == before + news.restarted


@given(st.lists(st.sampled_from(["-1", "NaN", "inf", "0", "7", "1e300", "zero", ""]), max_size=6))
def test_no_page_gives_an_impossible_figure(values):
    lines = "".join(
        f'vllm:num_requests_running{{engine="{n}"}} {v}\n' for n, v in enumerate(values)
    )
    sample = read_page(lines.encode())
    assert sample.running is None or (math.isfinite(sample.running) and sample.running >= 0)
    assert sample.bad == sum(v in ("-1", "inf", "1e300", "zero", "") for v in values)
