"""Scenario files (YAML): which replicas, what traffic, what goes wrong when."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from headrace.mock.presets import DEFAULT_PRESET, PRESETS


class ScenarioError(ValueError):
    """The scenario cannot be run; says which key and why."""


class Replicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of equal replicas."""

    count: int = 1
    preset: str = DEFAULT_PRESET
    slow: float = 1.0  # steps take this many times as long
    kv_tokens: int | None = None  # instead of the preset's
    max_num_seqs: int | None = None
    noise_ratio: float = 0.0


class Traffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked. Rates in requests/s, lengths in tokens."""

    dataset: str = "synthetic"  # or shared-prefix, multi-turn, chats, mixed, FILE
    requests: int = 10_000
    rate: float | None = None  # None: a trace's own times
    arrivals: str = "poisson"
    input_tokens: int = 1000
    output_tokens: int = 200
    spread: float = 0.5  # sigma of the log-normal lengths
    prefixes: int = 20
    prefix_tokens: int = 4000
    zipf: float = 1.0
    hot_ratio: float = 0.0  # this share of shared-prefix requests uses the first prefix
    users: int = 200  # of chats (closed loop) and multi-turn
    turns: int = 8
    think_s: float = 10.0  # mean pause of a chat user
    longest_tokens: int = 32_000  # of mixed lengths
    crowd: Crowd | None = None
    copies: int = 1  # of a trace at once, by users who share nothing with each other


class Crowd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For a while the rate is `factor` times the usual one."""

    at_s: float
    until_s: float
    factor: float


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happens to one replica."""

    at_s: float
    action: Literal["slow", "kill", "restart", "freeze", "unfreeze", "refuse", "accept"]
    replica: int = 0
    factor: float = 1.0


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a run needs besides policy and seed."""

    replicas: list[Replicas]
    traffic: Traffic
    name: str = "scenario"
    about: str = ""
    events: list[Event] = []
    router: dict[str, Any] = {}  # settings of the router: routing, admission, retry
    policies: list[str] = []
    gateways: int = 1
    kv_events: bool = False  # the engines tell all gateways what their caches hold
    estimate_error: float = 0.2  # sigma of the log-normal error of prompt lengths
    gauge_interval_s: float = 1.0  # between scrapes; 0: none
    gauge_lag_s: float = 0.0  # age of a gauge when its scrape arrives
    detect_s: float = 0.1  # until a dead replica is known to be dead
    warmup_ratio: float = 0.1  # of the requests, not counted

    @property
    def replica_count(self) -> int:
        return sum(group.count for group in self.replicas)


def checked(scenario: Scenario) -> Scenario:
    """The scenario, if it can be run; else raises ScenarioError."""
    for group in scenario.replicas:
        if group.preset not in PRESETS:
            raise ScenarioError(f"replicas.preset: {group.preset!r}; have {', '.join(PRESETS)}")
    if not 1 <= scenario.replica_count <= 1024:
        raise ScenarioError(f"replicas: wanted {scenario.replica_count}, allowed 1 to 1024")
    for event in scenario.events:
        if not 0 <= event.replica < scenario.replica_count:
            raise ScenarioError(f"events.replica: there is no replica {event.replica}")
    crowd = scenario.traffic.crowd
    if crowd is not None and not (crowd.factor > 0 and 0 <= crowd.at_s < crowd.until_s):
        raise ScenarioError("traffic.crowd: wanted factor > 0 and at_s < until_s")
    if min(scenario.traffic.requests, scenario.traffic.copies, scenario.gateways) < 1:
        raise ScenarioError("traffic.requests, traffic.copies and gateways: at least 1")
    return scenario


def parse(text: str, name: str) -> Scenario:
    """A scenario from YAML; raises ScenarioError with the key that is wrong."""
    try:
        tree = yaml.safe_load(text)
        return checked(msgspec.convert({"name": name, **(tree or {})}, Scenario))
    except (yaml.YAMLError, msgspec.ValidationError, TypeError) as error:
        raise ScenarioError(f"{name}: {error}") from error


def shipped() -> list[str]:
    """Names of the scenarios in the package."""
    folder = resources.files("headrace.sim").joinpath("scenarios")
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def load(name_or_path: str) -> Scenario:
    """A scenario file, or one of the shipped ones by name; raises ScenarioError."""
    path = Path(name_or_path)
    if path.is_file():
        return parse(path.read_text(), path.stem)
    folder = resources.files("headrace.sim").joinpath("scenarios")
    if name_or_path in shipped():
        return parse(folder.joinpath(f"{name_or_path}.yaml").read_text(), name_or_path)
    raise ScenarioError(f"no file and no scenario {name_or_path!r}; have {', '.join(shipped())}")
