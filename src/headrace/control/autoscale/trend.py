"""The short-term trend: how far the last two hours lie off the usual, and where that leads.

Holt's linear method with a damped trend (Holt 1957, Gardner and McKenzie 1985), from statsmodels
(extra `headrace[forecast]`). Without it the last deviations' mean is carried forward.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

LEAST_POINTS = 6  # half an hour; below that there is no trend, only a level
LEVEL, TREND, DAMPING = 0.5, 0.1, 0.9

try:
    from statsmodels.tsa.holtwinters import Holt
except ImportError:  # the extra is not installed
    Holt = None


def available() -> bool:
    """Whether the library behind the trend is installed."""
    return Holt is not None


def deviation(residuals: Sequence[float], steps: int) -> float:
    """Expected residual `steps` bins after the last one, in busy replicas; 0.0 without residuals.

    `residuals` are actual minus usual loads, oldest first, gaps left out.
    """
    if not residuals:
        return 0.0
    if Holt is None or len(residuals) < LEAST_POINTS:
        recent = residuals[-3:]
        return sum(recent) / len(recent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Holt(list(residuals), damped_trend=True, initialization_method="estimated")
        fit = model.fit(
            smoothing_level=LEVEL, smoothing_trend=TREND, damping_trend=DAMPING, optimized=False
        )
        return float(fit.forecast(max(steps, 1))[-1])
