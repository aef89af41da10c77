"""Cost of recording an event in the cells, in C (benchmarks/recording.c).

python benchmarks/recording.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "recording"
        sources = [str(ROOT / "benchmarks" / "recording.c"), *map(str, ROOT.glob("csrc/*.c"))]
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT / 'csrc'}", "-o", str(program)]
        subprocess.run(["cc", *flags, *sources, "-lm"], check=True)
        return subprocess.run([str(program)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
