"""Ranks cards for the same question: what each needs, what it costs, how far it is from the SLO."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.plan.demand import Slo
from headrace.plan.gpus import find_gpu
from headrace.plan.latency import Latency
from headrace.plan.names import PlanError
from headrace.plan.planner import Plan, plan
from headrace.plan.question import Ask
from headrace.plan.slo import NoSplit, SloImpossible


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One card's answer; without `plan` there is none, and `why` says so.

    `margin_ratio` is the least share of a promised latency that is left, 0–1; None without an SLO.
    """

    gpu: str
    plan: Plan | None
    why: str = ""
    price_per_hour: float | None = None  # of all cards, in the user's currency
    margin_ratio: float | None = None

    @property
    def feasible(self) -> bool:
        """Whether the card serves the traffic within the SLO."""
        return self.plan is not None

    def as_dict(self) -> dict[str, Any]:
        """The row for JSON; figures are null where there is no plan."""
        answer = self.plan
        fleet = answer.fleet if answer else None
        split = answer.replica.split if answer else None
        return {
            "gpu": self.gpu,
            "feasible": self.feasible,
            "why": self.why,
            "tp": split.tp if split else None,
            "pp": split.pp if split else None,
            "replicas": fleet.replicas if fleet else None,
            "gpus": fleet.cards if fleet else None,
            "utilization": fleet.utilization if fleet else None,
            "ttft_s": fleet.latency.ttft_s if fleet else None,
            "tpot_s": fleet.latency.tpot_s if fleet else None,
            "price_per_hour": self.price_per_hour,
            "slo_margin_ratio": self.margin_ratio,
        }


def compare(asks: Sequence[Ask], prices: Mapping[str, float]) -> list[Row]:
    """The answers, best first: by price where every card has one, else by cards; then by margin.

    Raises PlanError when no traffic is given: without it there is nothing to rank.
    """
    if any(ask.traffic.rate_per_s <= 0 for ask in asks):
        raise PlanError("compare needs --rate or --trace", param="rate")
    rows = [_row(ask, prices.get(ask.gpu.name)) for ask in asks]
    priced = all(row.price_per_hour is not None for row in rows if row.feasible)
    return sorted(rows, key=lambda row: _rank(row, priced))


def prices_from(words: Sequence[str]) -> dict[str, float]:
    """Prices by card from `A10=0.6` words.

    Raises PlanError for a word of another form, an unknown card, or a price below 0.
    """
    prices = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            price = float(text)
        except ValueError:
            raise PlanError(f"--price {word!r}: wanted GPU=NUMBER", param="price") from None
        if not 0 <= price < math.inf:
            raise PlanError(f"--price {word!r}: must be 0 or more", param="price")
        prices[find_gpu(name).name] = price
    return prices


def _row(ask: Ask, price: float | None) -> Row:
    try:
        answer = plan(ask)
    except (NoSplit, SloImpossible) as error:
        return Row(gpu=ask.gpu.name, plan=None, why=error.message)
    fleet = answer.fleet
    assert fleet is not None  # there is traffic
    return Row(
        gpu=ask.gpu.name,
        plan=answer,
        price_per_hour=None if price is None else price * fleet.cards,
        margin_ratio=margin_ratio(fleet.latency, answer.ask.slo),
    )


def margin_ratio(latency: Latency, slo: Slo) -> float | None:
    """The least share of a promised latency that is left; None without a promise."""
    pairs = ((latency.ttft_s, slo.ttft_s), (latency.tpot_s, slo.tpot_s))
    left = [1 - had / promised for had, promised in pairs if promised is not None]
    return min(left) if left else None


def _rank(row: Row, priced: bool) -> tuple[float, float, float, str]:
    if row.plan is None or row.plan.fleet is None:
        return (math.inf, math.inf, 0.0, row.gpu)
    cards = float(row.plan.fleet.cards)
    cost = row.price_per_hour if priced and row.price_per_hour is not None else cards
    return (cost, cards, -(row.margin_ratio or 0.0), row.gpu)
