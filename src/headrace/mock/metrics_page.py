"""The `/metrics` page of one replica: names, labels and HELP of vLLM 0.32, from a table.

The page is a template that is filled in at each scrape, because a fleet of mocks is scraped every
second and building 500 labelled samples in Python takes some milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

from prometheus_client import utils

from headrace.mock.histogram import Histogram

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
Family = dict[str, Any]
shown = cast(Callable[[float], str], utils.floatToGoString)


@cache
def families() -> list[Family]:
    """The families of a vLLM page, in page order, without the `_created` companions."""
    table: list[Family] = json.loads(Path(__file__).with_name("metrics_families.json").read_text())
    return table


def new_histograms() -> dict[str, Histogram]:
    """One empty histogram for each histogram family, by name without the `vllm:` prefix."""
    return {
        family["name"].removeprefix("vllm:"): Histogram(family["buckets"])
        for family in families()
        if family["type"] == "histogram"
    }


class MetricsPage:
    """Renders the page of one replica.

    model: value of the `model_name` label. started_s: start of the process, Unix seconds.
    cache_config: labels of `vllm:cache_config_info` that differ from the defaults.
    """

    def __init__(self, model: str, started_s: float, cache_config: dict[str, str]) -> None:
        self._labels = {"engine": "0", "model_name": model}
        self._started_s = started_s
        self._cache_config = cache_config
        self._lines: list[str] = []
        self._slots: list[str] = []  # what fills the template's places, in order
        for family in families():
            self._add_family(family)
        self._template = "".join(self._lines)

    def render(self, values: dict[str, float], histograms: dict[str, Histogram]) -> bytes:
        """The page. `values` by family name without `vllm:`, with `/label value` where the family
        has a label of its own; what is missing is 0."""
        filled = dict(values)
        for name, histogram in histograms.items():
            counts = histogram.cumulative()
            for i, count in enumerate(counts):
                filled[f"{name}#{i}"] = count
            filled[f"{name}#count"] = counts[-1]
            filled[f"{name}#sum"] = histogram.total
        get = filled.get
        return (self._template % tuple([shown(get(slot, 0)) for slot in self._slots])).encode()

    def _add_family(self, family: Family) -> None:
        name, kind = family["name"], family["type"]
        self._describe(name, family["help"], kind)
        labels = {} if family["name"][:5] != "vllm:" else dict(self._labels)
        if family.get("engine") is False:
            del labels["engine"]
        if "fixed" in family:
            fixed = {**family["fixed"], **self._cache_config} if labels else family["fixed"]
            labels.pop("model_name", None)
            self._lines.append(f"{name}{_braces({**fixed, **labels})} 1.0\n")
            return
        key = name.removeprefix("vllm:")
        label = family.get("label")
        variants = [(f"{key}/{v}", {**labels, label: v}) for v in family.get("values", ())]
        variants = variants or [(key, labels)]
        for slot, own in variants:
            if kind == "histogram":
                self._add_histogram(name, slot, own, family["buckets"])
            else:
                self._add_value(name, own, slot)
        if kind in ("counter", "histogram") and name.startswith("vllm:"):
            self._add_created(name, kind, family["help"], [own for _, own in variants])

    def _describe(self, name: str, text: str, kind: str) -> None:
        safe = text.replace("%", "%%")
        self._lines.append(f"# HELP {name} {safe}\n# TYPE {name} {kind}\n")

    def _add_value(self, name: str, labels: dict[str, str], slot: str) -> None:
        self._lines.append(f"{name}{_braces(labels)} %s\n")
        self._slots.append(slot)

    def _add_histogram(
        self, name: str, slot: str, labels: dict[str, str], bounds: list[float]
    ) -> None:
        for i, bound in enumerate([*map(shown, bounds), "+Inf"]):
            self._add_value(f"{name}_bucket", {**labels, "le": bound}, f"{slot}#{i}")
        self._add_value(f"{name}_count", labels, f"{slot}#count")
        self._add_value(f"{name}_sum", labels, f"{slot}#sum")

    def _add_created(self, name: str, kind: str, text: str, variants: list[dict[str, str]]) -> None:
        base = name.removesuffix("_total") if kind == "counter" else name
        self._describe(f"{base}_created", text, "gauge")
        created = shown(self._started_s + 33.0)  # families appear once weights are loaded
        self._lines += [f"{base}_created{_braces(own)} {created}\n" for own in variants]


def _braces(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escape(labels[name])}"' for name in sorted(labels))
    return "{" + inside + "}"


def _escape(value: str) -> str:
    plain = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return plain.replace("%", "%%")
