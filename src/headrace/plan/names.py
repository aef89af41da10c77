"""How the planner finds a thing by a name that people write in many ways."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headrace.errors import HeadraceError

T = TypeVar("T")

# What hub pages add to the name of a model without changing its shape.
_TUNING = re.compile(r"(instruct|chat|it|hf|base|v0\.[1-9])$")


class PlanError(HeadraceError):
    """The question cannot be answered as it was put; the message says which word to change."""

    status = 400
    code = "invalid_plan"


def plain(name: str) -> str:
    """The name without organisation, case and punctuation: `Meta-Llama/Llama-3-8B` → `llama38b`."""
    return re.sub(r"[^a-z0-9]", "", name.rsplit("/", 1)[-1].lower())


def untuned(name: str) -> str:
    """The plain name without the words of a fine-tune: `Meta-Llama-3-8B-Instruct` → `llama38b`."""
    words = name.rsplit("/", 1)[-1].lower()
    words = words.removeprefix("meta-")
    while (shorter := _TUNING.sub("", words).rstrip("-_ ")) != words:
        words = shorter
    return plain(words)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first; empty when nothing is like it."""
    by_plain = {plain(k): k for k in known}
    return [by_plain[k] for k in difflib.get_close_matches(plain(name), by_plain, count, 0.4)]


def lookup(name: str, table: Mapping[str, T], what: str) -> T:
    """The row called `name`, whatever its case and punctuation.

    Raises PlanError with the nearest names when there is none.
    """
    by_plain = {plain(k): v for k, v in table.items()}
    found = by_plain.get(plain(name))
    if found is None:
        near = nearest(name, table)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; known: {', '.join(table)}"
        raise PlanError(f"unknown {what} {name!r}{hint}", param=what)
    return found
