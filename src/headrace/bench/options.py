"""From the options of `headrace bench` to the load they describe."""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp

from headrace.bench import arrivals, traces, workload
from headrace.bench.load import Run, limited
from headrace.bench.workload import Chats, Job, Lengths, Prefixes, Request

DEFAULT_DURATION_S = 30.0
DATASETS = ("synthetic", "shared-prefix", "multi-turn")


class UsageError(ValueError):
    """The options contradict each other or name nothing that exists."""


@dataclass(frozen=True)
class Plan:
    """One load: which requests, and when (`rate`, `concurrency` or the trace's own times)."""

    dataset: str
    lengths: Lengths
    prefixes: Prefixes
    chats: Chats
    arrivals: str
    duration_s: float
    seed: int
    rate: float | None = None
    concurrency: int | None = None
    requests: int | None = None
    speed: float | None = None
    warmup_requests: int = 0

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Plan:
        """Check the options against each other; raises UsageError."""
        dataset = args.dataset or DATASETS[0]
        is_trace = dataset not in DATASETS
        if is_trace and not Path(dataset).is_file():
            raise UsageError(f"no dataset and no file: {dataset} (one of {', '.join(DATASETS)})")
        if args.find_capacity and (args.concurrency or args.speed):
            raise UsageError(
                "--find-capacity sets the rate itself: not with --concurrency or --speed"
            )
        if args.speed and not is_trace:
            raise UsageError("--speed is for traces")
        if not (is_trace or args.rate or args.concurrency or args.find_capacity):
            raise UsageError("give --rate R, --concurrency C, --find-capacity or a trace")
        unbounded = math.inf if is_trace or args.requests else DEFAULT_DURATION_S
        return cls(
            dataset=dataset,
            lengths=lengths(args),
            prefixes=Prefixes(args.prefixes, args.prefix_tokens, args.zipf),
            chats=Chats(args.users, args.turns),
            arrivals=args.arrivals,
            duration_s=args.duration or (DEFAULT_DURATION_S if args.find_capacity else unbounded),
            seed=args.seed,
            rate=args.rate,
            concurrency=args.concurrency,
            requests=args.requests,
            speed=args.speed,
        )

    def at_rate(self, rate: float) -> Plan:
        return replace(self, rate=rate)

    def describe(self) -> str:
        """The load in words."""
        if self.concurrency:
            return f"{self.dataset}, {self.concurrency} at once"
        if self.rate and self.dataset in DATASETS:
            return f"{self.dataset}, {self.arrivals} arrivals, {self.rate:g} requests/s"
        pace = f"{self.rate:g} requests/s" if self.rate else f"{self.speed or 1:g} × its own speed"
        return f"{Path(self.dataset).name}, {pace}"

    async def drive(self, run: Run) -> None:
        """Send the load and wait for its answers."""
        if self.concurrency:
            jobs = iter(self.jobs())
            await run.closed_loop(_first(jobs, self.requests), self.concurrency, self.duration_s)
        else:
            await run.open_loop(limited(self.timed(), self.duration_s, self.requests))

    def jobs(self) -> Iterator[Job]:
        """The requests without their times."""
        rng = random.Random(self.seed)
        if self.dataset == "synthetic":
            return workload.synthetic(rng, self.lengths)
        if self.dataset == "shared-prefix":
            return workload.shared_prefix(rng, self.lengths, self.prefixes)
        if self.dataset == "multi-turn":
            return workload.multi_turn(rng, self.lengths, self.chats)
        return (request.job for request in traces.read(Path(self.dataset)))

    def timed(self) -> Iterator[Request]:
        """The requests with their times: generated ones at the rate, recorded ones scaled to it."""
        if self.dataset in DATASETS:
            assert self.rate is not None
            times = arrivals.make(
                self.arrivals, self.rate, random.Random(f"arrivals-{self.seed}"), self.duration_s
            )
            return workload.schedule(times, self.jobs())
        recorded = traces.read(Path(self.dataset))
        if self.rate is None:
            return workload.accelerate(recorded, self.speed or 1.0)
        rows = list(recorded)
        own_rate = workload.mean_rate_per_s(rows)
        if math.isnan(own_rate):
            raise UsageError(f"{self.dataset} has no rate of its own to scale: use --speed")
        return workload.accelerate(rows, self.rate / own_rate)


def lengths(args: argparse.Namespace) -> Lengths:
    """Token counts from the options."""
    return Lengths(args.input_tokens, args.output_tokens, args.length_spread)


def _first(jobs: Iterator[Job], number: int | None) -> Iterator[Job]:
    for index, job in enumerate(jobs):
        if index == number:
            return
        yield job


async def first_model(url: str, api_key: str | None) -> str | None:
    """The first model that the server lists; None if it lists none.

    Raises RuntimeError if the server cannot be asked.
    """
    base = url.rstrip("/").removesuffix("/v1")
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(
                f"{base}/v1/models", timeout=aiohttp.ClientTimeout(10)
            ) as answer:
                if answer.status != 200:
                    raise RuntimeError(
                        f"GET {base}/v1/models: {answer.status}; try --model or --api-key"
                    )
                listed = (await answer.json()).get("data") or []
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise RuntimeError(f"GET {base}/v1/models: {error!r}") from error
    return listed[0]["id"] if listed else None
