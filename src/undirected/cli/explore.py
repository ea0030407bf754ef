"""`undirected explore`: a page on which one sees a model think."""

import webbrowser
from pathlib import Path

from undirected.cli import console
from undirected.core.errors import UndirectedError
from undirected.core.files import check_place
from undirected.explorer.page import explore


def explore_model(
    model: Path,
    rows: Path | None,
    out: Path | None,
    open_page: bool,
    image: str | None,
    as_json: bool,
) -> None:
    """Write the page of a model folder or a network, and open it."""
    if not model.exists():
        raise UndirectedError(
            f"explore: {model} does not exist; give a model folder or a .uai file"
        )
    folder = out or (model if model.is_dir() else model.parent)
    path = folder / "explore.html"
    check_place(path)
    page = explore(model, rows=rows, image=_shape(image))
    page.save(path)
    size = path.stat().st_size
    summary = {"page": str(path), "bytes": size, "view": page.payload["view"]}
    opened = open_page and webbrowser.open(path.resolve().as_uri())
    how = "" if opened else ": open it in a browser"
    console.result(summary, as_json, [f"Wrote {path} ({size / 1e6:.1f} MB){how}"])


def serve_model(
    model: Path, rows: Path | None, port: int, open_page: bool, image: str | None, as_json: bool
) -> None:
    """Answer a page's questions on this machine until the user interrupts."""
    from undirected.explorer.serve import Served

    _check(model)
    served = Served(model, rows, _shape(image), port)
    lines = [f"Serving {served.address}", "Ctrl-C stops it."]
    console.result({"address": served.address}, as_json, lines)
    if open_page:
        webbrowser.open(served.address)
    try:
        served.run()
    except KeyboardInterrupt:
        console.say("stopped")


def _check(model: Path) -> None:
    if not model.exists():
        raise UndirectedError(f"explore: {model} does not exist; give a model folder or .uai file")


def _shape(text: str | None) -> tuple[int, int] | None:
    """Rows and columns of a picture from a text such as 28x28."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise UndirectedError(f"image: '{text}' is not a shape; pass rows x columns, as in 28x28")
    return int(parts[0]), int(parts[1])
