"""What control publishes to the processes: one immutable document, whole or not at all.

Numbers that change by the second (state, weight, load) are in the rows of the segment; this holds
what is no number: who the replicas are, which models they serve, the configuration in force.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.config import Config


class ReplicaInfo(msgspec.Struct, frozen=True):
    """A replica to connect to: `slot` is its row and cell, `id` stands in headers and labels."""

    slot: int
    generation: int
    id: str
    url: str
    api_key: str | None = None


class ModelInfo(msgspec.Struct, frozen=True):
    """A served model: its id in the segment, its learning group, and where it lives.

    `slots[i]` serves it under pair `pairs[i]`; `card` is the entry of /v1/models, as a replica
    gave it.
    """

    id: int
    name: str
    group: int
    slots: list[int]
    pairs: list[int]
    card: dict[str, Any]


class Snapshot(msgspec.Struct, frozen=True):
    """Everything at one moment; `config.routing.model_aliases` and the keys are in `config`.

    A replica that is no longer listed gets no new request, and those in flight run to their end;
    `cut` names the (slot, generation) of removed ones whose requests are to end at once.
    """

    replicas: list[ReplicaInfo]
    models: list[ModelInfo]
    config: Config
    cut: list[tuple[int, int]] = []


def encode(snapshot: Snapshot) -> bytes:
    """The blob of a snapshot."""
    return msgspec.msgpack.encode(snapshot)


def decode(blob: bytes) -> Snapshot:
    """The snapshot of a blob; raises msgspec.DecodeError for anything else."""
    return msgspec.msgpack.decode(blob, type=Snapshot)
