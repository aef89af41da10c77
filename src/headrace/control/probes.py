"""The one-token inference: the only question that an engine which merely listens cannot answer.

A model is asked in the way it answers: as a chat, as a completion or as an embedding, and what
worked is remembered. An answer that refuses the request itself (4xx) or the load (429, 503) says
nothing about the replica's health.
"""

from __future__ import annotations

import time
from typing import Any

import orjson

from headrace.config import Health as Settings
from headrace.control.checks import auth_headers
from headrace.control.fetch import Fetcher, FetchError, Trouble
from headrace.control.registry import Member
from headrace.control.states import Probe

MAX_ANSWER_BYTES = 1 << 20
NOT_SERVED = frozenset({400, 404, 405, 415, 422, 501})  # this model, or engine, answers otherwise
BUSY = frozenset({429, 503})
SHUTDOWN_NOTE = b"cannot schedule new futures after shutdown"

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0},
    ),
    "completion": ("/v1/completions", {"prompt": "Hi", "max_tokens": 1, "temperature": 0}),
    "embedding": ("/v1/embeddings", {"input": "Hi"}),
}


def model_to_ask(member: Member) -> str | None:
    """Return a model of the replica, an adapter only if there is nothing else; None: no model."""
    base = [name for name, card in member.cards.items() if not card.get("parent")]
    return next(iter(base or member.cards), None)


class Outcome:
    """How a probe ended."""

    def __init__(
        self, probe: Probe, detail: str = "", seconds: float = 0.0, is_leaving: bool = False
    ) -> None:
        self.probe = probe
        self.detail = detail
        self.seconds = seconds
        self.is_leaving = is_leaving
        self.kind = ""


async def ask(fetcher: Fetcher, member: Member, settings: Settings) -> Outcome:
    """Probe a replica once; tries the ways to ask until one is understood and remembers it."""
    model = model_to_ask(member)
    if model is None:
        return Outcome(Probe.NEUTRAL, "no model known")
    outcome = Outcome(Probe.NEUTRAL, "no way to ask this model")
    for kind in [member.probe_kind] if member.probe_kind else KINDS:
        outcome, is_understood = await ask_as(fetcher, member, model, kind, settings)
        outcome.kind = kind
        if is_understood:
            member.probe_kind = kind
            return outcome
        if outcome.probe is not Probe.NEUTRAL:
            return outcome
    member.probe_kind = ""
    return outcome


async def ask_as(
    fetcher: Fetcher, member: Member, model: str, kind: str, settings: Settings
) -> tuple[Outcome, bool]:
    """Ask in one way; the flag says that the question was understood."""
    path, fields = KINDS[kind]
    body = orjson.dumps({"model": model, **fields})
    start = time.monotonic()
    try:
        answer = await fetcher.post(
            member.url + path,
            body,
            settings.probe_timeout_s,
            MAX_ANSWER_BYTES,
            auth_headers(member),
        )
    except FetchError as error:
        return failed(error), False
    seconds = time.monotonic() - start
    if b'"finish_reason":"abort"' in answer.replace(b" ", b""):
        return Outcome(Probe.FAILED, "aborted", seconds, is_leaving=True), True
    if seconds > settings.probe_slow_s:
        return Outcome(Probe.SLOW, f"{seconds:.1f} s for one token", seconds), True
    return Outcome(Probe.OK, "", seconds), True


def failed(error: FetchError) -> Outcome:
    """Judge a probe that brought no answer."""
    if error.trouble is not Trouble.STATUS:
        return Outcome(Probe.FAILED, error.detail)
    if SHUTDOWN_NOTE in error.body:
        return Outcome(Probe.FAILED, "the engine is shutting down", is_leaving=True)
    if error.status >= 500 and error.status not in BUSY and error.status not in NOT_SERVED:
        return Outcome(Probe.FAILED, error.detail)
    return Outcome(Probe.NEUTRAL, error.detail)
