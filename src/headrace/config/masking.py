"""The configuration as it may be shown: plain data, secrets masked."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.config import keys
from headrace.config.reader import MASK
from headrace.config.schema import Config


def masked(config: Config) -> dict[str, Any]:
    """The effective configuration as plain data; what is secret stands as `***`."""
    return _section(config)


def _section(section: msgspec.Struct) -> dict[str, Any]:
    return {
        name: _value(annotation, getattr(section, name))
        for name, (annotation, _) in keys.fields(type(section)).items()
    }


def _value(annotation: Any, value: Any) -> Any:
    traits = keys.traits_of(annotation)
    if traits is not None and traits.secret:
        return [MASK] * len(value) if isinstance(value, tuple) else value and MASK
    if isinstance(value, msgspec.Struct):
        return _section(value)
    if isinstance(value, tuple):
        return [_value(None, item) for item in value]
    return value
