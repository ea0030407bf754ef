"""Line charts: round ticks, gaps where values are missing, no spike lost."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from undirected.report import svg


def chart(*series, name="a & b", x_label="x <", y_label='y "'):
    lines = [{"name": str(i), "x": x, "y": y} for i, (x, y) in enumerate(series)]
    curve = {"name": name, "x_label": x_label, "y_label": y_label, "series": lines}
    return ElementTree.fromstring(svg.line_chart(curve))  # raises unless well-formed


def paths(line):
    """The points of each unbroken piece of a line."""
    found = [path.get("d") for path in line.iter("path")]
    return [[tuple(map(float, p.split())) for p in d.lstrip("M").split("L")] for d in found]


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(3, 9))
@example(249749751.0, 250250250.0, 6)
def test_ticks_are_round_even_and_few(low, size, most):
    high = low + size
    if high - low < 1e-9 * abs(low):
        return
    found = svg.ticks(low, high, most)
    step = found[1] - found[0]
    room = 1e-6 * step
    assert found[0] <= low + room
    assert found[-1] >= high - room
    assert found[0] > low - step - room
    assert found[-1] < high + step + room
    assert 2 <= len(found) <= most + 1
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-3


def test_points_land_where_the_axes_say():
    drawing = chart(([0, 5, 10], [0, 50, 100]))
    (line,) = (group for group in drawing.iter("g"))
    right, bottom = svg.WIDTH - svg.RIGHT, svg.HEIGHT - svg.BOTTOM
    middle = ((svg.LEFT + right) / 2, (svg.TOP + bottom) / 2)
    assert paths(line) == [[(svg.LEFT, bottom), middle, (right, svg.TOP)]]
    texts = [text.text for text in drawing.iter("text")]
    assert texts == [
        *("0", "20", "40", "60", "80", "100"),
        *("0", "2", "4", "6", "8", "10"),
        "x <",
        'y "',
    ]
    assert drawing.get("aria-label") == 'a & b: y " against x < for 0'


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf])
def test_a_missing_value_leaves_a_gap(nothing):
    (line,) = chart(([0, 1, 2, 3, nothing, 5], [1, 2, nothing, 3, 4, 5])).iter("g")
    assert [len(piece) for piece in paths(line)] == [2, 1, 1]
    assert len(list(line.iter("circle"))) == 4


def test_many_points_are_thinned_without_losing_a_spike():
    y = [math.sin(i / 500) for i in range(10_000)]
    y[4321], y[7654] = 9.0, -9.0
    drawing = chart((list(range(10_000)), y))
    (line,) = drawing.iter("g")
    (points,) = paths(line)
    assert {"10", "−10"} <= {text.text for text in drawing.iter("text")}
    assert len(points) <= svg.POINTS + 2
    heights = [height for _, height in points]
    assert min(heights) < svg.HEIGHT * 0.15
    assert max(heights) > svg.HEIGHT * 0.7
    assert [x for x, _ in points] == sorted(x for x, _ in points)


@pytest.mark.parametrize(
    "series", [(), (([], []),), (([1], [2]),), (([0, 1], [3, 3]),), (([0, 1], [None, None]),)]
)
def test_little_or_nothing_to_draw(series):
    drawing = chart(*series)
    numbers = [text.get("y") for text in drawing.iter("text") if text.get("y")]
    assert all(math.isfinite(float(number)) for number in numbers)


def test_tick_labels():
    assert [svg._label(v) for v in (0.0, -2.5, 1e6, 2.5e-5, 0.1 + 0.2, 1000.0)] == [
        *("0", "−2.5", "1e6", "2.5e-5", "0.3", "1000"),
    ]
