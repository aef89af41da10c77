import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_oracle import FIXED, RING_BYTES, decode, move, packed, push

from headrace.core.segment import Segment
from headrace.observe import records

USUAL = {
    "end_unix_ns": 1_700_000_000_000_000_000,
    "duration_ns": 2_000_000_000,
    "queue_wait_ns": 0,
    "ttft_ns": 150_000_000,
    "bytes_in": 10,
    "bytes_out": 20,
    "estimated_prompt_tokens": 41.6,
    "prompt_tokens": -1,
    "completion_tokens": 5,
    "cached_tokens": -1,
    "tpot_s": 0.0,
    "matched_tokens": 16.0,
    "score": 0.25,
    "slot": 7,
    "generation": 1,
    "model": 3,
    "status": 200,
    "reason": 0,
    "endpoint": 1,
    "outcome": 0,
    "retries": 0,
    "stream": 1,
    "output_limit": 64,
}
NS_OF_A_CENTURY = 10**9 * 3600 * 24 * 36525
# Around nine decimals the last one is a matter of rounding: half of it either way.
HALF_A_DECIMAL = 0.51e-9
numbers = st.floats(0, 8e9) | st.floats(0, 100)
RECORDS = st.fixed_dictionaries(
    {
        "end_unix_ns": st.integers(0, 2**64 - 1),
        "duration_ns": st.integers(0, NS_OF_A_CENTURY),
        "queue_wait_ns": st.integers(0, NS_OF_A_CENTURY),
        "ttft_ns": st.integers(0, 10**12),
        "bytes_in": st.integers(0, 2**64 - 1),
        "bytes_out": st.integers(0, 2**64 - 1),
        "estimated_prompt_tokens": numbers,
        "prompt_tokens": st.integers(-1, 2**63 - 1),
        "completion_tokens": st.integers(-1, 2**63 - 1),
        "cached_tokens": st.integers(-1, 2**63 - 1),
        "tpot_s": numbers,
        "matched_tokens": numbers,
        "score": st.floats(-8e9, 8e9) | st.sampled_from([float("inf"), float("nan")]),
        "slot": st.integers(-1, 9),
        "generation": st.integers(0, 2**32 - 1),
        "model": st.integers(0, 9),
        "status": st.integers(0, 2**16 - 1),
        "reason": st.integers(0, 99),
        "endpoint": st.integers(0, 99),
        "outcome": st.integers(0, 99),
        "retries": st.integers(0, 255),
        "stream": st.integers(0, 255),
        "output_limit": st.integers(0, 2**32 - 1),
    }
)
TEXTS = st.binary(max_size=512) | st.text(max_size=100).map(str.encode)
NAMES = st.dictionaries(st.integers(0, 9), st.text(max_size=20), max_size=5)


@pytest.fixture(scope="module")
def segment():
    return Segment.create(2, 0)


def written(lines):
    return [json.loads(line) for line in lines.decode().split("\n")[:-1]]


@given(st.lists(st.tuples(RECORDS, TEXTS), max_size=4), NAMES, NAMES, st.text(max_size=20))
def test_a_line_says_what_the_record_says(segment, sent, models, replicas, policy):
    move(segment, RING_BYTES - 300)  # some records lie across the end of the ring
    data = [packed(record, text) for record, text in sent]
    for one in data:
        push(segment, one)
    lines = records.log_lines(models, replicas, policy).take(segment, 0)
    assert lines.endswith(b"\n") or not sent
    for found, one in zip(written(lines), data, strict=True):
        wanted = decode(one, models, replicas, policy)
        for name in ("score", "tpot_s"):
            if wanted[name] is not None:
                limit = HALF_A_DECIMAL + abs(wanted[name]) * 2**-52
                assert abs(found.pop(name) - wanted.pop(name)) <= limit
        assert found == wanted
        assert list(found) == list(wanted)


@given(st.text(), st.binary(max_size=512))
def test_neither_names_nor_ids_can_break_a_line(segment, name, text):
    push(segment, packed(USUAL, text))
    lines = records.log_lines({3: name}, {7: name}, name).take(segment, 0)
    assert lines.count(b"\n") == 1 and lines.splitlines() == [lines[:-1]]
    assert not any(byte < 0x20 for byte in lines[:-1])
    (entry,) = written(lines)
    assert entry["model"] == entry["replica"] == entry["policy"] == name


def test_seconds_are_floats_and_the_unknown_is_null(segment):
    push(segment, packed(USUAL, b"abc"))
    lines = records.log_lines({3: "tiny"}, {7: "gpu1:8000"}, "cost_aware").take(segment, 0)
    (entry,) = written(lines)
    assert b'"duration_s":2.0,' in lines and b'"ttft_s":0.15,' in lines
    assert (entry["model"], entry["replica"]) == ("tiny", "gpu1:8000")
    assert (entry["estimated_prompt_tokens"], entry["matched_tokens"]) == (42, 16)
    assert (entry["prompt_tokens"], entry["queue_wait_s"], entry["tpot_s"]) == (None, None, None)


def test_half_a_surrogate_pair_in_a_name_costs_no_line(segment):
    push(segment, packed(USUAL, b"abc"))
    lines = records.log_lines({3: "a\ud800b"}, {}, "random").take(segment, 0)
    assert written(lines)[0]["model"] == "a?b"


def test_only_whole_access_records_become_lines(segment):
    whole = packed(USUAL, b"abc")
    push(segment, whole, kind=2)
    push(segment, whole[:100])
    push(segment, packed(USUAL, b"x" * 513))
    push(segment, whole)
    lines = records.log_lines({}, {}, "random")
    assert [entry["id"] for entry in written(lines.take(segment, 0))] == ["abc"]
    assert lines.take(segment, 0) == lines.take(segment, 1) == b""
    with pytest.raises(IndexError):
        lines.take(segment, 2)


def test_many_records_come_out_in_batches_of_whole_lines(segment):
    sent = 400
    for _ in range(sent):
        push(segment, packed(USUAL, b"abc"))
    lines = records.log_lines({3: "a long name " * 200}, {}, "random")
    batches = list(iter(lambda: lines.take(segment, 0), b""))
    assert len(batches) > 1
    assert sum(len(written(batch)) for batch in batches) == sent


def test_the_last_lines_are_found_without_the_others():
    lines = b"1\n2\n3\n"
    assert records.last_lines(lines, 2) == [b"2", b"3"]
    assert records.last_lines(lines, 3) == records.last_lines(lines, 9) == [b"1", b"2", b"3"]
    assert records.last_lines(b"", 3) == []


def test_the_layout_is_the_one_of_the_c_header():
    assert FIXED.size == 128
