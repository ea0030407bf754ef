"""The page of a record of UAI problems: a bar for every family, then the tables."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.page import INK, LEFT, LINE, OTHER_COLOUR, OURS_COLOUR, WIDTH
from undirected.report.page import Image, Section, record_section, write_sections

Scores = Mapping[str, float]


def write_page(record: Mapping[str, Any], published: Mapping[str, Scores], out: Path) -> None:
    """One HTML file: for each task the families' bars, with the leader board beside the mean."""
    images = []
    for task, families in by_family(record).items():
        for family, scores in families.items():
            board = published.get(task, {}) if family == "all" else {}
            picture = chart({**scores, **board})
            images.append(
                Image(picture.encode(), caption=f"{task} {family}", name=f"{task} {family}")
            )
    text = "Scores from 0, the trivial answer, to 100, the reference; a late answer scores 0."
    bars = Section(f"{record['title']}: bars", text, images=images)
    write_sections([bars, record_section(record)], out, "UAI problems")


def by_family(record: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean scores by task, family and contestant; rows of families have a number of problems."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in record["rows"]:
        if row["metric"] == "score" and row["n"]:
            task, family = row["case"].split(" ", 1)
            found.setdefault(task, {}).setdefault(family, {})[row["method"]] = row["ours"]
    return found


def chart(scores: Scores) -> str:
    """Horizontal bars from 0 to 100."""
    height = LINE * len(scores) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="15">'
    ]
    for i, (name, value) in enumerate(scores.items()):
        y, length = LINE * i + 4, (WIDTH - LEFT - 80) * value / 100
        colour = OURS_COLOUR if name == "ours" else OTHER_COLOUR
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end" fill="{INK}">',
            f"{escape(name)}</text>",
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{LINE - 6}" fill="{colour}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}" fill="{INK}">{value:.1f}</text>',
        ]
    return "".join([*parts, "</svg>"])
