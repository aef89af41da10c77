import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import fuzz_gateway


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.timeout(120)
def test_no_mutated_message_breaks_the_gateway_or_gets_past_it(seconds):
    assert fuzz_gateway.run(seconds, seed=1, least=40) >= 40
