"""A record's tables as Markdown, for documents."""

import re
from collections.abc import Mapping
from typing import Any

from undirected.report.tables import BEST, Cell, Table, pivot


def table(record: Mapping[str, Any]) -> str:
    """The tables of a record, one per metric, case × method, with what their marks mean."""
    return "\n".join(render(one) for one in pivot(record))


def render(one: Table) -> str:
    """One table as Markdown; a header of two lines is folded into one."""
    first, *names = one.header
    if one.groups:
        groups = [label for label, columns in one.groups for _ in range(columns)]
        names = [f"{group}: {name}" for group, name in zip(groups, names, strict=True)]
    lines = [
        _line([_escape(name) for name in [first, *names]]),
        _line([":--" if i in one.texts else "--:" for i in range(len(one.header))]),
        *(_line([_cell(cell) for cell in row]) for row in one.rows),
    ]
    title = [f"**{_escape(one.title)}**", ""] if one.title else []
    legend = ["", _escape(" ".join(one.legend))] if one.legend else []
    return "\n".join([*title, *lines, *legend, ""])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return _escape(cell)
    text = f"**{_escape(cell.text)}**" if cell.better else _escape(cell.text)
    return " ".join(part for part in (BEST if cell.best else "", text, cell.aside) if part)


def _escape(text: str) -> str:
    """Text that Markdown shows as it is written."""
    text = re.sub(r"([\\`*|<]|\](?=[(\[:])|(?<!\w)_|_(?!\w))", r"\\\1", text)
    return re.sub(r"\s+", " ", text)
