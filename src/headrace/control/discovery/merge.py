"""The merged list of wanted replicas.

A source always gives its whole list; one that fails gives nothing, and so keeps its last good one.
A URL that several sources name is one replica, with the settings of the first source in the order
of PRECEDENCE: what somebody said by hand beats what was written down, and that what was found.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.config import ReplicaConfig

CONFIG, ADMIN, FILE, DNS, KUBERNETES = "config", "admin", "file", "dns", "kubernetes"
PRECEDENCE = (ADMIN, CONFIG, FILE, DNS, KUBERNETES)


class Wanted:
    """The last list of every source, and what an operator has taken out by hand."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[str, ReplicaConfig]] = {}
        self._struck: set[str] = set()

    def set_list(self, source: str, replicas: Iterable[ReplicaConfig]) -> None:
        """Replace the list of a source. What it names anew is no longer struck out."""
        new = {replica.id: replica for replica in replicas}
        before = self._lists.get(source, {})
        self._struck -= new.keys() - before.keys()
        self._lists[source] = new

    def add(self, replica: ReplicaConfig) -> None:
        """Add one by hand."""
        self._struck.discard(replica.id)
        self._lists.setdefault(ADMIN, {})[replica.id] = replica

    def strike(self, replica_id: str) -> None:
        """Take one out by hand: it stays out although a source still lists it."""
        self._lists.get(ADMIN, {}).pop(replica_id, None)
        self._struck.add(replica_id)

    def start_over(self, replicas: Iterable[ReplicaConfig]) -> None:
        """Take the list of a configuration that was read again; where it speaks, it decides.

        What was taken out by hand is forgotten, and so are settings given by hand for its URLs.
        """
        self._struck.clear()
        self.set_list(CONFIG, replicas)
        by_hand = self._lists.get(ADMIN, {})
        for replica_id in by_hand.keys() & self._lists[CONFIG].keys():
            del by_hand[replica_id]

    def sources_of(self, replica_id: str) -> list[str]:
        """The sources that list a replica."""
        return [source for source in self._ordered() if replica_id in self._lists[source]]

    def counts(self) -> dict[str, int]:
        """How many replicas each source lists; one that has not answered yet is missing.

        What is written down by hand is there only where something is.
        """
        return {
            source: len(self._lists[source])
            for source in self._ordered()
            if self._lists[source] or source not in (CONFIG, ADMIN)
        }

    def merged(self) -> dict[str, ReplicaConfig]:
        """Return every wanted replica by id."""
        merged: dict[str, ReplicaConfig] = {}
        for source in self._ordered():
            for replica_id, replica in self._lists[source].items():
                if replica_id not in self._struck:
                    merged.setdefault(replica_id, replica)
        return merged

    def _ordered(self) -> list[str]:
        """Sources by precedence; variants of one, such as `dns:NAME`, by their name."""
        return sorted(self._lists, key=lambda s: (PRECEDENCE.index(s.partition(":")[0]), s))
