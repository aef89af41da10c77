"""Captured answers of a real vLLM, the answers of a mock, and how to compare their shapes."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

FIXTURES = Path(__file__).parent / "fixtures"
# The mock behaves like a server with --enable-prompt-tokens-details; most captures are without.
OPTIONAL = ".usage.prompt_tokens_details"
JSON_TYPE = {"content-type": "application/json"}


@dataclass
class Answer:
    """Status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The stream's events as (name or "", JSON or "[DONE]")."""
        return [parse_event(block) for block in self.body.decode().split("\n\n") if block]


def parse_event(block: str) -> tuple[str, Any]:
    fields = dict(line.split(": ", 1) for line in block.strip().split("\n"))
    data = fields["data"]
    return fields.get("event", ""), data if data == "[DONE]" else json.loads(data)


def captured(name: str) -> Answer:
    """The capture `vllm-0.32.0-NAME.http`."""
    raw = (FIXTURES / f"vllm-0.32.0-{name}.http").read_bytes()
    head, body = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)
    status, *lines = head.decode().splitlines()
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(status.split()[1]), headers, body)


def connect(url: str, timeout_s: float = 10.0) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)


def ask(
    url: str, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = ""
) -> Answer:
    """One request on a connection of its own; a `body` that is no bytes is sent as JSON."""
    connection = connect(url)
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    method = method or ("GET" if body is None else "POST")
    base = {} if body is None else JSON_TYPE
    connection.request(method, path, sent, {**base, **(headers or {})})
    response = connection.getresponse()
    found = {name.lower(): value for name, value in response.getheaders()}
    answer = Answer(response.status, found, response.read())
    connection.close()
    return answer


def chat(said: str = "Hello there", **options: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": said}], **options}


def control(url: str, action: str, **wishes: Any) -> dict[str, Any]:
    """What `/_control` says of replica 0 after an action."""
    answer = ask(url, "/_control", {"action": action, **wishes})
    assert answer.status == 200, answer.body
    return answer.json["replicas"][0]


def shape(value: Any) -> Any:
    """What two answers to like requests have in common: keys and kinds; a list's first element
    stands for all. Null is `None`, to be matched with anything."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool) or value is None:
        return value if value is None else "bool"
    return "number" if isinstance(value, int | float) else "text"


def differences(real: Any, fake: Any, where: str = "") -> list[str]:
    """Where the shapes of two answers disagree, as paths."""
    found = _differences(shape(real), shape(fake), where)
    return [path for path in found if not path.endswith(OPTIONAL)]


def _differences(real: Any, fake: Any, where: str) -> list[str]:
    if real is None or fake is None or real == [] or fake == []:
        return []
    if isinstance(real, dict) and isinstance(fake, dict):
        found = [f"{where}.{key}" for key in real.keys() ^ fake.keys()]
        for key in real.keys() & fake.keys():
            found += _differences(real[key], fake[key], f"{where}.{key}")
        return found
    if isinstance(real, list) and isinstance(fake, list):
        return _differences(real[0], fake[0], f"{where}[]")
    return [] if real == fake else [f"{where}: {real} and {fake}"]


def kinds(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The events, without those that have the name and shape of the one before."""
    found: list[tuple[str, Any]] = []
    for name, data in events:
        one = (name, data)
        if not found or found[-1][0] != name or shape(found[-1][1]) != shape(data):
            found.append(one)
    return found
