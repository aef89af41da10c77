"""Runs the shared acceptance suite against this checkout: `python tests/run_acceptance.py SUITE`.

The suite measures times of a real gateway, so a loaded machine can fail what has nothing wrong.
What fails beside three neighbours is run once more alone, and only what fails twice is a failure.
Both are named at the end. Tests in KNOWN are not run; each has its reason.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# node id of a test that cannot pass: why
KNOWN: dict[str, str] = {}


def run(suite: Path, words: list[str], env: dict[str, str]) -> tuple[int, list[str]]:
    """(exit code, node ids of the failed tests) of one pytest run."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        code = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"),
                *(f"--junitxml={report}", *words),
            ],
            cwd=suite,
            env=env,
            check=False,
        ).returncode
        return code, failed(report) if report.is_file() else []


def failed(report: Path) -> list[str]:
    """Node ids in a JUnit report that ended badly."""
    return [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]


def main() -> int:
    """Run everything, then what failed; 0 if each test has passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--command", default="headrace serve", help="how the gateway is started")
    parser.add_argument("--processes", default="1")
    parser.add_argument("--jobs", default="4")
    parser.add_argument("words", nargs="*", help="for pytest: files, -k …")
    args = parser.parse_args()
    env = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HEADRACE_CMD": args.command,
        "HEADRACE_TEST_PROCESSES": args.processes,
    }
    known = [f"--deselect={name}" for name in KNOWN]
    code, first = run(args.suite, ["-n", args.jobs, *known, *args.words], env)
    for name, reason in KNOWN.items():
        print(f"not run: {name}: {reason}")
    if not first:
        return code
    code, second = run(args.suite, first, env)
    for name in first:
        print(f"{'failed twice' if name in second else 'passed alone'}: {name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
