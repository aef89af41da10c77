"""Trace files: three forms told apart by content, broken lines named."""

import json
from pathlib import Path

import pytest

from headrace.bench import traces
from headrace.bench.workload import Segment

DATA = Path(traces.__file__).parent / "data"


def read(tmp_path, text):
    path = tmp_path / "trace"
    path.write_text(text)
    return list(traces.read(path))


def test_a_mooncake_row_keeps_its_blocks(tmp_path):
    requests = read(
        tmp_path,
        '{"timestamp": 1000, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]}\n'
        '{"timestamp": 4000, "input_length": 512, "output_length": 6, "hash_ids": [0]}\n',
    )
    assert [r.at_s for r in requests] == [0.0, 3.0]
    assert requests[0].job.prompt == (Segment(0, 512), Segment(7, 88))
    assert requests[1].job.prompt == (Segment(0, 512),)
    assert requests[1].job.output_tokens == 6


def test_an_azure_file_is_told_by_its_header(tmp_path):
    requests = read(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    )
    assert requests[1].at_s == pytest.approx(4.314579, abs=1e-6)
    assert [r.job.prompt_tokens for r in requests] == [374, 396]
    assert [r.job.output_tokens for r in requests] == [44, 109]
    assert requests[0].job.prompt[0].key != requests[1].job.prompt[0].key


def test_an_access_log_is_replayed_in_order_of_arrival(tmp_path):
    rows = [
        {"time": 1000.5, "estimated_prompt_tokens": 90, "prompt_tokens": 100, "duration_s": 0.5}
        | {"completion_tokens": 7},
        {"time": 1001.0, "outcome": "client_error", "estimated_prompt_tokens": 0},
        {"time": 1004.0, "estimated_prompt_tokens": 90, "prompt_tokens": None, "duration_s": 5.0}
        | {"completion_tokens": None, "ttft_s": 1.0, "tpot_s": 0.1},
    ]
    requests = read(tmp_path, "\n".join(map(json.dumps, rows)))
    assert [r.at_s for r in requests] == [0.0, 1.0]
    assert [r.job.prompt_tokens for r in requests] == [90, 100]
    assert [r.job.output_tokens for r in requests] == [41, 7]


@pytest.mark.parametrize(
    "name, number", [("mooncake_excerpt.jsonl", 57), ("azure_excerpt.csv", 100)]
)
def test_the_shipped_excerpts_are_readable(name, number):
    requests = list(traces.read(DATA / name))
    assert len(requests) == number
    assert requests[0].at_s == 0.0
    assert all(r.job.prompt_tokens > 0 and r.job.output_tokens > 0 for r in requests)


def test_mooncake_rows_share_their_first_block():
    first = [r.job.prompt[0] for r in traces.read(traces.EXCERPT)]
    assert first.count(Segment(0, 512)) > 20


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "line 1"),
        ("a,b,c\n1,2,3\n", "line 1"),
        ('{"what": 1}\n', "line 1"),
        ("[1]\n", "line 1"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"timestamp"\n', "line 2"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"timestamp": 1}\n', "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "line 2"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path, text, says):
    with pytest.raises(traces.TraceError, match=says):
        read(tmp_path, text)
