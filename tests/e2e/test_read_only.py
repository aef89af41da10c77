"""The gateway as its container runs it: a number for a user, a read-only root, no home."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gateway_process import SRC, Command, free_port, get

USER = "65532"
DROP = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")
# The mount belongs to this process tree alone.
READ_ONLY = ("unshare", "--mount", "sh", "-c", 'mount -o remount,bind,ro / && exec "$@"', "sh")


ENV = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": os.pathsep.join([str(SRC), *(p for p in sys.path if p.endswith("-packages"))]),
    "PYTHONDONTWRITEBYTECODE": "1",
    "HEADRACE_SERVER__DRAIN_SETTLE_S": "0",
}
# The first exec after setpriv still has root's rights; the second one shows what the user may.
TRY = (
    "import subprocess, sys; subprocess.check_call([sys.executable, '-c', 'import headrace.serve'])"
)


def python_of_user():
    """An interpreter of this version that the user may run; without one the test is skipped."""
    if os.geteuid() != 0 or not (shutil.which("setpriv") and shutil.which("unshare")):
        pytest.skip("needs root, setpriv and unshare (util-linux)")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path=ENV["PATH"])):
        tried = [*READ_ONLY, *DROP, python or "false", "-c", TRY]
        if not subprocess.run(tried, cwd="/", env=ENV, capture_output=True, check=False).returncode:
            return (*READ_ONLY, *DROP, str(python))
    return pytest.skip(f"user {USER} may run no {version} with the packages of this one")


@pytest.mark.e2e
@pytest.mark.timeout(150)
def test_it_serves_as_a_plain_user_in_a_read_only_root():
    python = python_of_user()
    mock_port, port, admin = free_port(), free_port(), free_port()
    mock = Command("mock", "--model", "tiny", "--port", str(mock_port))
    try:
        mock.wait_line(b"headrace mock ready", 60)
        gateway = Command(
            *("serve", "--replicas", f"http://127.0.0.1:{mock_port}", "--host", "127.0.0.1"),
            *("--port", str(port), "--admin-port", str(admin), "--processes", "2"),
            python=python,
            only=ENV,
        )
        try:
            gateway.wait_line(b"no --take-over of this gateway", 60)
            gateway.wait_line(b"headrace ready", 60)
            status = Path(f"/proc/{gateway.process.pid}/status").read_text()
            assert f"Uid:\t{USER}\t{USER}" in status
            gateway.wait_line(b"warming -> ready", 60)
            body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 2}).encode()
            assert b'"text"' in get(f"http://127.0.0.1:{port}/v1/completions", body)
            assert b"headrace_processes 2" in get(f"http://127.0.0.1:{admin}/metrics")
        finally:
            code = gateway.stop()
        assert code == 0
        assert b"Traceback" not in gateway.log
    finally:
        mock.stop()
