"""How the metrics page is written: families, labels, the two text formats.

The samples come as text from the cells (headrace.core.pagetext); prometheus_client chooses the
format, and its own writer is the oracle of the tests.
"""

from __future__ import annotations

from functools import lru_cache

from prometheus_client.exposition import choose_encoder

from headrace.core.pagetext import Family
from headrace.observe.table import BY_NAME, METRICS, PREFIX


def escaped(value: str) -> str:
    """A label value as it stands between its quotes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@lru_cache(maxsize=1 << 15)
def label_text(names: tuple[str, ...], values: tuple[str, ...]) -> bytes:
    """What stands between the braces of a sample."""
    pairs = zip(names, values, strict=True)
    return ",".join(f'{name}="{escaped(value)}"' for name, value in pairs).encode(errors="replace")


class Families:
    """The families of one page, made on first use."""

    def __init__(self) -> None:
        self._made: dict[str, Family] = {}

    def __getitem__(self, name: str) -> Family:
        family = self._made.get(name)
        if family is None:
            suffix = "_total" if BY_NAME[name].kind == "counter" else ""
            family = self._made[name] = Family(PREFIX + name + suffix)
        return family

    def add(self, name: str, values: tuple[str, ...], value: float | None) -> None:
        """A sample under the labels of the table; none for an unknown value."""
        self[name].add(label_text(BY_NAME[name].labels, values), value)

    def page(self, accept: str) -> tuple[bytes, str]:
        """The page, families in the order of the table, and its content type by Accept."""
        _, content_type = choose_encoder(accept)
        is_open = "openmetrics" in content_type
        parts = []
        for metric in METRICS:
            family = self._made.get(metric.name)
            if family is not None:
                name = PREFIX + metric.name
                if metric.kind == "counter" and not is_open:
                    name += "_total"
                head = f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
                parts += [head.encode(), family.text()]
        if is_open:
            parts.append(b"# EOF\n")
        return b"".join(parts), content_type
