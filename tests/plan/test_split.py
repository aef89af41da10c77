"""How models are cut: what divides, in which order, and when a pipeline is tried."""

import pytest

from headrace.plan.catalog import find_model
from headrace.plan.deployment import Split
from headrace.plan.names import PlanError
from headrace.plan.split import candidates, forced, tensor_ways


@pytest.mark.parametrize(
    ("model", "most", "ways"),
    [
        ("llama-3-70b", 8, [1, 2, 4, 8]),
        ("llama-3-70b", 6, [1, 2, 4]),
        ("llama-3-70b", 16, [1, 2, 4, 8, 16]),  # 8 KV heads copied twice
        ("qwen2.5-7b", 8, [1, 2, 4]),  # 28 heads
        ("falcon-7b", 8, [1]),  # 71 heads
        ("deepseek-v3", 8, [1, 2, 4, 8]),
    ],
)
def test_ways_divide_the_heads(model: str, most: int, ways: list[int]) -> None:
    assert tensor_ways(find_model(model), most) == ways


def test_one_machine_is_tried_before_a_pipeline() -> None:
    splits = list(candidates(find_model("llama-3-70b"), 8))
    assert splits[:5] == [Split(1), Split(2), Split(4), Split(8), Split(8, 2)]
    assert all(split.tp == 8 for split in splits[4:])


def test_a_split_that_does_not_divide_is_refused_with_those_that_do() -> None:
    with pytest.raises(PlanError, match=r"28 heads .* possible: 1, 2, 4"):
        forced(find_model("qwen2.5-7b"), 8, None)
    with pytest.raises(PlanError, match="above the 32 layers"):
        forced(find_model("llama-3-8b"), 1, 33)
