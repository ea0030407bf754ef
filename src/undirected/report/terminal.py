"""A record's tables for a terminal."""

from typing import TYPE_CHECKING

from undirected.report import tables
from undirected.report.tables import BEST, Cell

if TYPE_CHECKING:
    import rich.table
    import rich.text

GAP = "\N{NO-BREAK SPACE}"


def render(one: tables.Table) -> "rich.table.Table":
    """One table for Rich; in a header of two lines a group stands above its first column."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    above = dict(zip(sorted(one.starts), (label for label, _ in one.groups), strict=True))
    found = Table(
        title=Text(one.title, "bold"),
        title_justify="left",
        caption=Text(" ".join(one.legend) + "\n", "dim"),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for i, name in enumerate(one.header):
        header = Text(f"{above[i]}\n{name}" if i in above else name)
        found.add_column(header, justify="left" if i in one.texts else "right", overflow="fold")
    for row in one.rows:
        found.add_row(*(_text(cell) for cell in row))
    return found


def _text(cell: str | Cell) -> "rich.text.Text":
    from rich.text import Text

    if isinstance(cell, str):
        return Text(cell)
    best = f"{BEST}{GAP}" if cell.best else ""
    aside = (f" {cell.aside}".replace(" ", GAP), "dim")
    text = cell.text.replace(" ", GAP), "bold" if cell.better else ""
    return Text.assemble(best, text, aside if cell.aside else "")
