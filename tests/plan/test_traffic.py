"""Traffic out of traces: the three forms, their rate, spread and prefix hits."""

import json
from pathlib import Path

import pytest

from headrace.bench.workload import Job, Request, Segment
from headrace.plan.names import PlanError
from headrace.plan.traffic import busy_rate_per_s, hit_ratio, read_traffic, traffic_of


def request(at_s: float, prompt: list[tuple[int, int]], output: int = 10) -> Request:
    return Request(at_s, Job(tuple(Segment(key, tokens) for key, tokens in prompt), output))


def test_lengths_have_mean_and_spread() -> None:
    found = traffic_of([request(0, [(1, 100)], 10), request(10, [(2, 300)], 30)])
    assert (found.input_tokens, found.output_tokens) == (200, 20)
    assert (found.input_cv, found.output_cv) == (0.5, 0.5)
    assert found.rate_per_s == pytest.approx(0.2)


def test_only_a_common_beginning_is_a_hit() -> None:
    prompts = [
        request(0, [(1, 512), (2, 512)]),
        request(1, [(1, 512), (3, 512)]),  # 512 of 1024
        request(2, [(9, 512), (2, 512)]),  # a known block behind an unknown one
    ]
    assert hit_ratio(prompts) == pytest.approx(512 / 3072)


def test_the_rate_is_that_of_a_busy_minute() -> None:
    quiet = [minute * 60.0 for minute in range(101)]
    rush = [60.0 * 7 + n / 10 for n in range(600)]
    assert busy_rate_per_s(quiet) == pytest.approx(1 / 60)
    # one minute in a hundred is not planned for, ten are
    assert busy_rate_per_s(quiet + rush) == pytest.approx(1 / 60)
    many = [60.0 * m + n for m in range(20, 30) for n in range(60)]
    assert busy_rate_per_s(quiet + many) == pytest.approx(61 / 60)


def test_all_requests_at_once_have_no_rate() -> None:
    assert busy_rate_per_s([5.0, 5.0]) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        '{"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]}\n'
        '{"timestamp": 4000, "input_length": 600, "output_length": 20, "hash_ids": [0, 2]}\n',
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,600,20\n2023-11-16 18:15:50.6805900,600,20\n",
        json.dumps({"time": 1.5e9, "prompt_tokens": 600, "completion_tokens": 20})
        + "\n"
        + json.dumps({"time": 1.5e9 + 4, "prompt_tokens": 600, "completion_tokens": 20}),
    ],
    ids=["mooncake", "azure", "access log"],
)
def test_every_form_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    found = read_traffic(file)
    assert (found.input_tokens, found.output_tokens) == (600, 20)
    assert found.rate_per_s == pytest.approx(0.5)
    assert found.hit_ratio == pytest.approx(512 / 1200 if "hash_ids" in text else 0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1"),
        (b"hello\n", "line 1"),
        (b"\xff\xfe\x00\x01", "trace"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "line 2"),
        (b'{"timestamp": 0, "input_length": "x", "output_length": 1}\n', "line 1"),
        (b'{"timestamp": "inf", "input_length": 1, "output_length": 1}\n', "no number"),
    ],
)
def test_a_bad_trace_says_where(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "trace"
    file.write_bytes(content)
    with pytest.raises(PlanError, match=said):
        read_traffic(file)


def test_an_access_log_tells_its_cache_hits(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    rows = [
        {"time": 1.0, "prompt_tokens": 1000, "completion_tokens": 10, "cached_tokens": 500},
        {"time": 2.0, "prompt_tokens": 1000, "completion_tokens": 10, "cached_tokens": None},
        {"time": 3.0, "prompt_tokens": 1000, "completion_tokens": 10, "cached_tokens": 300},
        {"time": 4.0, "prompt_tokens": None, "completion_tokens": None, "cached_tokens": None},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert read_traffic(file).hit_ratio == pytest.approx(800 / 2000)


def test_a_trace_over_ages_is_read_at_once_and_has_its_mean_rate() -> None:
    assert busy_rate_per_s([0.0, 1.0, 1e15]) == pytest.approx(3e-15)


def test_a_missing_trace_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        read_traffic(tmp_path / "nowhere")
