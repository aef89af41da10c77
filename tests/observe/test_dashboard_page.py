"""The page's policy lets its own code run and nothing else; its document says what is known."""

import base64
import hashlib
import re

import pytest
from gateway_loop import play

from headrace.observe.dashboard import page, relative_speeds


def test_the_policy_names_the_pages_own_script_and_style_by_digest():
    html, headers = page()
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy and policy.startswith("default-src 'none'")
    for tag in ("script", "style"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "innerHTML" not in html and "https://" not in html


@pytest.mark.parametrize(
    ("speeds", "relative"),
    [
        ({}, {}),
        ({"a": None}, {"a": None}),
        ({"a": 0.8}, {"a": 1.0}),
        ({"a": 0.8, "b": 0.8, "c": 0.4}, {"a": 1.0, "b": 1.0, "c": 0.5}),
        ({"a": 2.0, "b": None, "c": 1.0}, {"a": 2.0 / 1.5, "b": None, "c": 1.0 / 1.5}),
    ],
)
def test_speeds_are_relative_to_the_median_of_what_is_known(speeds, relative):
    assert relative_speeds(speeds) == {k: v and pytest.approx(v) for k, v in relative.items()}


def test_the_document_shows_requests_and_says_null_for_the_unknown():
    async def scenario(gateway, engines):
        await gateway.chat(stream=True)
        gateway.control.upward._drain()
        async with gateway.client.get(f"{gateway.admin}/dashboard/data") as answer:
            document = await answer.json()
        (replica,) = document["replicas"]
        assert (replica["state"], replica["inflight"], replica["gpu_temp"]) == ("ready", 0, None)
        assert replica["kv_usage"] == 0.25
        decision = document["decisions"][0]
        assert (decision["outcome"], decision["policy"]) == ("ok", "cost_aware")
        assert decision["matched_tokens"] == 0 and decision["score"] is not None
        assert document["changes"][-1]["to"] == "ready"

    play(scenario)
