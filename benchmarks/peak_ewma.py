"""What peak-EWMA (Finagle, linkerd) would be worth as a policy, in the scenarios of quality.py.

    python benchmarks/peak_ewma.py --traces FOLDER

Its cost is a replica's latency times the requests there; latency is an exponential mean that takes
a worse sample at once and forgets over 10 s. The sample is the TTFT: the whole time says how long
the answer was. The policy is plain Python here, in place of the router; it is no part of headrace.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import quality

from headrace import NoReplica
from headrace.sim.fleet import Fleet
from headrace.sim.traffic import source_of

MEMORY_S = 10.0
PENALTY_S = 1.0  # of a replica without samples that has requests already


@dataclass
class Member:
    """A replica: its latency, and the requests there."""

    url: str
    latency_s: float = 0.0
    at_ns: int = 0
    requests: int = 0
    ready: bool = True

    def observe(self, sample_s: float, now_ns: int) -> None:
        """Worse counts at once, better by its age."""
        keep = math.exp((self.at_ns - now_ns) / 1e9 / MEMORY_S)
        self.at_ns = now_ns
        decayed = self.latency_s * keep + sample_s * (1 - keep)
        self.latency_s = max(sample_s, decayed)

    def cost(self, now_ns: int) -> float:
        """Latency, nearer to zero the longer nothing came, times the requests with this one."""
        faded = self.latency_s * math.exp((self.at_ns - now_ns) / 1e9 / MEMORY_S)
        if faded == 0 and self.requests:
            return PENALTY_S + self.requests
        return faded * (self.requests + 1)


class Claim:
    """What the fleet needs of a lease."""

    reason = "peak_ewma"

    def __init__(self, member: Member, now_ns: int) -> None:
        self.replica, self.start_at_ns, self.first_ns = member, now_ns, 0
        member.requests += 1

    def tokens(self, now_ns: int, count: int = 1) -> None:
        if not self.first_ns:
            self.first_ns = now_ns
            self.replica.observe((now_ns - self.start_at_ns) / 1e9, now_ns)

    def finish(self, now_ns: int, usage: Any = None) -> None:
        self.replica.requests -= 1

    def fail(self, now_ns: int, reason: str) -> None:
        self.replica.requests -= 1


class PeakRouter:
    """What the fleet needs of a router; `choices` replicas by chance are compared, 0: all."""

    def __init__(self, urls: list[str], choices: int, seed: int) -> None:
        self.members = {url: Member(url) for url in urls}
        self.choices, self.rng = choices, random.Random(seed)

    def route(self, request: Any, now_ns: int, without: Member | None = None) -> Claim:
        ready = [m for m in self.members.values() if m.ready and m is not without]
        if not ready:
            raise NoReplica("none is ready")
        asked = self.rng.sample(ready, min(self.choices or len(ready), len(ready)))
        return Claim(min(asked, key=lambda m: m.cost(now_ns)), now_ns)

    def retry(self, claim: Claim, now_ns: int, reason: str) -> Claim:
        claim.fail(now_ns, reason)
        return self.route(None, now_ns, without=claim.replica)

    def update(self, url: str, *, state: str | None = None, **gauges: Any) -> None:
        if state is not None:
            self.members[url].ready = state == "ready"


def peak_p99(scenario: Any, choices: int, seeds: int) -> float:
    """Mean over seeds of the P99 TTFT in seconds."""
    found = []
    for seed in range(seeds):
        fleet = Fleet(scenario, "least_load", seed, source_of(scenario, seed))
        fleet.routers = [PeakRouter(fleet.urls, choices, seed)]  # type: ignore[list-item]
        found.append(quality.p99(fleet.run().ttft_s))
    return statistics.fmean(found)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="has the Azure trace")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    results: quality.Results = {}
    for name, scenario in quality.scenarios(args.traces).items():
        print(name, file=sys.stderr)
        results[name] = quality.measure(scenario, args.seeds, [quality.OURS, "least_load"])
        results[name]["peak_ewma, of all"] = peak_p99(scenario, 0, args.seeds)
        results[name]["peak_ewma, of two"] = peak_p99(scenario, 2, args.seeds)
    print(quality.table(results, list(results["slow"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
