"""What the gateways that do not act ask for, told to the one that does by annotations of the Lease.

A request that waits in one gateway is seen by that one alone: without its wish a model that sleeps
would not wake. A wish counts while its text changes, which it does every AGAIN_S as long as its
gateway lives; the time in it is for people, no clock is compared with another one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

PREFIX = "headrace.io/desired-"
AGAIN_S = 10.0
STALE_S = 30.0

Counts = Mapping[str, int]  # replicas by model


class Wish(msgspec.Struct, frozen=True):
    """The value of an annotation, as JSON."""

    gateway: str
    at: str
    desired: dict[str, int]


class Wishes:
    """Hears what the others want, and says what this gateway wants; `own` tells it from others."""

    def __init__(self, own: str) -> None:
        self._key = PREFIX + own
        self._heard: dict[str, tuple[str, float]] = {}  # by key: the text, and since when
        self._said: tuple[dict[str, int], float] | None = None

    def hear(self, annotations: Mapping[str, str], now_s: float) -> None:
        """Take in the annotations as they are."""
        others = {k: v for k, v in annotations.items() if k.startswith(PREFIX) and k != self._key}
        self._heard = {
            key: known if (known := self._heard.get(key)) and known[0] == text else (text, now_s)
            for key, text in others.items()
        }

    def most(self, now_s: float) -> dict[str, int]:
        """The largest number of replicas that any other gateway wants, by model."""
        most: dict[str, int] = {}
        for text, since_s in self._heard.values():
            if now_s - since_s < STALE_S:
                for model, count in _desired(text).items():
                    most[model] = max(count, most.get(model, 0))
        return most

    def is_due(self, wants: Counts, annotations: Mapping[str, str], now_s: float) -> bool:
        """Whether it is time to say what this gateway wants, for the first time or again."""
        if self._said is None or self._key not in annotations:
            return True
        return self._said[0] != wants or now_s - self._said[1] >= AGAIN_S

    def said(self, wants: Counts, now_s: float) -> None:
        """Note that it has been said."""
        self._said = dict(wants), now_s

    def tidy(self, annotations: Mapping[str, str], now_s: float) -> dict[str, str]:
        """The annotations without this gateway's wish, and without those that are stale."""
        stale = {key for key, (_, since_s) in self._heard.items() if now_s - since_s >= STALE_S}
        return {k: v for k, v in annotations.items() if k != self._key and k not in stale}

    def spoken(self, annotations: Mapping[str, str], wish: Wish, now_s: float) -> dict[str, str]:
        """The annotations with this gateway's wish."""
        return {**self.tidy(annotations, now_s), self._key: msgspec.json.encode(wish).decode()}


def _desired(text: str) -> dict[str, int]:
    """What a wish asks for; nothing if somebody has written nonsense there."""
    try:
        return msgspec.json.decode(text, type=Wish).desired
    except msgspec.MsgspecError:
        return {}
