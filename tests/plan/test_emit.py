"""What a plan emits: flags that vLLM has, manifests of the right shape, a config that is valid."""

import re
import shlex
from typing import Any

import pytest
import yaml
from plan_asks import ask

from headrace.config import parse
from headrace.plan.emit import FORMATS, emit
from headrace.plan.engine_flags import label, serve_arguments
from headrace.plan.names import PlanError
from headrace.plan.planner import plan

# `vllm serve` 0.32, vllm/engine/arg_utils.py and the command itself
VLLM_FLAGS = {
    "--port",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--nnodes",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--distributed-executor-backend",
    "--dtype",
    "--quantization",
    "--kv-cache-dtype",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--gpu-memory-utilization",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--shutdown-timeout",
    "--headless",
}
KV_CACHE_DTYPES = {"fp8", "int8_per_token_head", "int4_per_token_head"}

PLANS = {
    "one card": ask("llama-3-8b", "H100", rate=10),
    "one machine": ask("llama-3-70b", "H100", rate=20),
    "two machines": ask("deepseek-v3", "H100", rate=5),
    "quantised": ask("gemma-2-27b", "RTX4090", rate=1, weights_dtype="int4", kv_dtype="fp8"),
    "amd": ask("llama-3-70b", "MI300X", rate=5),
    "ascend": ask("qwen2.5-72b", "Ascend-910B", rate=2),
}


@pytest.mark.parametrize("case", PLANS)
@pytest.mark.parametrize("form", FORMATS)
def test_every_form_is_made_of_every_plan(case: str, form: str) -> None:
    if (case, form) == ("two machines", "compose"):
        with pytest.raises(PlanError, match="spans 2 machines"):
            emit(form, plan(PLANS[case]))
        return
    text = emit(form, plan(PLANS[case]))
    assert text.endswith("\n")
    if form != "vllm":
        assert all(isinstance(d, dict) for d in yaml.safe_load_all(text))
        assert "&id" not in text and "*id" not in text


@pytest.mark.parametrize("case", PLANS)
def test_flags_are_those_of_the_engine(case: str) -> None:
    answer = plan(PLANS[case])
    lines = [line for line in emit("vllm", answer).splitlines() if not line.startswith("#")]
    assert len(lines) == answer.hosts_per_replica
    for line in lines:
        words = shlex.split(line)
        assert words[:2] == ["vllm", "serve"] and words[2] == answer.ask.model.hub
        assert {w for w in words if w.startswith("--")} <= VLLM_FLAGS


def test_a_quantised_plan_names_the_kv_type_and_asks_for_a_checkpoint() -> None:
    answer = plan(PLANS["quantised"])
    words = serve_arguments(answer)
    assert words[words.index("--kv-cache-dtype") + 1] in KV_CACHE_DTYPES
    assert "--quantization" not in words  # the checkpoint says how
    assert "# the model must name a checkpoint in int4" in emit("vllm", answer)


def test_eight_bit_floats_are_made_from_a_wide_checkpoint_only() -> None:
    wide = plan(ask("llama-3-8b", "H100", weights_dtype="fp8"))
    native = plan(ask("deepseek-v3", "H200"))
    assert "--quantization" in serve_arguments(wide)
    assert "--quantization" not in serve_arguments(native)


def test_the_gateway_config_is_valid_and_names_every_replica() -> None:
    answer = plan(PLANS["one machine"])
    assert answer.fleet is not None
    config = parse(yaml.safe_load(emit("headrace", answer)))
    assert len(config.replicas) == answer.fleet.replicas
    assert config.admission.max_concurrency == answer.replica.law.max_num_seqs


def kinds(text: str) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_a_pod_is_one_tensor_parallel_group_with_probes_and_a_drain() -> None:
    answer = plan(PLANS["one machine"])
    assert answer.fleet is not None
    found = kinds(emit("k8s", answer))
    deployment = found["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["replicas"] == answer.fleet.replicas
    assert container["resources"]["limits"] == {"nvidia.com/gpu": answer.replica.split.gpus}
    assert {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle"} <= set(container)
    stop = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    shutdown = int(container["args"][container["args"].index("--shutdown-timeout") + 1])
    assert pod["terminationGracePeriodSeconds"] > stop + shutdown
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (
        deployment["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


@pytest.mark.parametrize("case", ["one card", "one machine", "amd", "ascend"])
def test_manifests_follow_the_schema_of_kubernetes(case: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    for document in yaml.safe_load_all(emit("k8s", plan(PLANS[case]))):
        validator.validate(document, "1.34", strict=True)


def test_a_replica_of_two_machines_is_a_group_whose_leader_serves() -> None:
    answer = plan(PLANS["two machines"])
    found = kinds(emit("k8s", answer))
    template = found["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    leader, worker = template["leaderTemplate"], template["workerTemplate"]
    assert template["size"] == 2
    assert "--headless" in worker["spec"]["containers"][0]["args"]
    assert "--headless" not in leader["spec"]["containers"][0]["args"]
    assert "readinessProbe" not in worker["spec"]["containers"][0]
    selector = found["Service"]["spec"]["selector"]
    assert selector.items() <= leader["metadata"]["labels"].items()
    assert not selector.items() <= worker["metadata"]["labels"].items()
    limits = leader["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": 8}


def test_compose_gives_every_replica_cards_of_its_own() -> None:
    answer = plan(ask("llama-3-8b", "H100", rate=30))
    assert answer.fleet is not None and answer.fleet.replicas == 3
    services = yaml.safe_load(emit("compose", answer))["services"]
    cards = [
        card
        for name, service in services.items()
        if name.startswith("vllm")
        for card in service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
    ]
    assert len(cards) == len(set(cards)) == 3
    assert services["headrace"]["command"][:3] == ["serve", "--replicas", "http://vllm-0:8000"]


def test_compose_says_when_one_machine_is_not_enough() -> None:
    text = emit("compose", plan(ask("llama-3-70b", "H100", rate=40)))
    assert re.match(r"# \d of \d+ replicas", text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("Qwen2.5-7B", "qwen2-5-7b"), ("../../etc", "etc"), ("$(reboot)", "reboot"), ("…", "model")],
)
def test_labels_are_dns_names(text: str, wanted: str) -> None:
    assert label(text) == wanted


def test_a_hostile_model_name_stays_one_word_of_the_shell() -> None:
    from msgspec.structs import replace

    question = ask("llama-3-8b", "H100")
    model = replace(question.model, hub="x; rm -rf / #")
    lines = emit("vllm", plan(replace(question, model=model))).splitlines()
    assert shlex.split(lines[-1])[2] == "x; rm -rf / #"
