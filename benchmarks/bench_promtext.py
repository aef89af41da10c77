"""How fast the scanner reads a page: MB/s of C scan plus the samples as Python objects.

    PYTHONPATH=src python benchmarks/bench_promtext.py [PAGE ...]

Best of several rounds, since a busy machine only ever makes a round slower. prometheus_client
reads the same page once, for scale.
"""

import argparse
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headrace.control import dcgm, vllm

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
PAGES = {
    FIXTURES / "vllm-0.32.0-metrics-busy.txt": vllm.read_page,
    FIXTURES / "dcgm-4.4-healthy-8xh100.txt": dcgm.read_page,
}
ROUNDS, CALLS = 15, 200


def best_s(call, argument) -> float:
    """Seconds a call takes, in the fastest of the rounds."""
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call(argument)
        took.append((time.perf_counter() - start) / CALLS)
    return min(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scanner-floor", type=float, default=500, help="MB/s; below it: exit 1")
    floor = parser.parse_args().scanner_floor
    slow = False
    for path, read in PAGES.items():
        page = path.read_bytes()
        module = vllm if read is vllm.read_page else dcgm
        scan_s, read_s = best_s(module.SCANNER.scan, page), best_s(read, page)
        start = time.perf_counter()
        list(text_string_to_metric_families(page.decode()))
        client_s = time.perf_counter() - start
        rate = len(page) / scan_s / 1e6
        slow |= rate < floor
        print(
            f"{path.name}: {len(page)} bytes; scan {scan_s * 1e6:.1f} µs = {rate:.0f} MB/s; "
            f"with the samples judged {read_s * 1e6:.1f} µs; "
            f"prometheus_client {client_s * 1e6:.0f} µs"
        )
    raise SystemExit(int(slow))


if __name__ == "__main__":
    main()
