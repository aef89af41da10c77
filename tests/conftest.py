"""Hypothesis: the same examples in every run of `make test`; `make fuzz` looks for new ones."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "test", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fuzz", parent=settings.get_profile("test"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))
