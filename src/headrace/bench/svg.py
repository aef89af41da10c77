"""Line plots as SVG text: axes with ticks, one polyline a series, a legend. Nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 14, 46
COLOURS = ("#1f6feb", "#d1480a", "#1a7f37", "#8250df", "#9a6700", "#57606a")
MAX_POINTS = 600


@dataclass(frozen=True)
class Axis:
    """A labelled axis. `ticks` are (value, text); None: round steps of the range."""

    label: str
    log: bool = False
    ticks: Sequence[tuple[float, str]] | None = None


def plot(series: Mapping[str, Points], x: Axis, y: Axis, *, marks: bool = False) -> str:
    """One plot of named series; a note in its place if there is nothing to draw.

    Points whose value cannot stand on a logarithmic axis are left out.
    """
    shown = {name: _visible(points, x, y) for name, points in series.items()}
    shown = {name: _thin(points) for name, points in shown.items() if points}
    if not shown:
        return '<p class="empty">no data</p>'
    to_x = _scale([p[0] for points in shown.values() for p in points], x, LEFT, WIDTH - RIGHT)
    to_y = _scale([p[1] for points in shown.values() for p in points], y, HEIGHT - BOTTOM, TOP)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts += _x_axis(x, to_x)
    parts += _y_axis(y, to_y)
    for index, (name, points) in enumerate(shown.items()):
        parts += _line(name, points, to_x, to_y, index, marks=marks)
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class _Scale:
    """Maps values to pixels and knows its ticks."""

    position: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]

    def __call__(self, value: float) -> float:
        return self.position(value)


def _scale(values: Sequence[float], axis: Axis, start: float, end: float) -> _Scale:
    low, high = min(values), max(values)
    if axis.log:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high * 1.0001))
        ticks = axis.ticks or _decades(low, high)
        span = math.log10(high / low)
        return _Scale(lambda v: start + (end - start) * math.log10(v / low) / span, ticks)
    low = min(low, 0.0)
    ticks = axis.ticks or _steps(low, high)
    high = max(high, ticks[-1][0])
    span = (high - low) or 1.0
    return _Scale(lambda v: start + (end - start) * (v - low) / span, ticks)


def _decades(low: float, high: float) -> list[tuple[float, str]]:
    exponents = range(round(math.log10(low)), round(math.log10(high)) + 1)
    return [(10.0**e, f"{10.0**e:g}") for e in exponents]


def _steps(low: float, high: float) -> list[tuple[float, str]]:
    """About five round steps (1, 2 or 5 × a power of ten) that cover the range."""
    rough = (high - low) / 5 or 1.0
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    number = math.ceil((high - low) / step * 0.999)
    return [(low + i * step, f"{low + i * step:g}") for i in range(number + 1)]


def _visible(points: Points, x: Axis, y: Axis) -> list[tuple[float, float]]:
    return [
        p
        for p in points
        if all(map(math.isfinite, p)) and (p[0] > 0 or not x.log) and (p[1] > 0 or not y.log)
    ]


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A long series by its extremes: of each run of points the lowest and the highest stay."""
    if len(points) <= MAX_POINTS:
        return points
    size = math.ceil(2 * len(points) / MAX_POINTS)
    kept = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def _x_axis(axis: Axis, to_x: _Scale) -> list[str]:
    parts = []
    for value, text in to_x.ticks:
        at = to_x(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" class="x">{escape(text)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, f'<text x="{middle}" y="{HEIGHT - 8}" class="x">{escape(axis.label)}</text>']


def _y_axis(axis: Axis, to_y: _Scale) -> list[str]:
    parts = []
    for value, text in to_y.ticks:
        at = to_y(value)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="y">{escape(text)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    label = (
        f'<text transform="translate(14 {middle})rotate(-90)" class="x">{escape(axis.label)}</text>'
    )
    return [*parts, label]


def _line(
    name: str, points: Points, to_x: _Scale, to_y: _Scale, index: int, *, marks: bool
) -> list[str]:
    colour = COLOURS[index % len(COLOURS)]
    places = [(to_x(px), to_y(py)) for px, py in points]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    parts = [f'<polyline points="{path}" style="stroke:{colour}"/>']
    if marks:
        parts += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in places
        ]
    y = TOP + 14 + 15 * index
    parts.append(f'<text x="{LEFT + 10}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return parts
