"""The short-term trend: how far the last two hours lie off the usual, and where that leads.

Holt's linear method with a damped trend (Holt 1957, Gardner and McKenzie 1985), from statsmodels
(extra `headrace[forecast]`). Without it the last deviations' mean is carried forward.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

LEAST_POINTS = 6  # half an hour; below that there is no trend, only a level
LEVEL, TREND, DAMPING = 0.5, 0.1, 0.9


@cache
def _holt() -> Any | None:
    """The model, imported when a forecast first needs it (100 MB); None without the extra."""
    try:
        from statsmodels.tsa.holtwinters import Holt
    except ImportError:
        return None
    return Holt


def available() -> bool:
    """Whether the library behind the trend is installed."""
    return find_spec("statsmodels") is not None


def deviation(residuals: Sequence[float], steps: int) -> float:
    """Expected residual `steps` bins after the last one, in busy replicas; 0.0 without residuals.

    `residuals` are actual minus usual loads, oldest first, gaps left out.
    """
    if not residuals:
        return 0.0
    holt = _holt() if len(residuals) >= LEAST_POINTS else None
    if holt is None:
        recent = residuals[-3:]
        return sum(recent) / len(recent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = holt(list(residuals), damped_trend=True, initialization_method="estimated")
        fit = model.fit(
            smoothing_level=LEVEL, smoothing_trend=TREND, damping_trend=DAMPING, optimized=False
        )
        return float(fit.forecast(max(steps, 1))[-1])
