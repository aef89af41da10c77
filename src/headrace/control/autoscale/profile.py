"""The seasonal profile: what load is usual at this time of day and of the week.

Load is counted in busy replicas: requests in flight or waiting, over the concurrency one replica is
rated for. Time is cut into bins of five minutes. The usual load of a moment is the median over the
same bin of past weeks, or of past days where there are too few weeks, each with its neighbours:
medians pass over outliers, and gaps leave bins out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

BIN_S = 300
BINS_PER_DAY = 86_400 // BIN_S
BINS_PER_WEEK = 7 * BINS_PER_DAY
NEIGHBOURS = 1  # bins to each side that count as the same moment
WEEKS = 8  # how far back weeks are looked at
DAYS = 14  # how far back days are looked at
ENOUGH_WEEKS = 2  # weeks with data from which on the week alone is trusted


def bin_of(time_s: float) -> int:
    """The number of the bin a moment lies in, counted from the epoch."""
    return int(time_s // BIN_S)


def _around(history: Mapping[int, float], centre: int) -> float | None:
    """Mean of a bin and its neighbours; None in a gap."""
    found = [
        history[b] for b in range(centre - NEIGHBOURS, centre + NEIGHBOURS + 1) if b in history
    ]
    return sum(found) / len(found) if found else None


def _usual(history: Mapping[int, float], at: int, season: int, back: int) -> tuple[int, float]:
    """How many earlier seasons have the bin, and their median (0.0 when none has)."""
    values = [
        value
        for n in range(1, back + 1)
        if (value := _around(history, at - n * season)) is not None
    ]
    return len(values), statistics.median(values) if values else 0.0


def usual_load(history: Mapping[int, float], at: int) -> float | None:
    """The usual load in bin `at`, in busy replicas, from bins before it; None without any past.

    `history` maps bins to mean loads. One week of data weighs as much as the days do; two or more
    stand alone.
    """
    weeks, by_week = _usual(history, at, BINS_PER_WEEK, WEEKS)
    if weeks >= ENOUGH_WEEKS:
        return by_week
    days, by_day = _usual(history, at, BINS_PER_DAY, DAYS)
    if weeks and days:
        return (by_week + by_day) / 2
    if weeks or days:
        return by_week if weeks else by_day
    return None
