"""What can only be judged by looking at all replicas: how many may be out, and who is frozen.

Passive evidence is relative. If most replicas fail the requests they get, the fault is likely the
requests' or ours, so live failures never take out more than `max_ejected_ratio` of those that
serve the same models. Silence is relative too: a replica without a byte for its requests is frozen
only while others make progress, and not while a long prompt explains it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from headrace.control.health import NS, ReplicaHealth
from headrace.control.states import IN_ROTATION, Cause, HealthSettings, Mode, Traffic

FROZEN_AFTER_S = 5.0
PREFILL_PATIENCE = 3.0  # times the expected prefill that may pass in silence


class FleetHealth:
    """The machines of all replicas by id."""

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._replicas: dict[str, ReplicaHealth] = {}
        self._models: dict[str, frozenset[str]] = {}

    def __getitem__(self, replica: str) -> ReplicaHealth:
        return self._replicas[replica]

    def __contains__(self, replica: str) -> bool:
        return replica in self._replicas

    def __iter__(self) -> Iterator[str]:
        return iter(self._replicas)

    def add(self, replica: str, now_ns: int, is_new: bool = False) -> ReplicaHealth:
        """Add a replica, or one anew under the id of a former one."""
        self._replicas[replica] = ReplicaHealth(self._settings, now_ns, is_new)
        return self._replicas[replica]

    def remove(self, replica: str) -> None:
        """Forget a replica."""
        self._replicas.pop(replica, None)
        self._models.pop(replica, None)

    def configure(self, settings: HealthSettings, now_ns: int) -> None:
        """Take new settings for all replicas."""
        self._settings = settings
        for replica in self._replicas.values():
            replica.configure(settings, now_ns)

    def set_models(self, replica: str, models: Iterable[str]) -> None:
        """Say what a replica serves: the limit on ejections holds for each model by itself."""
        self._models[replica] = frozenset(models)

    def take_traffic(self, seen: Mapping[str, Traffic], now_ns: int) -> None:
        """Take what the processes saw of each replica since the last call."""
        room: dict[str, int] | None = None  # how many more may be out, by model; made if needed
        for name, traffic in seen.items():
            replica = self._replicas.get(name)
            if replica is None:
                continue
            may_eject = True
            if traffic.failed or traffic.leaving:
                room = self._room() if room is None else room
                may_eject = all(room[model] > 0 for model in self._models_of(name))
            was_out = is_out(replica)
            replica.take_traffic(traffic, now_ns, may_eject)
            if is_out(replica) != was_out:
                room = None
        self._find_frozen(seen, now_ns)

    def _models_of(self, name: str) -> Iterable[str]:
        return self._models.get(name) or ("",)

    def _room(self) -> dict[str, int]:
        sizes: Counter[str] = Counter()
        outs: Counter[str] = Counter()
        for name, replica in self._replicas.items():
            sizes.update(self._models_of(name))
            if is_out(replica):
                outs.update(self._models_of(name))
        ratio = self._settings.max_ejected_ratio
        return {model: int(ratio * size + 1e-9) - outs[model] for model, size in sizes.items()}

    def _find_frozen(self, seen: Mapping[str, Traffic], now_ns: int) -> None:
        latest = max((traffic.progress_ns for traffic in seen.values()), default=0)
        if now_ns - latest > FROZEN_AFTER_S / 2 * NS:
            return  # nobody makes progress: that says nothing about one of them
        for name, traffic in seen.items():
            replica = self._replicas.get(name)
            if replica is None or replica.mode not in IN_ROTATION or traffic.in_flight == 0:
                continue
            quiet_ns = now_ns - max(traffic.progress_ns, traffic.busy_since_ns)
            if quiet_ns > (FROZEN_AFTER_S + PREFILL_PATIENCE * traffic.pending_s) * NS:
                replica.suspect(f"no progress for {quiet_ns / NS:.0f} s while others advance")


def is_out(replica: ReplicaHealth) -> bool:
    """Return True if the replica is ejected, by whatever evidence, or about to shut down."""
    return replica.mode is Mode.EJECTED or replica.cause is Cause.LEAVING
