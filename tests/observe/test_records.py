import struct

from headrace.observe import records

MODELS = {3: "tiny"}
REPLICAS = {7: "gpu1:8000"}


def record(request_id=b"abc", *, prompt=-1, slot=7, model=3, outcome=0, endpoint=1):
    fixed = struct.pack(
        "=6Qd3q3diI4H4BI",
        *(1_700_000_000_000_000_000, 2_000_000_000, 0, 150_000_000, 10, 20),
        *(41.6, prompt, 5, -1, 0.0, 16.0, 0.25, slot, 1, model, 200, 0, len(request_id)),
        *(endpoint, outcome, 0, 1, 64),
    )
    return fixed + request_id


def test_a_record_becomes_seconds_names_and_none_for_the_unknown():
    entry = records.decode(record(), MODELS, REPLICAS, "cost_aware")
    assert entry["model"] == "tiny"
    assert entry["replica"] == "gpu1:8000"
    assert entry["endpoint"] == "chat_completions"
    assert entry["duration_s"] == 2.0
    assert entry["ttft_s"] == 0.15
    assert entry["estimated_prompt_tokens"] == 42
    assert (entry["matched_tokens"], entry["score"]) == (16, 0.25)
    assert entry["prompt_tokens"] is None
    assert entry["completion_tokens"] == 5
    assert entry["queue_wait_s"] is None


def test_numbers_that_mean_nothing_here_are_other():
    data = record(slot=-1, model=99, outcome=77, endpoint=200)
    entry = records.decode(data, MODELS, REPLICAS, "random")
    assert (entry["model"], entry["outcome"], entry["endpoint"]) == ("other", "other", "other")
    assert entry["replica"] is None
    assert entry["policy"] is None


def test_the_layout_is_the_one_of_the_c_header():
    assert records._FIXED.size == 128
