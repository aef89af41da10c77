"""`headrace plan` as its users call it."""

import json
from pathlib import Path

import pytest
import yaml

from headrace import __version__
from headrace.cli import main

LLAMA_70B = ["plan", "--model", "llama-3-70b", "--gpu", "H100-SXM"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; a usage error of argparse counts as its code."""
    try:
        code = main(words)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict:  # type: ignore[type-arg]
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0
    return json.loads(out)


def test_the_document_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *LLAMA_70B, "--rate", "20")
    assert found["headrace"] == __version__ and found["command"] == "plan"
    assert {"name", "params", "weight_bytes", "kv_bytes_per_token"} <= set(found["model"])
    assert {
        "tp", "pp", "gpus", "kv_capacity_tokens", "max_num_seqs", "gpu_memory_utilization",
        "prefill_tokens_per_s", "decode_tokens_per_s_single",
    } <= set(found["replica"])  # fmt: skip
    assert {"replicas", "gpus", "utilization", "ttft_p95_s", "tpot_p95_s"} <= set(found["fleet"])
    assert found["decision"]["verdict"] in ("single_card", "multi_card", "cluster")
    assert [set(s) for s in found["decision"]["signals"]] == [{"name", "fires", "why"}] * 4
    assert isinstance(found["warnings"], list)


def test_without_traffic_there_is_no_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, *LLAMA_70B)["fleet"] is None


def test_json_prints_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, *LLAMA_70B, "--json")
    assert json.loads(out) and err == ""


def test_eighty_h100_hold_ten_replicas_of_a_70b_model(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *LLAMA_70B, "--gpus", "80", "--slo-ttft", "1", "--slo-tpot", "0.03")
    assert (found["replica"]["tp"], found["fleet"]["replicas"]) == (8, 10)
    assert found["fleet"]["gpus"] == 80 and found["decision"]["verdict"] == "cluster"


def test_a_small_model_needs_one_card(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "plan", "--model", "llama-3-8b", "--gpu", "H100", "--rate", "2")
    assert found["decision"]["verdict"] == "single_card"
    assert not any(s["fires"] for s in found["decision"]["signals"])
    assert found["replica"]["gpus"] == 1


def test_always_on_asks_for_a_second_machine(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", "llama-3-8b", "--gpu", "H100", "--rate", "2", "--always-on"]
    found = document(capsys, *words)
    assert found["fleet"]["replicas"] == 2 and found["decision"]["verdict"] == "cluster"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--model", "lama-3-8b", "--gpu", "A10"], 2, "did you mean llama-3-8b"),
        (["--model", "llama-3-8b", "--gpu", "H1000"], 2, "H100"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--weights-dtype", "fp12"], 2, "fp16"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--interconnect", "nvlink9"], 2, "nvlink"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--rate", "nan"], 2, "finite"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--rate", "-1"], 2, "above 0"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--context", "9000"], 2, "8192"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--tp", "3"], 2, "possible: 1, 2, 4, 8"),
        (["--model", "llama-3-8b", "--gpu", "A10,L4"], 2, "compare"),
        (["--model", "nowhere/config.json", "--gpu", "A10"], 2, "No such file"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--trace", "nowhere"], 2, "nowhere"),
        (["--model", "llama-3-8b"], 2, "--gpu"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--price", "A10=1"], 2, "plan compare"),
        (["--model", "llama-3-8b", "--gpu", "A10", "--html", "/nowhere/x"], 1, "/nowhere/x"),
        (
            ["--model", "llama-3-70b", "--gpu", "H100", "--rate", "1", "--slo-tpot", "0.002"],
            1,
            "reading the weights",
        ),
        (
            ["--model", "llama-3-8b", "--gpu", "A10", "--rate", "1", "--input-tokens", "7000",
             "--slo-ttft", "0.1"],
            1,
            "prefill of 7000 tokens",
        ),
        (["--model", "llama-3-70b", "--gpu", "H100", "--gpus", "1"], 1, "--gpus 1"),
        (["--model", "llama-3-70b", "--gpu", "H100", "--tp", "1"], 1, "does not fit"),
    ],
)  # fmt: skip
def test_bad_input_says_what_to_change(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    found, out, err = run(capsys, "plan", *words)
    assert (found, out) == (code, "")
    assert said in err and "Traceback" not in err


def test_an_assumed_slo_that_cannot_be_kept_is_dropped_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["plan", "--model", "llama-2-13b", "--gpu", "T4", "--weights-dtype", "fp16"]
    found = document(capsys, *words, "--rate", "1", "--gpus-per-host", "2", "--context", "2048")
    assert found["slo"]["ttft_s"] is None
    assert any("without an SLO" in warning for warning in found["warnings"])


def test_the_report_shows_memory_speed_fleet_and_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run(capsys, *LLAMA_70B, "--rate", "20", "--explain")
    assert code == 0
    for word in ("max_num_seqs", "KV cache", "p95", "Verdict: cluster", "step-time law", "source:"):
        assert word in out
    assert "warning: speeds are from vendor sheets" in err


def test_quiet_keeps_warnings_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *LLAMA_70B, "--quiet")[2] == ""


def test_the_same_question_gets_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LLAMA_70B, "--rate", "20", "--json"]
    assert run(capsys, *words)[1] == run(capsys, *words, "--seed", "7")[1]


def test_emitted_text_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *LLAMA_70B, "--rate", "20", "--emit", "k8s")
    assert [d["kind"] for d in yaml.safe_load_all(out)] == [
        "Service",
        "Deployment",
        "PodDisruptionBudget",
    ]


def test_compare_ranks_by_cards_and_by_price(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "compare", "--model", "llama-3-8b", "--gpu", "A10,L40S,H100", "--rate", "20"]
    by_cards = document(capsys, *words)["compare"]
    cards = [row["gpus"] for row in by_cards]
    assert cards == sorted(cards) and {r["gpu"] for r in by_cards} == {"A10", "L40S", "H100-SXM"}
    by_price = document(capsys, *words, "--price", "A10=0.1", "L40S=3", "H100=90")["compare"]
    assert by_price[0]["gpu"] == "A10"
    assert by_price[0]["price_per_hour"] == pytest.approx(0.1 * by_price[0]["gpus"])


def test_compare_names_what_stops_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "compare", "--model", "llama-3-70b", "--gpu", "T4,H100", "--rate", "1"]
    rows = document(capsys, *words, "--gpus-per-host", "8", "--slo-tpot", "0.02")["compare"]
    assert [row["feasible"] for row in rows] == [True, False]
    assert rows[1]["why"] and rows[1]["gpus"] is None
    code, out, _ = run(capsys, *words, "--slo-tpot", "0.02")
    assert code == 0 and "T4" in out


def test_compare_needs_traffic_and_good_prices(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "compare", "--model", "llama-3-8b", "--gpu", "A10,L4"]
    assert "needs --rate" in run(capsys, *words)[2]
    assert "GPU=NUMBER" in run(capsys, *words, "--rate", "1", "--price", "A10")[2]


def test_measured_figures_take_the_place_of_the_assumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["plan", "--model", "llama-3-8b", "--gpu", "H100", "--rate", "5", "--tp", "1"]
    plain = document(capsys, *words)
    file = tmp_path / "qualify.json"
    # a slower replica than the default: 100 tokens/s and 60 ms for 1024 tokens
    measured = {"ttft_s": 0.06, "tokens_per_s": 100, "throughput_at_10": {"tokens_per_s": 800}}
    file.write_text(json.dumps(measured))
    found = document(capsys, *words, "--measured", str(file))
    assert found["replica"]["decode_tokens_per_s_single"] == pytest.approx(100, rel=0.01)
    assert 1024 / found["replica"]["prefill_tokens_per_s"] == pytest.approx(0.06, rel=0.03)
    assert found["replica"]["capacity_per_s"] < plain["replica"]["capacity_per_s"]
    assert not any("vendor sheets" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not an output"),
        ("{", "no JSON"),
        ('{"ttft_s": 0.1}', "tokens_per_s must be"),
        ('{"ttft_s": 0.1, "tokens_per_s": 9000}', "of what the card can do"),
        ('{"ttft_s": -1, "tokens_per_s": 90}', "ttft_s must be"),
    ],
)
def test_a_bad_measurement_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "qualify.json"
    file.write_text(text)
    words = ["plan", "--model", "llama-3-8b", "--gpu", "H100", "--measured", str(file)]
    code, _, err = run(capsys, *words)
    assert code == 2 and said in err
