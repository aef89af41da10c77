"""Fills gaps of the load history from Prometheus, which has scraped our own gauges.

The sum over all gateways of requests in flight and waiting, averaged over five minutes, is the load
in requests; divided by what one replica is rated for it is the load in busy replicas.
"""

from __future__ import annotations

import math
import urllib.parse
from typing import NamedTuple

import orjson

from headrace.control.autoscale.profile import BIN_S
from headrace.control.autoscale.scaler import KEPT_BINS
from headrace.control.fetch import Fetcher, FetchError, Trouble

POINTS = 8000  # of one query; Prometheus refuses more than 11 000
TIMEOUT_S = 20.0
MAX_ANSWER_BYTES = 4 << 20


class Span(NamedTuple):
    """Bins from `first` up to and without `end`."""

    first: int
    end: int


def spans(now_bin: int) -> list[Span]:
    """What is asked for, newest first: all bins that are kept, in pieces of one query."""
    oldest = now_bin - KEPT_BINS
    return [Span(max(end - POINTS, oldest), end) for end in range(now_bin, oldest, -POINTS)]


def query(model: str) -> str:
    """PromQL for the mean number of requests of a model over the five minutes before a moment."""
    label = orjson.dumps(model).decode()  # PromQL escapes as JSON does
    return " + ".join(
        f"sum(avg_over_time(headrace_{gauge}{{model={label}}}[{BIN_S}s]))"
        for gauge in ("replica_inflight", "queue_depth")
    )


async def fetch(
    fetcher: Fetcher, base_url: str, model: str, rated: float, span: Span
) -> dict[int, float]:
    """Mean loads in busy replicas by bin; gaps are left out.

    Args:
        rated: requests in flight that count as one busy replica.

    Raises:
        FetchError: when Prometheus cannot be asked or its answer is none.
    """
    asked = {
        "query": query(model),
        "start": (span.first + 1) * BIN_S,  # a bin ends where its value is evaluated
        "end": span.end * BIN_S,
        "step": BIN_S,
    }
    url = f"{base_url.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    text = await fetcher.get(url, TIMEOUT_S, MAX_ANSWER_BYTES)
    try:
        series = orjson.loads(text)["data"]["result"]
        points = series[0]["values"] if series else []
        loads = {round(float(at) / BIN_S) - 1: float(value) / rated for at, value in points}
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FetchError(Trouble.BROKEN, f"no matrix of samples: {error!r}") from None
    return {b: load for b, load in loads.items() if math.isfinite(load) and load >= 0}
