"""Holds the GPUs of one replica against the table of hardware.py, from page to page.

Three kinds of evidence. An *edge* is a change that only a fault makes (a new Xid, a counter that
rises); what is there already on the first page is history. A *level* counts once it has held for
its window, and is over when a later reading shows it gone. A *group* level compares a GPU with
those that work for the same replica. What is missing is unknown: it begins and ends nothing.

A fatal Xid on the first page is history too, because exporters repeat the last Xid for ever, also
after a reset; but a GPU that shows nothing else is off the bus, so there it counts. A GPU that
vanishes from the page proves nothing (exporters restart and lose lines): it asks for a probe of
the model, which does.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.control.dcgm import GpuSample
from headrace.control.hardware import (
    BUSY_RATIO,
    LINK_FLOOR_MB_PER_S,
    LOWEST_RATIO,
    RULES,
    Action,
    Kind,
    Rule,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that fired.

    DEGRADE is reported on every page while it lasts; the other actions once, when they begin, so
    that an operator who overrules them is not overruled by the next page.
    """

    rule: Rule
    gpu: str  # DCGM index
    reason: str

    @property
    def action(self) -> Action:
        """What the finding asks for."""
        return self.rule.action


@dataclass(slots=True)
class Memory:
    """What one rule remembers of one GPU."""

    last: float | None = None  # the reading before
    since_ns: int | None = None  # a level: when it began to hold
    start_ns: int = 0  # a rise: when its window began,
    start: float = 0.0  # and the reading then
    is_reported: bool = False


class GpuJudge:
    """Judges the GPUs of one replica."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = rules
        self._memory: dict[tuple[str, str], Memory] = {}
        self._standing: dict[tuple[str, str], Finding] = {}  # of DEGRADE
        self._known: set[str] = set()
        self._alive: dict[str, str] = {}  # with signs of life on the last page: key → index

    def update(self, gpus: Sequence[GpuSample], now_ns: int) -> list[Finding]:
        """Take the GPUs of the next page and return the findings.

        What the page does not show (a field, a GPU, everything) leaves the findings that stand.
        """
        news = []
        for rule in self._rules:
            for gpu in gpus:
                value = VALUE_OF.get(rule.kind, own_value)(rule, gpu, gpus)
                if value is None:
                    continue
                place = (rule.name, gpu.key)
                memory = self._memory.setdefault(place, Memory())
                self._standing.pop(place, None)
                if self._fires(rule, memory, gpu, value, now_ns):
                    shown = value - memory.start if rule.kind is Kind.RISE else value
                    found = make_finding(rule, gpu.index, shown)
                    if rule.action is Action.DEGRADE:
                        self._standing[place] = found
                    else:
                        news.append(found)
                memory.last = value
        return news + self._find_vanished(gpus) + list(self._standing.values())

    def _fires(self, rule: Rule, memory: Memory, gpu: GpuSample, value: float, now_ns: int) -> bool:
        if rule.kind is Kind.NEW_CODE:
            is_history = gpu.key not in self._known and gpu.is_alive
            return int(value) in rule.codes and value != memory.last and not is_history
        if rule.kind is Kind.RISE:
            return has_risen(rule, memory, value, now_ns)
        holds = has_held(memory, is_true(rule, value), now_ns, rule.window_s)
        is_new = holds and not memory.is_reported
        memory.is_reported = holds
        return is_new or (holds and rule.action is Action.DEGRADE)

    def _find_vanished(self, gpus: Sequence[GpuSample]) -> list[Finding]:
        if not gpus:
            return []
        alive = {gpu.key: gpu.index for gpu in gpus if gpu.is_alive}
        gone = [index for key, index in self._alive.items() if key not in alive]
        self._alive = alive
        self._known.update(gpu.key for gpu in gpus)
        rules = [rule for rule in self._rules if rule.kind is Kind.VANISHED]
        return [make_finding(rule, index, 0) for rule in rules for index in gone]


def make_finding(rule: Rule, index: str, shown: float) -> Finding:
    """Return the finding with its reason in words."""
    return Finding(rule, index, rule.reason.format(gpu=index, value=f"{shown:g}"))


def own_value(rule: Rule, gpu: GpuSample, gpus: Sequence[GpuSample]) -> float | None:
    """Return the GPU's reading of the rule's signal."""
    value: float | None = getattr(gpu, rule.signal)
    return value


def collapsed_value(rule: Rule, gpu: GpuSample, gpus: Sequence[GpuSample]) -> float | None:
    """Return the reading of a GPU far below its busy peers, NaN if it is not, None if unknown.

    All of a tensor-parallel group wait for its slowest link and slow down with it, so only the
    lowest is at fault.
    """
    readings = {one.key: own_value(rule, one, gpus) for one in gpus}
    own, busy = readings.pop(gpu.key), gpu.activity
    others = [value for value in readings.values() if value is not None]
    if own is None or busy is None or not others:
        return None
    typical = statistics.median(others)
    is_collapsed = (
        busy >= BUSY_RATIO
        and own < min(others)
        and own < LOWEST_RATIO * typical
        and typical >= LINK_FLOOR_MB_PER_S
    )
    return own if is_collapsed else math.nan


def no_value(rule: Rule, gpu: GpuSample, gpus: Sequence[GpuSample]) -> float | None:
    """Return None: the rule looks at the page as a whole."""
    return None


VALUE_OF: dict[Kind, Callable[[Rule, GpuSample, Sequence[GpuSample]], float | None]] = {
    Kind.LOWEST: collapsed_value,
    Kind.VANISHED: no_value,
}


def is_true(rule: Rule, value: float) -> bool:
    """Return True if the reading, by itself, is what a level rule looks for."""
    if rule.kind is Kind.BITS:
        return any(int(value) & mask for mask in rule.codes)
    return value >= rule.threshold  # false for NaN


def has_risen(rule: Rule, memory: Memory, value: float, now_ns: int) -> bool:
    """Return True if the counter grew enough within its window (0: since the last page).

    A counter that falls was reset (driver reload) and starts anew.
    """
    if memory.last is None or value < memory.last:
        memory.start_ns, memory.start = now_ns, value
    elif now_ns - memory.start_ns > rule.window_s * 1e9:
        memory.start_ns, memory.start = now_ns, memory.last
    return value - memory.start >= rule.threshold


def has_held(memory: Memory, is_true_now: bool, now_ns: int, window_s: float) -> bool:
    """Return True if the level has been true on every reading for `window_s` seconds."""
    if not is_true_now:
        memory.since_ns = None
        return False
    if memory.since_ns is None:
        memory.since_ns = now_ns
    return now_ns - memory.since_ns >= window_s * 1e9
