"""The planner's data files: CSV beside the code, one row an item, read into typed rows."""

from __future__ import annotations

import csv
from importlib import resources
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_table(name: str, row_type: type[T]) -> list[T]:
    """The rows of a packaged CSV file; an empty cell takes the default of its field."""
    text = resources.files("headrace.plan").joinpath(name).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    filled = ({key: value for key, value in row.items() if value} for row in rows)
    return [msgspec.convert(row, row_type, strict=False) for row in filled]
