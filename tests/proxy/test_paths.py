"""What paths mean, in every spelling."""

import pytest

from headrace.endpoints import ENDPOINTS
from headrace.proxy.paths import (
    ANY,
    EXACT,
    MODEL,
    NOT_FOUND,
    ONE_ENGINE,
    POST_ONLY,
    classify,
    normalized,
)

BLOCKED = (b"/v1/load_lora_adapter",)


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/load_lora_adapter",
        b"/v1/load_lora_adapter/",
        b"/v1//load_lora_adapter",
        b"/v1/./load_lora_adapter",
        b"/v1/x/../load_lora_adapter",
        b"/v1/load%5Flora%5fadapter",
        b"/v1/load%255Flora_adapter",
        b"/v1%2Fload_lora_adapter",
        b"/V1/Load_Lora_Adapter",
        b"/v1/load_lora_adapter;x=1",
        b"/v1\\load_lora_adapter",
        b"/v1/load_lora_adapter/extra",
    ],
)
def test_a_blocked_path_is_not_found_in_any_spelling(path):
    assert classify(path, BLOCKED) == (NOT_FOUND, 0)


@pytest.mark.parametrize(
    "path", [b"/", b"/v2/x", b"/v1", b"/v1/../metrics", b"/v1/%2e%2e/health", b"/admin"]
)
def test_what_is_not_below_v1_is_not_routed(path):
    assert classify(path, BLOCKED)[0] == NOT_FOUND


def test_other_paths_below_v1_are_routed():
    assert classify(b"/v1/files//a%2Fb/../c", BLOCKED) == (ANY, 0)
    assert classify(b"/v1/audio/speech", BLOCKED) == (POST_ONLY, ENDPOINTS.index("audio"))
    assert classify(b"/v1/responses/resp_1/cancel", BLOCKED)[0] == ONE_ENGINE
    assert classify(b"/v1/models/org%2Fm", BLOCKED)[0] == MODEL
    assert EXACT[b"/v1/chat/completions"] == (POST_ONLY, ENDPOINTS.index("chat_completions"))


@pytest.mark.parametrize("path", [b"/a/b", b"/A/%42/./b/..", b"/a//b/", b"/a/%62"])
def test_normal_forms_are_stable(path):
    assert normalized(normalized(path)) == normalized(path)
