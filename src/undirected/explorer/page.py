"""The explorer of a model: one HTML file that holds the model, the inference and the page."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError
from undirected.core.files import atomic_write
from undirected.explorer.views import payload_of

SCRIPTS = (
    "kernels.js",
    "inference.js",
    "remote.js",
    "dom.js",
    "film.js",
    "learning.js",
    "image.js",
    "table.js",
    "network.js",
    "asked.js",
    "page.js",
)
WIDGET = """
export default {
  render({ model, el }) {
    const root = document.createElement("div");
    el.append(root);
    const write = (state) => {
      model.set("state", state);
      model.save_changes();
    };
    mount(root, JSON.parse(model.get("payload")), { read: () => model.get("state"), write });
  },
};
"""
START = """
mount(document.getElementById("app"), JSON.parse(document.getElementById("payload").textContent));
"""


def explore(
    model: Any,
    *,
    rows: Any = None,
    image: tuple[int, int] | None = None,
    title: str | None = None,
) -> "Explorer":
    """A page on which one sees a model think: evidence by hand, answers while one gives it.

    Args:
        model: a model, a `TableModel`, a model folder, or a network's `.uai` file. Models of one
            layer of hidden units take any columns; others need discrete variables.
        rows: a table (a file, a data frame, rows) whose rows can be loaded on the page.
        image: rows and columns of pixels, where the visible units are those of a picture; a folder
            of `undirected fit --image` knows them.
        title: of the page.

    Returns:
        An `Explorer`: `save` writes one HTML file that needs no network, and notebooks show it.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> page = un.explore(un.RBM.create(16, 4, seed=0), image=(4, 4))
        >>> path = page.save(pathlib.Path(tempfile.mkdtemp(), "page.html"))
        >>> path.stat().st_size < 400_000
        True
    """
    return Explorer(payload_of(model, rows=rows, image=image, title=title))


@dataclass(frozen=True, eq=False)
class Explorer:
    """The page of a model.

    Args:
        payload: what the page needs, as plain JSON.
    """

    payload: dict[str, Any] = field(repr=False)

    @property
    def html(self) -> str:
        """The whole page; it loads nothing, and runs the script that its policy names."""
        return self.render()

    def render(self, connect: str = "'none'") -> str:
        """The page with a policy that lets it ask `connect` alone."""
        import jinja2

        style, script = _read("page.css"), bundle() + START
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        return environment.from_string(_read("page.html.j2")).render(
            title=self.payload["title"],
            connect=connect,
            style=style,
            style_hash=_hash(style),
            script=script,
            script_hash=_hash(script),
            payload=_json(self.payload),
        )

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, whole or not at all."""
        with atomic_write(Path(path)) as temporary:
            temporary.write_text(self.html, encoding="utf-8")
        return Path(path)

    def widget(self) -> Any:
        """The page as a widget of notebooks, whose `state` holds what was painted or chosen.

        Needs anywidget: pip install "undirected[widget]".
        """
        try:
            import anywidget  # pyright: ignore[reportMissingImports]
            import traitlets  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise UndirectedError(
                'widget: anywidget is not installed; pip install "undirected[widget]"'
            ) from error
        members = {
            "_esm": bundle() + WIDGET,
            "_css": _read("page.css"),
            "payload": traitlets.Unicode().tag(sync=True),
            "state": traitlets.Dict(allow_none=True, default_value=None).tag(sync=True),
        }
        kind = type("ExplorerWidget", (anywidget.AnyWidget,), members)
        return kind(payload=json.dumps(self.payload, allow_nan=False))

    def _repr_html_(self) -> str:
        """In notebooks the page stands in a frame of its own."""
        return (
            '<iframe sandbox="allow-scripts" width="100%" height="900" style="border:0" '
            f'title="{escape(self.payload["title"], quote=True)}" '
            f'srcdoc="{escape(self.html, quote=True)}"></iframe>'
        )


@cache
def bundle() -> str:
    """The modules as one script: each file once, without its imports and exports."""
    parts = []
    for name in SCRIPTS:
        text = re.sub(r"^import [^;]*;\n", "", _read(name), flags=re.M)
        parts.append(re.sub(r"^export (?=class|(async )?function|const)", "", text, flags=re.M))
    return "\n".join(parts)


def _read(name: str) -> str:
    return resources.files("undirected.explorer").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _json(payload: dict[str, Any]) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
