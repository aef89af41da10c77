"""What is asked of a fleet: requests as plain data, and seeded generators of them.

A prompt is a row of segments; equal keys stand for equal text, so prompts that begin with the same
segments share a prefix. Nothing here knows a clock, a socket or a tokeniser: the load harness turns
segments into text, the simulator into block keys.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, count
from typing import NamedTuple


class Segment(NamedTuple):
    """A stretch of prompt: which text (equal keys are equal), how long, who says it."""

    key: int
    tokens: int
    role: str = "user"


class Job(NamedTuple):
    """A request without its time; the turns of a session are in order."""

    prompt: tuple[Segment, ...]
    output_tokens: int
    session: str | None = None

    @property
    def prompt_tokens(self) -> int:
        return sum(segment.tokens for segment in self.prompt)


class Request(NamedTuple):
    """A job that is due `at_s` seconds after the start, whatever the fleet is doing then."""

    at_s: float
    job: Job


@dataclass(frozen=True)
class Lengths:
    """Token counts: a mean, and the sigma of a log-normal spread around it (0: always the mean)."""

    input_tokens: int
    output_tokens: int
    spread: float = 0.0

    def draw(self, rng: random.Random) -> tuple[int, int]:
        """An input and an output length, each at least 1."""
        return self._around(self.input_tokens, rng), self._around(self.output_tokens, rng)

    def _around(self, mean: int, rng: random.Random) -> int:
        if not self.spread:
            return mean
        # exp(-sigma²/2) keeps the mean where it was asked for
        return max(1, round(mean * rng.lognormvariate(-(self.spread**2) / 2, self.spread)))


@dataclass(frozen=True)
class Prefixes:
    """Shared system prompts: how many, how long, and how unevenly they are used (Zipf exponent)."""

    number: int = 20
    tokens: int = 4000
    zipf: float = 1.0


@dataclass(frozen=True)
class Chats:
    """Conversations: users at a time, and turns after which a user starts a new one."""

    users: int = 200
    turns: int = 8


def synthetic(rng: random.Random, lengths: Lengths) -> Iterator[Job]:
    """Prompts that share nothing, without end."""
    while True:
        input_tokens, output_tokens = lengths.draw(rng)
        yield Job((Segment(rng.getrandbits(63), input_tokens),), output_tokens)


def shared_prefix(rng: random.Random, lengths: Lengths, prefixes: Prefixes) -> Iterator[Job]:
    """One of a few system prompts, popular ones more often, then a question of its own."""
    systems = [
        Segment(rng.getrandbits(63), prefixes.tokens, "system") for _ in range(prefixes.number)
    ]
    weights = list(accumulate(1 / rank**prefixes.zipf for rank in range(1, prefixes.number + 1)))
    while True:
        (system,) = rng.choices(systems, cum_weights=weights)
        input_tokens, output_tokens = lengths.draw(rng)
        yield Job((system, Segment(rng.getrandbits(63), input_tokens)), output_tokens)


def multi_turn(rng: random.Random, lengths: Lengths, chats: Chats) -> Iterator[Job]:
    """Turns of growing chats: a prompt is the whole conversation so far and a question more."""
    names = count()
    history: list[tuple[Segment, ...]] = [()] * chats.users
    session = [f"chat-{next(names)}" for _ in range(chats.users)]
    # users begin at different turns, or all chats would be short first and long later
    left = [rng.randint(1, chats.turns) for _ in range(chats.users)]
    while True:
        user = rng.randrange(chats.users)
        input_tokens, output_tokens = lengths.draw(rng)
        prompt = (*history[user], Segment(rng.getrandbits(63), input_tokens))
        yield Job(prompt, output_tokens, session[user])
        history[user] = (*prompt, Segment(rng.getrandbits(63), output_tokens, "assistant"))
        left[user] -= 1
        if left[user] == 0:
            history[user], left[user] = (), chats.turns
            session[user] = f"chat-{next(names)}"


class Users:
    """Chats in a closed loop: a user sends the whole chat and a question, waits, thinks, goes on.

    `rngs` are the users' own sources of chance, for whoever has to draw more for their requests.
    """

    def __init__(
        self, seed: int, lengths: Lengths, chats: Chats, think_s: float, requests: int
    ) -> None:
        self.lengths, self.chats, self.think_s, self.requests = lengths, chats, think_s, requests
        self.rngs = [random.Random(f"user-{seed}-{n}") for n in range(chats.users)]
        self._history: list[tuple[Segment, ...]] = [()] * chats.users
        self._left = [rng.randint(1, chats.turns) for rng in self.rngs]
        self._chat = [0] * chats.users
        self._sent = 0
        self.answers: dict[int, Segment] = {}  # of the current turn, by user

    def start(self) -> Iterator[tuple[int, Request]]:
        """The first request of each user, in order of time."""
        first = sorted((rng.uniform(0, self.think_s), user) for user, rng in enumerate(self.rngs))
        return ((user, self._next(user, at_s)) for at_s, user in first)

    def after(self, user: int, now_s: float) -> Request | None:
        """What a user sends after the answer that ends now; None when all have been sent."""
        self._history[user] = (*self._history[user], self.answers[user])
        self._left[user] -= 1
        if self._left[user] <= 0:
            self._history[user], self._left[user] = (), self.chats.turns
            self._chat[user] += 1
        if self._sent >= self.requests:
            return None
        return self._next(user, now_s + self.rngs[user].expovariate(1 / self.think_s))

    def _next(self, user: int, at_s: float) -> Request:
        rng = self.rngs[user]
        self._sent += 1
        input_tokens, output_tokens = self.lengths.draw(rng)
        prompt = (*self._history[user], Segment(rng.getrandbits(63), input_tokens))
        self._history[user] = prompt
        self.answers[user] = Segment(rng.getrandbits(63), output_tokens, "assistant")
        return Request(at_s, Job(prompt, output_tokens, f"chat-{user}-{self._chat[user]}"))


def schedule(times: Iterable[float], jobs: Iterable[Job]) -> Iterator[Request]:
    """Jobs at their times, as long as both last."""
    return (Request(at_s, job) for at_s, job in zip(times, jobs, strict=False))


def block_keys(prompt: Iterable[Segment], block_tokens: int) -> list[int]:
    """Chained keys of the prompt's full blocks: equal keys mean an equal prompt up to there."""
    keys: list[int] = []
    chain, filled = 0, 0
    for segment in prompt:
        offset = 0
        while offset < segment.tokens:
            taken = min(block_tokens - filled, segment.tokens - offset)
            chain = hash((chain, segment.key, offset, taken))
            offset += taken
            filled += taken
            if filled == block_tokens:
                keys.append(chain)
                filled = 0
    return keys


def mean_rate_per_s(requests: list[Request]) -> float:
    """Requests per second between the first and the last; NaN for fewer than two."""
    span_s = requests[-1].at_s - requests[0].at_s if requests else 0.0
    return (len(requests) - 1) / span_s if span_s > 0 else math.nan


def accelerate(requests: Iterable[Request], factor: float) -> Iterator[Request]:
    """The same requests, due `factor` times as fast."""
    return (Request(request.at_s / factor, request.job) for request in requests)
