import pytest
from fake_plane import play


@pytest.fixture
def run():
    """Runs a scenario with fake replicas and control planes on loopback."""
    return play
