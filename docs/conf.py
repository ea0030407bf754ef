"""Settings of the documentation: Sphinx with MyST, everything local, warnings are errors."""

import json
import re
import shutil
from collections.abc import Hashable, Sequence
from importlib import metadata
from pathlib import Path

from sphinx.errors import ConfigError

DOCS = Path(__file__).parent
GENERATED = DOCS / "_generated"
PACKAGE = DOCS.parent / "src" / "undirected"
RESULTS = DOCS.parent / "results"

project = "undirected"
author = "The undirected authors"
copyright = author
version = release = metadata.version("undirected")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "_generated/papers", "_generated/claims"]
html_theme = "furo"
html_title = f"undirected {release}"
html_copy_source = False
html_extra_path = ["_generated/explorer"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
default_role = "code"
smartquotes = False  # x' is a transpose


def write_papers() -> None:
    """For each page of docs/papers/, its experiments and the tables of their records."""
    from undirected.experiments import registry

    names = registry.names()
    pages = {page.stem for page in (DOCS / "papers").glob("*.md")}
    unknown = {name.split("/")[0] for name in names} - pages
    if unknown:
        raise ConfigError(f"write docs/papers/{min(unknown)}.md: it has experiments but no page")
    folder = GENERATED / "papers"
    folder.mkdir(parents=True)
    for paper in pages:
        found = [name for name in names if name.startswith(f"{paper}/")]
        lines = [f"- `undirected reproduce {name}`: {registry.load(name).title}" for name in found]
        status = "\n".join(lines) or "The experiments of this paper are not in this release."
        tables = [table(file) for file in sorted((RESULTS / paper).glob("*.json"))]
        results = "\n\n".join(tables) or "No run is recorded in this release."
        text = f"## Experiments\n\n{status}\n\n## Results\n\n{results}\n"
        (folder / f"{paper}.md").write_text(text, encoding="utf-8")


def write_claims() -> None:
    """For each page of docs/papers/, what its paper claims and what the full records say to it."""
    from undirected.experiments import claims, registry
    from undirected.report import markdown

    folder = GENERATED / "claims"
    folder.mkdir(parents=True)
    for page in (DOCS / "papers").glob("*.md"):
        names = [name for name in registry.names() if name.startswith(f"{page.stem}/")]
        verdicts = [verdict for name in names for verdict in claims.verdicts(name, RESULTS)]
        text = markdown.render(claims.table(verdicts)) if verdicts else "It makes no claims."
        (folder / page.name).write_text(text, encoding="utf-8")


def table(file: Path) -> str:
    """The tables of one record, under its name."""
    from undirected.report import markdown

    record = json.loads(file.read_text(encoding="utf-8"))
    return f"### {file.stem}\n\n{markdown.table(record)}"


def write_api() -> None:
    """One page per room, with a section for each of its modules."""
    folder = GENERATED / "api"
    folder.mkdir(parents=True)
    for module in sorted(PACKAGE.glob("[!_]*.py")):
        (folder / f"{module.stem}.rst").write_text(section(module, "="), encoding="utf-8")
    for room in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        modules = sorted(room.rglob("[!_]*.py"))
        page = [section(room, "=", members=False), *(section(path, "-") for path in modules)]
        (folder / f"{room.name}.rst").write_text("\n".join(page), encoding="utf-8")


def write_flat() -> None:
    """The names of the flat API with the first line of each docstring, sorted by room."""
    import undirected

    found: dict[str, list[str]] = {}
    for name in dir(undirected):
        thing = getattr(undirected, name)
        room = getattr(thing, "__module__", "undirected").split(".")[1:2]
        if room:
            first = (thing.__doc__ or "").strip().splitlines()[0]
            found.setdefault(room[0], []).append(f"- ``un.{name}``: {escape(first)}")
    heading = "undirected (the flat API)"
    page = [
        heading,
        "=" * len(heading),
        "",
        escape((undirected.__doc__ or "").split("\n\n")[1]),
        "",
    ]
    for room, lines in sorted(found.items()):
        page += [room, "-" * len(room), "", *lines, ""]
    (GENERATED / "api" / "a_flat.rst").write_text("\n".join(page), encoding="utf-8")


def write_explorers() -> None:
    """The live examples: digits to paint, flowers as a table, a network."""
    import undirected as un

    folder = GENERATED / "explorer"
    folder.mkdir(parents=True)
    digits, rows = digits_model()
    pages = {
        "digits": un.explore(digits, rows=rows, image=(8, 8), title="Handwritten digits"),
        "flowers": un.explore(flowers_model(), title="Flowers of the iris"),
        "alarm": un.explore(alarm_network(), title="Burglary or earthquake?"),
    }
    for name, page in pages.items():
        page.save(folder / f"explorer-{name}.html")


def digits_model():
    """An RBM of the 8x8 digits that come with scikit-learn, and some of them."""
    import jax.numpy as jnp
    from sklearn.datasets import load_digits
    from sklearn.neural_network import BernoulliRBM

    import undirected as un

    x = (load_digits(return_X_y=True)[0] > 7).astype(float)
    fitted = BernoulliRBM(64, learning_rate=0.05, n_iter=40, random_state=0).fit(x)
    found = fitted.components_.T, fitted.intercept_visible_, fitted.intercept_hidden_
    weights, visible, hidden = (jnp.asarray(a, jnp.float32) for a in found)
    return un.RBM(weights, visible, hidden), x[:40]


def flowers_model():
    """Four measures of iris flowers and their species; few hidden units, learned exactly."""
    import numpy as np
    from sklearn.datasets import load_iris

    import undirected as un
    from undirected.core.table_units import TableUnits
    from undirected.tasks.enumerated_learning import fit_enumerated

    measures, kinds = (np.asarray(part) for part in load_iris(return_X_y=True))
    names = ["sepal length", "sepal width", "petal length", "petal width"]
    table = dict(zip(names, measures.T, strict=True))
    table["species"] = np.array(["setosa", "versicolor", "virginica"])[kinds]
    schema = un.infer_schema(table, types=dict.fromkeys(names, "real"), label="species")
    units = TableUnits.of(schema).to_units(schema.encode(table))
    model, _ = fit_enumerated(schema, units, 5, np.random.RandomState(0))
    return un.TableModel(model, schema)


def alarm_network():
    """Pearl's (1988) alarm, which burglars and earthquakes set off and two neighbours hear."""
    import undirected as un

    rings = [[[0.999, 0.001], [0.71, 0.29]], [[0.06, 0.94], [0.05, 0.95]]]
    words: dict[Hashable, Sequence[Hashable]] = {
        "burglary": ["no", "yes"],
        "earthquake": ["no", "yes"],
        "alarm": ["off", "rings"],
        "John": ["quiet", "calls"],
        "Mary": ["quiet", "calls"],
    }
    return un.markov_network(
        {**words},
        {
            ("burglary",): [0.999, 0.001],
            ("earthquake",): [0.998, 0.002],
            ("burglary", "earthquake", "alarm"): rings,
            ("alarm", "John"): [[0.95, 0.05], [0.1, 0.9]],
            ("alarm", "Mary"): [[0.99, 0.01], [0.3, 0.7]],
        },
    )


def section(path: Path, line: str, members: bool = True) -> str:
    """A heading and everything public of one module."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    heading = name if line == "=" else name.split(".", 2)[2]
    options = "   :members:\n   :ignore-module-all:\n" if members else ""
    return f"{heading}\n{line * len(heading)}\n\n.. automodule:: {name}\n{options}"


def to_rst(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings are Markdown: escape what reStructuredText would take for markup."""
    result, code = [], False
    for number, line in enumerate(lines):
        indented = line.startswith(" ")
        if indented and not code and not in_list(lines[:number]):
            result += ["", "::", ""]
            code = True
        elif line.strip() and not indented:
            result += [""] if code else []
            code = False
        result.append(line if code else escape(line))
    lines[:] = [*result, ""]


def in_list(before: list[str]) -> bool:
    """Whether the last line that was not indented began a list item."""
    starts = [line for line in before if line.strip() and not line.startswith(" ")]
    return bool(starts) and starts[-1].startswith(("- ", "* "))


def escape(line: str) -> str:
    """The line with backquoted parts as literals and markup characters elsewhere escaped."""
    mark = re.match(r"\s*[-*] ", line)
    start = mark.end() if mark else 0
    parts = re.split(r"`+([^`]+)`+", line[start:])
    for index, part in enumerate(parts):  # every other part was in backquotes
        parts[index] = f"``{part}``\\ " if index % 2 else re.sub(r"([\\*_|])", r"\\\1", part)
    return line[:start] + "".join(parts)


def short_names(app, what, name, obj, options, signature, returns) -> tuple:
    """Signatures with JAX's arrays by the name users know, and defaults that can be parsed."""
    return tuple(
        text and text.replace("jaxlib._jax.Array", "Array").replace("<factory>", "...")
        for text in (signature, returns)
    )


def setup(app) -> None:
    shutil.rmtree(GENERATED, ignore_errors=True)  # no page of a module that is gone
    write_papers()
    write_claims()
    write_api()
    write_flat()
    write_explorers()
    app.connect("autodoc-process-signature", short_names)
    app.connect("autodoc-process-docstring", to_rst)
