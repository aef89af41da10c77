"""Who the replicas are: slots, model ids, learning groups and pairs, and the snapshot made of them.

Only control holds a registry. It hands out the numbers under which the segment keeps rows and
cells; processes learn them from the snapshot. A slot is given to another replica only when no
request of the old one is in flight, and with a new generation.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from headrace.config import Config, ReplicaConfig
from headrace.control.discovery.slices import POD_LABELS
from headrace.control.gpu_judge import GpuJudge
from headrace.control.health import ReplicaHealth
from headrace.control.readings import EngineReading
from headrace.core.segment import MAX_GROUPS, MAX_MODELS, MAX_PAIRS, MAX_SLOTS, Segment
from headrace.errors import ConfigError
from headrace.snapshot import ModelInfo, ReplicaInfo, Snapshot

OTHER = 0  # model and pair that take what no longer fits


class Gpu(NamedTuple):
    """What one GPU of a replica says; None: unknown."""

    name: str  # index or UUID, the `gpu` label
    util: float | None = None  # 0 to 1
    dram_active: float | None = None  # 0 to 1
    temp_celsius: float | None = None
    xid: int | None = None
    ecc_dbe: int | None = None
    nvlink_bytes_per_s: float | None = None


class Member:
    """A replica as control knows it: its settings, its models, its health and its figures."""

    def __init__(
        self, config: ReplicaConfig, slot: int, generation: int, health: ReplicaHealth
    ) -> None:
        self.config = config
        self.slot = slot
        self.generation = generation
        self.first_generation = generation  # tells members of one slot apart
        self.id: str = config.id
        self.url: str = config.url
        self.cards: dict[str, dict[str, Any]] = configured_cards(config)
        self.health = health
        self.state: str = health.state.value
        self.reason = health.reason
        self.since = time.time()
        self.is_wanted = True  # False: it drains, then it is forgotten
        self.published_models: set[str] = set()
        self.published_in = 0  # the snapshot with its present models
        self.seen_by_all = False
        self.engine = EngineReading()
        self.gpus: list[Gpu] = []
        self.gpu_judge = GpuJudge()
        self.pod = pod_of(config)  # (namespace, name), from discovery
        self.probe_kind = ""  # how its model is asked; empty: not known yet
        self.kv_events: dict[str, Any] | None = None  # counts; None: nobody listens
        self.is_followed = False  # its engine tells what enters its cache

    def take_config(self, config: ReplicaConfig) -> None:
        """Take new settings for the same URL; models named there replace what it lists."""
        if config.models != self.config.models:
            self.cards = configured_cards(config)
            self.probe_kind = ""
        self.config = config
        self.pod = pod_of(config)

    @property
    def takes_traffic(self) -> bool:
        """Whether new requests may go there."""
        return self.state in ("ready", "degraded")


def pod_of(config: ReplicaConfig) -> tuple[str, str] | None:
    """The pod that discovery found behind a replica."""
    namespace, name = (config.labels.get(label) for label in POD_LABELS)
    return (namespace, name) if namespace and name else None


def configured_cards(config: ReplicaConfig) -> dict[str, dict[str, Any]]:
    """The models that the configuration gives a replica, as cards."""
    return {name: model_card(name) for name in config.models or ()}


def model_card(name: str) -> dict[str, Any]:
    """An entry of /v1/models for a model that the configuration names."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "headrace"}


def group_name(card: dict[str, Any], cards: dict[str, dict[str, Any]]) -> str:
    """The base model a served name learns with: adapters follow `parent`, aliases share `root`."""
    parent = card.get("parent")
    if isinstance(parent, str) and parent:
        card = cards.get(parent, {"id": parent})
    root = card.get("root")
    return root if isinstance(root, str) and root else str(card["id"])


class _Numbers:
    """Hands out 1 … limit-1 by name, for ever; beyond the limit everything is OTHER."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.by_name: dict[Any, int] = {}

    def of(self, name: Any) -> int:
        number = self.by_name.get(name)
        if number is None:
            number = len(self.by_name) + 1
            if number >= self.limit:
                return OTHER
            self.by_name[name] = number
        return number


class Registry:
    """Members by id, and the numbers of everything."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.members: dict[str, Member] = {}
        self.model_ids = _Numbers(MAX_MODELS)
        self.groups = _Numbers(MAX_GROUPS)
        self.pairs = _Numbers(MAX_PAIRS)
        self._leaving: dict[int, int] = {}  # slot -> generation, until its last request ends
        self._cut: dict[int, int] = {}  # of these, those whose requests are to end at once
        self._free = list(range(MAX_SLOTS - 1, -1, -1))
        self._generations = [0] * MAX_SLOTS

    def add(self, config: ReplicaConfig, health: ReplicaHealth) -> Member:
        """A new member for a new URL; raises ConfigError when all slots are taken."""
        self.reclaim()
        if not self._free:
            raise ConfigError(f"replicas: at most {MAX_SLOTS}")
        slot = self._free.pop()
        self._generations[slot] += 1
        member = Member(config, slot, self._generations[slot], health)
        self.members[member.id] = member
        return member

    def remove(self, member: Member, *, cut: bool = False) -> None:
        """Forget a member; its slot is free again when nothing is in flight there.

        With `cut` its requests end as soon as the processes see the next snapshot.
        """
        self.members.pop(member.id, None)
        self.segment.clear_row(member.slot)
        self._leaving[member.slot] = member.generation
        if cut:
            self._cut[member.slot] = member.generation

    def reclaim(self) -> None:
        """Give back the slots of removed members that have no request in flight any more."""
        for slot in [s for s in self._leaving if self.segment.requests(s) == 0]:
            del self._leaving[slot]
            self._cut.pop(slot, None)
            self._free.insert(0, slot)

    def restarted(self, member: Member) -> None:
        """The replica lost its memory (cache, counters): a new generation in the same slot."""
        self._generations[member.slot] += 1
        member.generation = self._generations[member.slot]
        member.is_followed = False

    def pair(self, member: Member, model: str) -> int:
        """The pair number of a replica and a model: kept for ever, so that its series never mix."""
        return self.pairs.of((member.id, model))

    def known_models(self, config: Config) -> dict[str, list[Member]]:
        """Every model any member serves or served last, with these members; and those on demand."""
        found: dict[str, list[Member]] = {name: [] for name in config.autoscale.on_demand}
        for member in self.members.values():
            for name in member.cards:
                found.setdefault(name, []).append(member)
        return found

    def snapshot(self, config: Config) -> Snapshot:
        """The document for the processes."""
        models = []
        for name, members in self.known_models(config).items():
            cards = members[0].cards if members else {name: model_card(name)}
            models.append(
                ModelInfo(
                    id=self.model_ids.of(name),
                    name=name,
                    group=self.groups.of(group_name(cards[name], cards)),
                    slots=[m.slot for m in members],
                    pairs=[self.pair(m, name) for m in members],
                    card=cards[name],
                )
            )
        replicas = [
            ReplicaInfo(m.slot, m.generation, m.id, m.url, m.config.api_key)
            for m in self.members.values()
        ]
        return Snapshot(replicas, models, config, list(self._cut.items()))
