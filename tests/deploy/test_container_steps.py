"""The build steps of the Dockerfile, run without an engine: the same files, a clean venv."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_copied_files_are_enough_to_install_and_run(tmp_path):
    build = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1]
    source = tmp_path / "src"
    source.mkdir()
    for words in re.findall(r"^COPY (.+)$", build, re.MULTILINE):
        *names, target = shlex.split(words)
        for name in names:
            found = ROOT / name
            if found.is_dir():
                ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
                shutil.copytree(found, source / target, ignore=ignored)
            else:
                shutil.copy(found, source / target)
    assert 'pip install --no-cache-dir ".[$EXTRAS]"' in build
    extras = re.search(r"^ARG EXTRAS=(.+)$", build, re.MULTILINE).group(1)
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", f".[{extras}]"], cwd=source, check=True)
    said = subprocess.run(
        [venv / "bin/headrace", "--version"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert said.stdout.startswith("headrace ")
    modules = "import headrace.serve, headrace.supervisor, headrace.process"
    subprocess.run([venv / "bin/python", "-c", modules], check=True, cwd="/")
