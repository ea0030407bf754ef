"""Tables on a terminal: what a record says, without the marks of Markdown."""

import io

from rich.console import Console

from undirected.report import terminal
from undirected.report.tables import Cell, Table


def printed(one: Table, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal.render(one))
    text = console.file.getvalue().replace(terminal.GAP, " ")
    return [line.rstrip() for line in text.splitlines()]


def test_cells_stand_under_their_names_and_groups_above_their_first_column():
    rows = [
        ["noise [bold]", Cell("1.25", "± 0.01", best=True), Cell("1.5", better=True), Cell("–")],
        ["KL(a || b)", Cell("2"), Cell("3"), Cell("-1")],
    ]
    names = ["case", "ours", "paper", "ours"]
    lines = printed(Table(names, rows, "error", [("BP", 2), ("CD", 1)], ["★: best.", "±: error."]))
    assert lines[0] == "error"
    groups, header, first, second = (lines[i] for i in (2, 3, 5, 6))
    assert groups.split() == ["BP", "CD"] and header.split() == names
    assert groups.index("BP") + 2 == header.index("ours") + 4 == first.index("± 0.01") + 6
    assert first.split("  ")[0].strip() == "noise [bold]" and "★ 1.25 ± 0.01" in first
    assert "KL(a || b)" in second
    assert lines[-2:] == ["★: best. ±: error.", ""]


def test_a_narrow_terminal_loses_nothing():
    table = Table(["case", "a long name of a method"], [["first", Cell("123456789.25", "± 0.5")]])
    text = "".join("".join(printed(table, 14)).split())
    assert "123456789.25" in text and text.endswith("±0.5")
