"""Model shapes: counted parameters against the figures that their makers published."""

import pytest

from headrace.plan.catalog import MODELS, find_model
from headrace.plan.models import active_params, total_params
from headrace.plan.names import PlanError

# name: (billions of parameters, billions active a token), from the model's card or report
PUBLISHED = {
    "llama-2-7b": (6.74, 6.74),  # Llama 2 card, safetensors index
    "llama-2-13b": (13.02, 13.02),
    "llama-2-70b": (68.98, 68.98),
    "llama-3-8b": (8.03, 8.03),  # Llama 3 card
    "llama-3-70b": (70.6, 70.6),
    "llama-3.1-405b": (405.9, 405.9),  # Llama 3.1 card
    "qwen2.5-7b": (7.61, 7.61),  # Qwen2.5 card
    "qwen2.5-72b": (72.7, 72.7),
    "qwen3-32b": (32.8, 32.8),  # Qwen3 card
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235.0, 22.0),
    "deepseek-v2": (236.0, 21.0),  # DeepSeek-V2 paper
    "deepseek-v2-lite": (15.7, 2.4),
    "deepseek-v3": (671.0, 37.0),  # DeepSeek-V3 technical report
    "kimi-k2": (1026.0, 32.0),  # Kimi K2 card
    "mistral-7b": (7.25, 7.25),
    "mixtral-8x7b": (46.7, 12.9),  # Mixtral paper
    "mixtral-8x22b": (141.0, 39.0),
    "gemma-2-27b": (27.2, 27.2),  # Gemma 2 report
    "gemma-3-27b": (27.0, 27.0),  # Gemma 3 report, without the vision tower
    "phi-4": (14.7, 14.7),
    "glm-4-9b": (9.4, 9.4),
    "glm-4.5-air": (106.0, 12.0),  # GLM-4.5 card
    "falcon-7b": (6.92, 6.92),  # Falcon paper
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counted_parameters_are_the_published_ones(name: str) -> None:
    model = find_model(name)
    total, active = PUBLISHED[name]
    assert total_params(model) / 1e9 == pytest.approx(total, rel=0.01)
    assert active_params(model) / 1e9 == pytest.approx(active, rel=0.12)


def test_there_are_at_least_thirty_models_with_distinct_names() -> None:
    assert len(MODELS) >= 30
    assert {m.attention for m in MODELS.values()} == {"MHA", "GQA", "MQA", "MLA"}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("llama-3-8b", "llama-3-8b"),
        ("LLAMA_3 8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("Llama-3-8B-Instruct", "llama-3-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("gemma-2-27b-it", "gemma-2-27b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
    ],
)
def test_a_model_is_found_by_the_ways_people_write_it(said: str, meant: str) -> None:
    assert find_model(said).name == meant


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"did you mean .*llama-3-8b"):
        find_model("lama-3-8b")
    with pytest.raises(PlanError, match="known: "):
        find_model("@@@")
