import subprocess
import sys

import pytest

from headrace import errors

# CONTRACT section 3, the table of errors made by the gateway
CONTRACT = {
    "invalid_json": (400, "invalid_request_error"),
    "invalid_request": (400, "invalid_request_error"),
    "bad_http": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "model_not_found": (404, "invalid_request_error"),
    "not_found": (404, "invalid_request_error"),
    "method_not_allowed": (405, "invalid_request_error"),
    "client_timeout": (408, "invalid_request_error"),
    "body_too_large": (413, "invalid_request_error"),
    "headers_too_large": (431, "invalid_request_error"),
    "overloaded": (429, "rate_limit_error"),
    "queue_timeout": (429, "rate_limit_error"),
    "not_supported": (501, "invalid_request_error"),
    "upstream_error": (502, "server_error"),
    "no_replica": (503, "server_error"),
    "draining": (503, "server_error"),
    "upstream_timeout": (504, "server_error"),
}


@pytest.mark.parametrize("code", CONTRACT)
def test_each_code_has_its_status_and_type(code):
    assert errors.CODES[code] == CONTRACT[code]


def test_no_code_belongs_to_two_statuses():
    statuses: dict[str, set[int]] = {}
    for cls in errors._tree():
        statuses.setdefault(cls.code, set()).add(cls.status)
    assert all(len(found) == 1 for found in statuses.values()), statuses


def test_a_class_says_whose_fault_it_is():
    assert issubclass(errors.UnknownModel, errors.ClientError)
    assert issubclass(errors.UpstreamTimeout, errors.ReplicaError)
    assert issubclass(errors.Overloaded, errors.GatewayError)


def test_the_body_has_the_openai_shape():
    body = errors.UnknownModel("no model 'x'").body()
    assert body == {
        "error": {
            "message": "no model 'x'",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


def test_overloaded_carries_the_time_to_wait():
    assert errors.Overloaded("full", 2.5).retry_after_s == 2.5
    assert errors.NoReplica("none").retry_after_s is None


def test_the_errors_bring_in_no_asyncio():
    program = "import sys, headrace.errors; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
