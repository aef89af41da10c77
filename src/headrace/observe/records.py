"""Access records: what a process sends up for every finished request (csrc/record.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from headrace.core.lease import REASONS
from headrace.core.logline import LogLines
from headrace.core.segment import OUTCOME_NAMES
from headrace.endpoints import ENDPOINTS


def named(names: tuple[str, ...], index: int) -> str:
    """A name by its number; `other` for numbers that mean nothing here."""
    return names[index] if 0 <= index < len(names) else "other"


def log_lines(models: Mapping[int, str], replicas: Mapping[int, str], policy: str) -> LogLines:
    """What makes lines of records; `models` and `replicas` name model ids and slots."""
    return LogLines(
        _value(policy),
        endpoints=_values(ENDPOINTS),
        outcomes=_values(OUTCOME_NAMES),
        reasons=_values(REASONS),
        models=_values(_by_number(models, "other")),
        replicas=_values(_by_number(replicas, None)),
    )


def last_lines(lines: bytes, count: int) -> list[bytes]:
    """The last ones of some whole lines, at most `count`."""
    return lines.rsplit(b"\n", count + 1)[-count - 1 : -1]


def _by_number(names: Mapping[int, str], other: str | None) -> list[str | None]:
    return [names.get(number, other) for number in range(max(names, default=-1) + 1)]


def _values(names: Sequence[str | None]) -> list[bytes]:
    return [_value(name) for name in names]


def _value(name: str | None) -> bytes:
    """A name as JSON; half a surrogate pair, which UTF-8 cannot hold, becomes a question mark."""
    return orjson.dumps(name and name.encode(errors="replace").decode())
