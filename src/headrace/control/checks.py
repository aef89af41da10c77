"""The health check of one replica: its health path, then its list of models.

The list is read on every check, so that a replica which comes back as another model is never sent
the old one's requests: the models are taken over before the good answer counts.
"""

from __future__ import annotations

from typing import Any

import orjson

from headrace.config import Health as Settings
from headrace.control.fetch import Fetcher, FetchError, Trouble
from headrace.control.registry import Member
from headrace.control.states import Health

MAX_HEALTH_BYTES = 1 << 20
MAX_MODELS_BYTES = 4 << 20
MAX_MODELS = 1024  # of one replica

ANSWERS = {Trouble.REFUSED: Health.REFUSED, Trouble.TIMEOUT: Health.SLOW}


class ModelListError(ValueError):
    """The model list is not one."""


async def check(
    fetcher: Fetcher, member: Member, settings: Settings
) -> tuple[Health, str, dict[str, dict[str, Any]] | None]:
    """Return how the check ended, a detail for the reason, and the models if they were read.

    A replica that answers its health path but never gave a list of models cannot serve, so that
    is a failure too; one whose list is missing for once keeps the last.
    """
    headers = auth_headers(member)
    try:
        await fetcher.get(member.url + settings.path, settings.timeout_s, MAX_HEALTH_BYTES, headers)
    except FetchError as error:
        return ANSWERS.get(error.trouble, Health.FAILED), error.detail, None
    if member.config.models:
        return Health.OK, "", None
    try:
        page = await fetcher.get(
            member.url + "/v1/models", settings.timeout_s, MAX_MODELS_BYTES, headers
        )
        return Health.OK, "", read_models(page)
    except (FetchError, ModelListError) as error:
        if member.cards:
            return Health.OK, "", None
        return Health.FAILED, f"list of models: {error}", None


def auth_headers(member: Member) -> dict[str, str]:
    """The replica's own key, if it has one."""
    key = member.config.api_key
    return {"authorization": f"Bearer {key}"} if key else {}


def read_models(page: bytes) -> dict[str, dict[str, Any]]:
    """Return the cards of a /v1/models answer by id; raises ModelListError if it is none."""
    try:
        data = orjson.loads(page)
    except orjson.JSONDecodeError:
        raise ModelListError("not JSON") from None
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise ModelListError("no `data`")
    cards = {}
    for card in entries[:MAX_MODELS]:
        if isinstance(card, dict) and isinstance(card.get("id"), str) and card["id"]:
            cards[card["id"]] = card
    return cards


def keep_known(cards: dict[str, dict[str, Any]], known: dict[str, dict[str, Any]]) -> None:
    """Keep the cards that differ from the known ones only in what is made up for each answer.

    vLLM sets `created` to the time of asking, and gives every permission an id of its own.
    """
    for name, card in cards.items():
        before = known.get(name)
        if before is not None and lasting(card) == lasting(before):
            cards[name] = before


def lasting(card: dict[str, Any]) -> dict[str, Any]:
    """The part of a card that says something about the model."""
    return {key: value for key, value in card.items() if key not in ("created", "permission")}
