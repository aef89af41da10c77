import json
import random
from statistics import median

import estimates
import pytest
from estimates import errors, read
from route_rig import Rig

from headrace.core.request import RouteRequest
from headrace.core.scan import BodyScan

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def tokenizer():
    return estimates.tokenizer()


@pytest.fixture(scope="module")
def prompts():
    return estimates.prompts(random.Random(3))


@pytest.mark.parametrize("kind", ["english", "chinese", "code"])
def test_the_median_error_is_at_most_15_percent_after_50_requests(tokenizer, prompts, kind):
    seen = errors(Rig(1), tokenizer, [prompts[kind]() for _ in range(150)])
    assert median(seen[50:]) <= 0.15


def test_a_model_that_is_asked_everything_is_estimated_as_well(tokenizer, prompts):
    kinds = [list(prompts)[n % 3] for n in range(250)]
    seen = errors(Rig(1), tokenizer, [prompts[kind]() for kind in kinds])
    for kind in prompts:
        assert median(e for e, k in zip(seen[50:], kinds[50:], strict=True) if k == kind) <= 0.15


def test_token_ids_count_exactly_and_images_at_a_fixed_cost():
    rig = Rig(1)
    scan = BodyScan(json.dumps({"prompt": [[1, 2, 3], [4, 5]], "n": 2}).encode())
    asked = RouteRequest()
    asked.read(scan, b"m")
    assert (asked.prompt_tokens, asked.sequences) == (5, 4)
    picture = {"type": "image_url", "image_url": {"url": "http://a/" + "x" * 5000}}
    with_image = [{"type": "text", "text": "what is this?"}, picture, picture]
    plain, seen = read("what is this?"), read(with_image)
    assert 2 * 500 < seen.prompt_tokens - plain.prompt_tokens < 2 * 700
    assert rig.explain()["estimate"]["prompt_tokens"] == 1000


def test_one_strange_usage_does_not_spoil_the_estimate(tokenizer, prompts):
    rig = Rig(1)
    errors(rig, tokenizer, [prompts["english"]() for _ in range(60)])
    for wrong in (1, 10_000_000):
        _, lease = rig.balancers[0].open(read("a short prompt"), rig.now)
        lease.finish(rig.now, wrong, 1)
    seen = errors(rig, tokenizer, [prompts["english"]() for _ in range(40)])
    assert median(seen) < 0.4
