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


INTRODUCTION = """\
`make bench ARGS=uai` answers the problems of the UAI 2014 competition that are in the data folder,
and scores as the competition did: 0 is the trivial answer, 100 the reference, and a late answer has
0. Start-up and reading count. The numbers are those of the committed records, one run each; this
page is written from them by
`python -m benchmarks.page results/benchmarks/uai-{20s,60s}.json --docs docs/uai.md`.
"""
TASKS = {"mar": "marginals", "pr": "log Z", "map": "best states"}


def markdown(*records: Mapping[str, Any]) -> str:
    """The page of the documentation, written from a record for each limit of time."""
    parts = ["# Problems of the UAI 2014 competition", "", INTRODUCTION]
    return "\n".join([*parts, *(line for record in records for line in limit_lines(record))])


def limit_lines(record: Mapping[str, Any]) -> list[str]:
    """The part of the page that has one limit of time: its notes, and a table for each task."""
    config = record["config"]
    parts = [f"## {config['seconds']:g} s a problem", ""]
    memory = f"{config['memory (GiB)']:g} GiB a problem"
    parts.append(f"On {record['device']}, {config['cores']} of them in use, {memory}.\n")
    parts += [f"- {note}" for note in record["notes"]]
    for task, title in TASKS.items():
        lines = family_lines(record, task)
        if lines:
            head = ["family", "problems", "score", "seconds"]
            head += ["within 1 % of the best known"] if task == "map" else []
            head += [f"{name}: score" for name in contestants(record, task)]
            rule = [":--", *["--:"] * (len(head) - 1)]
            parts += ["", f"**{title}**", "", _line(head), _line(rule), *lines]
    return [*parts, ""]


def family_lines(record: Mapping[str, Any], task: str) -> list[str]:
    """A line for each family of a task: problems, mean score, seconds, MAP within 1 %, peers."""
    found: dict[str, dict[str, Any]] = {}
    for row in record["rows"]:
        if row["case"].startswith(f"{task} ") and row["n"] and row["method"] == "ours":
            own = found.setdefault(row["case"].split(" ", 1)[1], {"n": row["n"]})
            own[row["metric"].split(" ")[0]] = row["ours"]
    peers, scores, lines = contestants(record, task), by_family(record).get(task, {}), []
    for family, own in found.items():
        cells = [family, str(own["n"]), f"{own['score']:.1f}", f"{own.get('seconds', 0):.1f}"]
        cells += [f"{own['within']:.0f} %"] if "within" in own else []
        cells += [f"{scores[family][name]:.1f}" for name in peers]
        lines.append(_line(cells))
    return lines


def contestants(record: Mapping[str, Any], task: str) -> list[str]:
    """The peers that a record has scores of in all families of a task."""
    families = by_family(record).get(task, {}).values()
    names = dict.fromkeys(name for scores in families for name in scores if name != "ours")
    return [name for name in names if all(name in scores for scores in families)]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


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
