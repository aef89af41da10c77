"""Hypothesis draws the same examples in every run: a test that fails, fails again."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "test", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("test")
