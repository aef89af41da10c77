"""The planner against `headrace sim`: the same presets, the real router, whole fleets."""

import json
import math

import pytest

from headrace.cli import main
from headrace.mock.presets import PRESETS
from headrace.plan.demand import Slo, Traffic
from headrace.plan.latency import capacity_per_s
from headrace.plan.steplaw import StepLaw

# The simulator's lengths are lognormal with sigma 0.5.
SPREAD_CV = math.sqrt(math.expm1(0.25))
REQUESTS = 2500

# preset, replicas, tokens in, tokens out, SLO
CASES = [
    ("llama3-8b-h100", 1, 1000, 200, Slo(ttft_s=1.0, tpot_s=0.02)),
    ("llama3-70b-8xh100-tp8", 1, 1000, 200, Slo(ttft_s=1.0, tpot_s=0.02)),
    ("llama3-70b-8xh100-tp8", 10, 1000, 200, Slo(ttft_s=1.0, tpot_s=0.02)),
    ("qwen3-32b-2xh100-tp2", 4, 2000, 300, Slo(ttft_s=2.0, tpot_s=0.03)),
]


def law_of(name: str) -> StepLaw:
    preset = PRESETS[name]
    return StepLaw(
        base_s=preset.base_ms / 1e3,
        per_prefill_token_s=preset.prefill_us / 1e6,
        per_sequence_s=preset.decode_us / 1e6,
        per_context_token_s=preset.context_us / 1e6,
        kv_capacity_tokens=preset.kv_tokens,
        max_num_seqs=preset.max_num_seqs,
        batched_tokens=preset.max_num_batched_tokens,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} x {c[1]}")
def test_the_planned_rate_is_within_15_percent_of_the_simulated_one(
    case: tuple[str, int, int, int, Slo], capsys: pytest.CaptureFixture[str]
) -> None:
    preset, replicas, prompt, output, slo = case
    traffic = Traffic(
        rate_per_s=1.0, input_tokens=prompt, output_tokens=output,
        input_cv=SPREAD_CV, output_cv=SPREAD_CV,
    )  # fmt: skip
    rate = replicas * capacity_per_s(law_of(preset), traffic, slo, pool=replicas)

    def keeps(at: float) -> bool:
        words = f"sim --replicas {replicas} --preset {preset} --rate {at} --seed 1 --json --quiet"
        words += f" --requests {REQUESTS} --input-tokens {prompt} --output-tokens {output}"
        assert main([*words.split(), "--policy", "least_load"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert slo.ttft_s is not None and slo.tpot_s is not None
        late = run["ttft_s"]["p95"] > slo.ttft_s or run["tpot_s"]["p95"] > slo.tpot_s
        return not late and run["rejected"] == run["lost"] == 0

    assert keeps(rate * 0.85)
    assert not keeps(rate * 1.15)
