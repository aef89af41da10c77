import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "demo" / "run.py"


@pytest.mark.e2e
def test_the_demo_streams_through_every_part_and_stops():
    done = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "127.0.0.1:" in line]
    assert len(rows) == 9
    assert any("%" in row and " 0%" not in row for row in rows), "no request hit a prefix cache"
