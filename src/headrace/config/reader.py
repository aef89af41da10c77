"""Plain data (from YAML, JSON, flags) to typed settings; no mistake hides another."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from headrace.config import keys
from headrace.config.schema import Config, ReplicaConfig

S = TypeVar("S", bound=msgspec.Struct)

# Seconds up to it fit a signed 64-bit count of nanoseconds, whole numbers up to it fit a double.
MAX_FLOAT = 1e9
MAX_INT = 1 << 53
SHOWN_CHARACTERS = 200
MASK = "***"
_USERINFO = re.compile(r"//[^/@]*@")


class Problems:
    """The mistakes found so far, with the place (flag, environment) that each value came from."""

    def __init__(self, origins: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._origins = {} if origins is None else origins

    def add(self, path: str, value: object, reason: str, *, secret: bool = False) -> None:
        """Note a bad value: key, value, reason."""
        self.lines.append(f"{self._place(path)}: {MASK if secret else show(value)}: {reason}")

    def unknown(self, path: str, known: Iterable[str]) -> None:
        """Note a key that does not exist, with the nearest one that does."""
        self.lines.append(f"{self._place(path)}: unknown key; {nearest_key(path, known)}")

    def note(self, path: str, reason: str) -> None:
        """Note something that is wrong with a key whatever its value."""
        self.lines.append(f"{self._place(path)}: {reason}")

    def _place(self, path: str) -> str:
        origin = self._origins.get(path)
        return f"{path} ({origin})" if origin else path


def show(value: object) -> str:
    """A value in an error line: on one line, cut, without the password of a URL."""
    text = _USERINFO.sub(f"//{MASK}@", repr(value))
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def read_section(kind: type[S], tree: object, path: str, problems: Problems) -> S:
    """A section from a mapping; keys that are missing or bad get their defaults."""
    prefix = f"{path}." if path else ""
    if tree is None:
        tree = {}
    if not isinstance(tree, Mapping):
        problems.add(path or "the file", tree, "must be a mapping of keys")
        tree = {}
    known = keys.fields(kind)
    for name in tree:
        if name not in known:
            problems.unknown(f"{prefix}{name}", (f"{prefix}{key}" for key in known))
    values = {}
    for name, (annotation, _) in known.items():
        if keys.is_section(annotation):
            values[name] = read_section(
                keys.bare(annotation), tree.get(name), prefix + name, problems
            )
        elif name in tree:
            read = read_value(annotation, tree[name], prefix + name, problems)
            if read is not msgspec.UNSET:
                values[name] = read
    return _build(kind, values, tree, path, problems)


def _build(
    kind: type[S], values: dict[str, Any], tree: Mapping[str, Any], path: str, problems: Problems
) -> S:
    for name in keys.required(kind) - values.keys():
        if name not in tree:
            problems.note(f"{path}.{name}", "is required")
        values[name] = ""  # keeps the rest readable; the problem makes the whole unusable
    return kind(**values)


def read_value(annotation: Any, value: object, path: str, problems: Problems) -> Any:
    """One setting from plain data; UNSET where it cannot be used."""
    traits = keys.traits_of(annotation)
    kind = keys.bare(annotation)
    entry = keys.list_entry(kind)
    if entry is not None:
        return _read_list(entry, value, path, problems)
    if traits and isinstance(value, str):
        value = traits.value_aliases.get(value, value)
    if _is_text_list(kind) and isinstance(value, str):
        value = [value]
    reason = _refused(value) or _text_refused(value, empty_allowed=get_origin(kind) is dict)
    if reason is None:
        try:
            read = msgspec.convert(value, kind)
            reason = traits.bounds.refused(read) if traits else None
            if reason is None:
                return read
        except msgspec.ValidationError as error:
            reason = _reason(kind, value, error)
    problems.add(path, value, reason, secret=bool(traits and traits.secret))
    return msgspec.UNSET


def _read_list(entry: type[msgspec.Struct], value: object, path: str, problems: Problems) -> Any:
    if isinstance(value, str | Mapping):
        value = [value]
    if not isinstance(value, Sequence):
        problems.add(path, value, "must be a list")
        return msgspec.UNSET
    lines = len(problems.lines)
    read = []
    for index, item in enumerate(value):
        tree = {"url": item} if entry is ReplicaConfig and isinstance(item, str) else item
        read.append(read_section(entry, tree, f"{path}[{index}]", problems))
    return tuple(read) if len(problems.lines) == lines else msgspec.UNSET


def _is_text_list(kind: Any) -> bool:
    return any(
        get_origin(option) is tuple and str in (get_args(option)[0], *get_args(get_args(option)[0]))
        for option in (kind, *get_args(kind))
    )


def _refused(value: object) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, float) and abs(value) > MAX_FLOAT:
        return f"must be at most {MAX_FLOAT:g}"
    if isinstance(value, int) and abs(value) > MAX_INT:
        return f"must be at most {MAX_INT}"
    return None


def _text_refused(value: object, *, empty_allowed: bool) -> str | None:
    if isinstance(value, str):
        if not value.isprintable():
            return "control characters are not allowed"
        return None if value or empty_allowed else "must not be empty"
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = (*value.keys(), *value.values())
    elif isinstance(value, Sequence):
        parts = value
    found = (_text_refused(part, empty_allowed=empty_allowed) for part in parts)
    return next((reason for reason in found if reason), None)


def _reason(kind: Any, value: object, error: msgspec.ValidationError) -> str:
    words = [word for word in _literals(kind) if isinstance(word, str)]
    if words and isinstance(value, str):
        near = difflib.get_close_matches(value, words, n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        return f"must be one of {', '.join(words)}{hint}"
    text = str(error).split(" - at `")[0].replace("`", "")
    return text[:1].lower() + text[1:]


def _literals(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for option in get_args(kind) for word in _literals(option))


def nearest_key(path: str, known: Iterable[str]) -> str:
    """`nearest: KEY` for an unknown key: in its own section, then by name in any, then by path."""
    known = list(known)
    name = path.rpartition(".")[2]
    by_name = {key.rpartition(".")[2]: key for key in known}
    everywhere = [key.path for key in keys.walk(Config)]
    close = difflib.get_close_matches(name, by_name, n=1)
    if close:
        return f"nearest: {by_name[close[0]]}"
    same = [key for key in everywhere if key.rpartition(".")[2] == name]
    close = same[:1] or difflib.get_close_matches(path, everywhere, n=1, cutoff=0.7)
    if close:
        return f"nearest: {close[0]}"
    return f"known here: {', '.join(by_name)}"
