"""docs/configuration.md, made from the settings."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from headrace.config import keys
from headrace.config.schema import Config, ReplicaConfig

HEAD = """\
# Configuration

Made from the source by `python -m headrace.config`; do not edit.

Settings come from the file of `--config FILE` (YAML or JSON) or `HEADRACE_CONFIG`, then from the
environment, then from flags; later wins. `headrace check --config FILE` validates a file and prints
the effective settings. Durations are seconds and sizes bytes, unless a flag says otherwise.

Every key can be set by `HEADRACE_<SECTION>__<KEY>` (two underscores; sections in sections likewise:
`HEADRACE_DISCOVERY__KUBERNETES__ENABLED`), with a YAML value; replicas by `HEADRACE_REPLICAS`, a
list of URLs. Other variables are not read. An empty variable counts as absent.

A key that does not exist is an error that names the nearest one that does. `SIGHUP` and
`POST /reload` read the same sources again; a configuration with an error changes nothing.

```yaml
replicas:
  - http://gpu1:8000
  - {url: "http://gpu2:8000", weight: 2}
routing: {policy: cost_aware}
admission: {max_concurrency: 128}
```
"""


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_sections(Config, "")]).rstrip() + "\n"


def _sections(struct: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    plain = [f for f in keys.fields(struct).items() if not keys.is_section(f[1][0])]
    if plain and prefix:
        yield f"## {prefix.rstrip('.')}\n"
        yield f"{inspect.getdoc(struct)}\n"
    elif plain:
        yield "## replicas\n"
    if plain:
        yield from _table(struct, prefix)
    if not prefix:
        yield "Keys of an entry of `replicas`:\n"
        yield from _table(ReplicaConfig, "", flags=False)
    for name, (annotation, _) in plain if prefix else ():
        entry = keys.list_entry(annotation)
        if entry is not None:
            yield f"Keys of an entry of `{prefix}{name}`:\n"
            yield from _table(entry, "", flags=False)
    for name, (annotation, _) in keys.fields(struct).items():
        if keys.is_section(annotation):
            yield from _sections(keys.bare(annotation), f"{prefix}{name}.")


def _table(struct: type[msgspec.Struct], prefix: str, *, flags: bool = True) -> Iterator[str]:
    yield "| key | flag | type | default | |" if flags else "| key | type | default | |"
    yield "|---|---|---|---|---|" if flags else "|---|---|---|---|"
    for name, (annotation, default) in keys.fields(struct).items():
        traits = keys.traits_of(annotation)
        if traits is None:
            continue
        flag = " ".join(f"`{word}`" for word in (traits.flag, *traits.flag_aliases) if word) or "–"
        shown = "required" if name in keys.required(struct) else _default(default)
        text = traits.text
        if traits.value_aliases:
            text += " Aliases: " + ", ".join(f"`{word}`" for word in traits.value_aliases) + "."
        cells = [
            f"`{prefix}{name}`",
            flag,
            _kind(keys.bare(annotation)) + _bounds(traits),
            shown,
            text,
        ]
        yield "| " + " | ".join(cells if flags else [cells[0], *cells[2:]]) + " |"
    yield ""


def _default(value: Any) -> str:
    if value in (None, (), {}):
        return "–"
    if isinstance(value, tuple):
        return " ".join(f"`{item}`" for item in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value).strip(chr(34))}`"


def _kind(kind: Any) -> str:
    origin, options = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        return " or ".join(_kind(option) for option in options if option is not type(None))
    if origin is Literal:
        return " ".join(f"`{word}`" for word in options)
    if origin is tuple:
        return "list" if keys.is_section(options[0]) else f"list of {_kind(options[0])}"
    if origin is dict:
        return "mapping"
    return {str: "text", int: "integer", float: "number", bool: "boolean"}[kind]


def _bounds(traits: keys.Traits) -> str:
    ge, gt, le, _ = traits.bounds
    words = [
        f"≥ {ge:g}" if ge is not None else "",
        f"> {gt:g}" if gt is not None else "",
        f"≤ {le:g}" if le is not None else "",
    ]
    return "".join(f", {word}" for word in words if word)
