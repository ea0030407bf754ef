"""One self-contained HTML page: of records, or of sections put together by hand."""

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from undirected.report import svg
from undirected.report.tables import BEST, Cell, Table, agreement, pivot

REQUIRED = ["experiment", "profile", "config", "seed", "device", "versions", "seconds", "rows"]
_KINDS = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"<svg": "image/svg+xml",
    b"<?xml": "image/svg+xml",
}
_SMALLER = (
    "Profile “{}” is smaller than the paper's own setting: "
    "its numbers are not to be held against the paper's."
)


@dataclass(frozen=True)
class Image:
    """A picture, in memory or in a file (PNG, JPEG, GIF or SVG)."""

    source: bytes | Path
    caption: str = ""
    name: str = ""

    @property
    def uri(self) -> str | None:
        """The picture as a data URI; None when its file is not there."""
        if isinstance(self.source, Path) and not self.source.is_file():
            return None
        data = self.source if isinstance(self.source, bytes) else self.source.read_bytes()
        kind = next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
        if kind is None:
            what = self.name or (self.source if isinstance(self.source, Path) else "in memory")
            raise ValueError(f"image {what}: not a PNG, JPEG, GIF or SVG picture")
        return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@dataclass(frozen=True)
class Section:
    """A part of a page: `text` in paragraphs, then notes, tables, curves, images and facts.

    `curves`: entries as in a record: {"name", "x_label", "y_label", "series"}.
    `facts`: small print at the end, a name and one or more values each.
    """

    title: str
    text: str = ""
    table: Table | Sequence[Table] = ()
    images: Sequence[Image] = ()
    curves: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    label: str = ""
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def tables(self) -> Sequence[Table]:
        """All tables of the section."""
        return [self.table] if isinstance(self.table, Table) else self.table


def write_page(
    records: Sequence[Mapping[str, Any]], out: Path, title: str = "Results", text: str = ""
) -> None:
    """Write the page of some records to the file `out`.

    Image files are sought beside `out` unless their names are absolute, as from `read_records`.
    """
    folder = Path(out).parent
    sections = [record_section(record, folder) for record in records]
    if len(sections) > 1:
        sections.insert(0, _overview(records))
    write_sections(sections, out, title, text)


def write_sections(sections: Sequence[Section], out: Path, title: str, text: str = "") -> None:
    """Write a page of sections to the file `out`, whole or not at all."""
    html = render(sections, title, text)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(html, encoding="utf-8")
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


def render(sections: Sequence[Section], title: str, text: str = "") -> str:
    """The HTML of a page: it loads nothing, runs no script, and opens from disk."""
    import jinja2

    files = resources.files("undirected.report")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["paragraphs"] = _paragraphs
    environment.filters["minus"] = lambda number: re.sub(r"(?<!\w)-(?=\d)", "−", number)
    environment.tests["cell"] = lambda value: isinstance(value, Cell)
    template = environment.from_string(files.joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        text=text,
        css=files.joinpath("page.css").read_text(encoding="utf-8"),
        sections=sections,
        ids=[f"{i}-{_slug(section.title)}" for i, section in enumerate(sections, 1)],
        line_chart=svg.line_chart,
        swatch=svg.swatch,
        best=BEST,
    )


def record_section(record: Mapping[str, Any], folder: Path = Path()) -> Section:
    """The section of one record; its image files are sought in `folder`."""
    _check(record, record.get("experiment", "without a name"))
    notes = list(record.get("notes", ()))
    if record["profile"] != "full" and any(row["paper"] is not None for row in record["rows"]):
        notes.insert(0, _SMALLER.format(record["profile"]))
    images = record.get("images", ())
    return Section(
        title=record.get("title") or record["experiment"],
        label=f"{record['experiment']} · {record['profile']}",
        table=pivot(record),
        images=[Image(Path(folder, i["file"]).resolve(), i["caption"], i["name"]) for i in images],
        curves=record.get("curves", ()),
        notes=notes,
        facts=_facts(record),
    )


def read_records(*paths: Path) -> list[dict[str, Any]]:
    """Records of files and folders (searched through), with the names of their images absolute."""
    files = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder; give one that holds records")
        files += [path] if path.is_file() else sorted(_records_in(path))
    records = []
    for file in files:
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"record {file}: not JSON: {error}") from error
        _check(record, str(file))
        folder = file.parent.resolve()
        images = [{**i, "file": str(folder / i["file"])} for i in record.get("images", ())]
        records.append({**record, "images": images} if images else record)
    return records


def _check(record: Any, name: str) -> None:
    if not isinstance(record, Mapping):
        raise ValueError(f"record {name}: got {record!r:.60}; wanted an object with named entries")
    missing = [key for key in REQUIRED if key not in record]
    if missing:
        wanted = ", ".join(REQUIRED)
        raise ValueError(f"record {name}: key {missing[0]!r} is missing; wanted {wanted}")


def _records_in(folder: Path) -> list[Path]:
    """JSON files under a folder; hidden ones belong to runs that are not finished."""
    found = folder.rglob("*.json")
    return [f for f in found if not any(p.startswith(".") for p in f.relative_to(folder).parts)]


def _overview(records: Sequence[Mapping[str, Any]]) -> Section:
    rows = []
    for record in records:
        met, compared = agreement(record)
        agrees = f"{met} of {compared}" if compared and record["profile"] == "full" else "–"
        experiment, profile = record["experiment"], record["profile"]
        rows.append([experiment, profile, record["device"], duration(record["seconds"]), agrees])
    header = ["experiment", "profile", "device", "time", "as good as the paper"]
    legend = ["As good: better, or within two standard errors; counted for full runs only."]
    return Section("Overview", table=Table(header, rows, legend=legend))


def _facts(record: Mapping[str, Any]) -> dict[str, list[str]]:
    seeds = record.get("seeds", [record["seed"]])
    facts = {
        "seed" if len(seeds) == 1 else "seeds": [", ".join(map(str, seeds))],
        "time": [duration(record["seconds"])],
        "device": [record["device"]],
        "versions": [f"{name} {version}" for name, version in record["versions"].items()],
        "config": [f"{key} = {json.dumps(value)}" for key, value in record["config"].items()],
        "stages": [f"{name}: {duration(s)}" for name, s in record.get("timings", {}).items()],
    }
    return {name: values for name, values in facts.items() if values}


def duration(seconds: float | None) -> str:
    """A length of time in words."""
    if seconds is None:
        return "unknown"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"
