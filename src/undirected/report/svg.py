"""Curves as inline SVG that takes its colours from the page, by day and by night."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 400, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 24, 12, 44  # margins of the plotting area
POINTS = 400  # more are thinned, keeping the extremes of each stretch
MARKED = 25  # a line of at most so many points shows each of them
STYLES = 6  # line styles the page's CSS knows: .line-0 to .line-5

Point = tuple[float, float]


def line_chart(curve: Mapping[str, Any]) -> str:
    """One entry of a record's curves as an SVG element; a gap stands for null or NaN."""
    lines = [_stretches(line["x"], line["y"]) for line in curve["series"]]
    points = [point for stretches in lines for stretch in stretches for point in stretch]
    x_ticks = ticks(*_range([x for x, _ in points]))
    y_ticks = ticks(*_range([y for _, y in points]))

    def place(point: Point) -> Point:
        across = _fraction(point[0], x_ticks) * (WIDTH - LEFT - RIGHT) + LEFT
        up = _fraction(point[1], y_ticks) * (HEIGHT - TOP - BOTTOM) + BOTTOM
        return across, HEIGHT - up

    names = ", ".join(line["name"] for line in curve["series"])
    label = f"{curve['name']}: {curve['y_label']} against {curve['x_label']} for {names}"
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
        *_axes(curve, x_ticks, y_ticks, place),
    ]
    for i, stretches in enumerate(lines):
        parts.append(f'<g class="line line-{i % STYLES}">')
        for stretch in stretches:
            parts += _draw([place(point) for point in stretch])
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def swatch(index: int) -> str:
    """A short piece of the line of a series, for the legend."""
    line = '<path d="M1 6H31"/>'
    return (
        f'<svg class="swatch" viewBox="0 0 32 12" aria-hidden="true">'
        f'<g class="line line-{index % STYLES}">{line}</g></svg>'
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers, evenly spaced, from at or below `low` to at or above `high`."""
    spacing = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(spacing))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= spacing * (1 - 1e-12))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def _axes(curve: Mapping, x_ticks: list[float], y_ticks: list[float], place) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in y_ticks:
        _, y = place((x_ticks[0], value))
        yield f'<path class="rule" d="M{LEFT} {y:.1f}H{right}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(value)}</text>'
    for value in x_ticks:
        x, _ = place((value, y_ticks[0]))
        yield f'<path class="rule" d="M{x:.1f} {bottom}v4"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{_label(value)}</text>'
    yield f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>'
    x_middle, y_middle = (LEFT + right) / 2, (TOP + bottom) / 2
    x_text, y_text = escape(curve["x_label"]), escape(curve["y_label"])
    yield f'<text x="{x_middle}" y="{HEIGHT - 6}" text-anchor="middle">{x_text}</text>'
    yield (
        f'<text transform="translate(13 {y_middle}) rotate(-90)" text-anchor="middle">'
        f"{y_text}</text>"
    )


def _draw(points: list[Point]) -> Iterator[str]:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield f'<path d="M{path}"/>'
    if len(points) <= MARKED:
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'


def _stretches(xs: Sequence[float | None], ys: Sequence[float | None]) -> list[list[Point]]:
    """The unbroken pieces of a line, thinned."""
    pieces: list[list[Point]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if x is None or y is None or not math.isfinite(x) or not math.isfinite(y):
            pieces.append([])
        else:
            pieces[-1].append((float(x), float(y)))
    return [_thin(piece) for piece in pieces if piece]


def _thin(points: list[Point]) -> list[Point]:
    """At most `POINTS` points: of each stretch of the line its lowest and its highest."""
    if len(points) <= POINTS:
        return points
    size = math.ceil(2 * len(points) / POINTS)
    kept = []
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        low = min(stretch, key=lambda i: points[i][1])
        high = max(stretch, key=lambda i: points[i][1])
        kept += [points[i] for i in sorted({low, high})]
    return kept


def _range(values: list[float]) -> tuple[float, float]:
    """Lowest and highest value, with some room where they are equal or there are none."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.0 if high - low > 1e-9 * abs(low) else max(abs(low) * 0.1, 1e-9)
    return low - room, high + room


def _fraction(value: float, around: list[float]) -> float:
    return (value - around[0]) / (around[-1] - around[0])


def _label(value: float) -> str:
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-4:
        return f"{value:.3g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    return f"{value:.10g}".replace("-", "−")
