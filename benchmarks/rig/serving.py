"""`headrace serve` with one process on ports of its own."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rig import net


class Serving:
    """A running gateway; its log lies beside its configuration in the temporary folder.

    Args:
        config: the configuration, without ports.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        port, admin_port = net.free_ports(2)
        self.data, self.admin = (f"http://127.0.0.1:{p}" for p in (port, admin_port))
        server = {
            "host": "127.0.0.1",
            "port": port,
            "admin_port": admin_port,
            "processes": 1,
            "drain_settle_s": 0,
        }
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump({"server": server, **config}, file)
        words = [sys.executable, "-m", "headrace", "serve", "--config", file.name]
        log = Path(file.name).with_suffix(".log")
        self.process = subprocess.Popen(words, stderr=log.open("w"))

    def stop(self) -> None:
        """End it and wait for that."""
        self.process.terminate()
        self.process.wait(20)
