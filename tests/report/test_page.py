"""The page: well-formed, self-contained, complete, and honest about what is missing."""

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from undirected.report import images, page
from undirected.report.page import Image, Section
from undirected.report.tables import Cell, Table

from .samples import full_record, row, small_record

VOID = {"meta", "img", "br", "link", "input", "hr"}
PNG = images.image_grid(np.zeros((1, 4)), (2, 2))


class Reader(HTMLParser):
    """Checks the nesting, keeps all tags, and the cells of all tables as (attributes, text)."""

    def __init__(self, html: str):
        super().__init__()
        self.open, self.tags, self.tables, self.text = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append([dict(attrs), ""])

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1][1] += f"*{data}*" if "strong" in self.open else data


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def written(tmp_path):
    """The page of two records, read back."""
    (tmp_path / "grid.png").write_bytes(PNG)
    path = tmp_path / "new" / "page.html"
    record = full_record(images=[{"name": "g", "caption": "Samples <here>", "file": "../grid.png"}])
    page.write_page([record, small_record()], path, "All <results>", "One.\n\nTwo & three.")
    return path.read_text(encoding="utf-8")


def test_the_page_loads_nothing(written):
    found = Reader(written)
    for tag, attributes in found.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base", "form"}
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert re.match(r"data:image/png;base64,|#", attributes.get(name, "#"))
        assert not any(name.startswith("on") for name in attributes)
    assert "url(" not in written
    assert "@import" not in written
    assert not re.search(r"https?:", written)
    policy = [a["content"] for tag, a in found.tags if a.get("http-equiv")]
    assert policy[0].startswith("default-src 'none'")


def test_images_are_inside(written):
    sources = [attributes for tag, attributes in Reader(written).tags if tag == "img"]
    assert [image["alt"] for image in sources] == ["Samples <here>"]
    assert base64.b64decode(sources[0]["src"].split(",")[1]) == PNG


def test_every_row_is_in_its_place(written):
    overview, errors, likelihoods, small = Reader(written).tables
    assert [words(text) for _, text in overview[1]] == [
        *("toy-paper/table1", "full", "One GPU", "1 h 2 min", "4 of 5"),
    ]
    assert [words(text) for _, text in overview[2]] == [
        *("toy-paper/figure2", "smoke", "CPU", "0.25 s", "–"),
    ]
    groups, header, *lines = errors
    assert [(text, a.get("colspan")) for a, text in groups] == [
        *[("case", None), ("CD|1", "3"), ("PCD", "3"), ("*BP*", "1")],
    ]
    assert [text for _, text in header] == ["ours", "paper", "difference"] * 2 + ["ours"]
    better, best = "(better)", "(best of ours in its case)"
    assert [[words(text) for _, text in line] for line in lines] == [
        [
            *("digits", "3.50 ± 0.25", f"*3.25* {better}", "≈ +0.25"),
            *(f"★ *2.00* {better} {best} ± 0.10", "2.5", "−0.50", "2.25 ± 0.50"),
        ],
        ["faces", "n/a", "4.1", "–", "4.25 ± 0.12", "4.25", "≈ 0.00", "–"],
    ]
    assert words(likelihoods[2][1][1]) == f"★ *−84.33* {better} {best} ± 0.13, n = 5"
    assert words(likelihoods[2][4][1]) == "−120.12 n = 3"
    assert [words(text) for _, text in small[1]] == ["toy", f"★ 5 {best}", f"★ 5 {best}"]


def test_titles_notes_and_facts_are_there(written):
    text = words(" ".join(Reader(written).text))
    for part in (
        *("All <results>", "One.", "Two & three.", "Errors <on> digits & faces"),
        *("toy-paper/table1 · full", "ours was nan, written as null", "nats < 3", "CD & PCD"),
        *("seed 7", "epochs = 3", "sizes = [1, 2]", 'name = "<b>"', "jax 0.10.2", "One GPU"),
        *("1 h 2 min", "train: 1 h 0 min", "score: 2 min 5 s", "0.25 s"),
    ):
        assert part in text
    assert "<b>" not in written
    assert "<results>" not in written


def test_a_smaller_profile_says_so_only_beside_paper_numbers():
    warning = "smaller than the paper's own setting"
    for profile, paper, said in (("smoke", 1.0, 1), ("full", 1.0, 0), ("smoke", None, 0)):
        rows = [row("c", "m", "e", 1.0, paper=paper)]
        section = page.record_section(full_record(profile=profile, rows=rows, notes=[]))
        assert sum(warning in note for note in section.notes) == said


def test_contents_link_to_every_section(written):
    found = Reader(written).tags
    links = [a["href"] for tag, a in found if tag == "a"]
    ids = [a["id"] for tag, a in found if tag == "section"]
    assert links == [f"#{one}" for one in ids]
    assert len(set(ids)) == 3


def test_one_section_needs_no_contents_and_no_overview(tmp_path):
    page.write_page([small_record()], tmp_path / "page.html")
    found = Reader((tmp_path / "page.html").read_text())
    assert "nav" not in [tag for tag, _ in found.tags]
    assert len(found.tables) == 1


def test_no_records_still_make_a_page(tmp_path):
    page.write_page([], tmp_path / "page.html", "Nothing yet")
    assert "Nothing yet" in (tmp_path / "page.html").read_text()


def test_charts_are_drawn_with_their_legend(written):
    found = Reader(written)
    labels = [a["aria-label"] for tag, a in found.tags if tag == "svg" and a.get("role") == "img"]
    assert labels == ["Loss: nats < 3 against epoch for CD & PCD, BP"]
    assert sum("swatch" in a.get("class", "") for tag, a in found.tags if tag == "svg") == 2


def test_every_class_of_the_page_is_styled(written):
    style = re.search(r"<style>(.*)</style>", written, re.DOTALL)
    assert style
    used = {name for _, a in Reader(written).tags for name in (a.get("class") or "").split()}
    assert {name for name in used if f".{name}" not in style[1]} == set()


def test_a_page_put_together_by_hand(tmp_path):
    section = Section(
        "By hand",
        "First.\n\nSecond.",
        Table(("method", "error"), [("Gibbs", Cell("0.12", "± 0.01", better=True)), ("BP", "-1")]),
        [Image(PNG, "In memory"), Image(tmp_path / "lost.png", "On disk", "lost")],
        full_record()["curves"],
    )
    page.write_sections([section], tmp_path / "page.html", "Demo")
    found = Reader((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [[words(text) for _, text in line] for line in found.tables[0]] == [
        ["method", "error"],
        ["Gibbs", "*0.12* (better) ± 0.01"],
        ["BP", "−1"],
    ]
    assert [a["alt"] for tag, a in found.tags if tag == "img"] == ["In memory"]
    assert "The picture “lost” is not there (lost.png)." in words(" ".join(found.text))


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x89PNG", "png"),
        (b"\xff\xd8\xff", "jpeg"),
        (b"GIF89a", "gif"),
        (b"<svg ", "svg+xml"),
        (b"<?xml", "svg+xml"),
    ],
)
def test_kinds_of_pictures(tmp_path, start, kind):
    file = tmp_path / "picture"
    file.write_bytes(start + b"...")
    assert (Image(file).uri or "").startswith(f"data:image/{kind};base64,")


def test_what_is_no_picture_is_named(tmp_path):
    with pytest.raises(ValueError, match="image sample: not a PNG"):
        _ = Image(b"hello", name="sample").uri
    (tmp_path / "text.png").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"text\.png: not a PNG"):
        _ = Image(tmp_path / "text.png").uri


def test_a_record_without_a_key_is_named():
    record = small_record()
    del record["seed"]
    with pytest.raises(ValueError, match="record toy-paper/figure2: key 'seed' is missing"):
        page.record_section(record)


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    page.write_page([small_record()], path)
    before = path.read_bytes()

    def half(self, text, encoding):
        self.write_bytes(text[:100].encode(encoding))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left"):
        page.write_page([full_record()], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_read_records_from_files_and_folders(tmp_path):
    folder = tmp_path / "results" / "toy-paper"
    (folder / ".table1-full-123").mkdir(parents=True)
    (folder / ".table1-full-123" / "clock.json").write_text("{}")
    (folder / "table1-full.json").write_text(json.dumps(full_record()))
    (folder / "figure2-smoke.json").write_text(json.dumps(small_record()))
    found = page.read_records(tmp_path / "results")
    assert [record["experiment"] for record in found] == ["toy-paper/figure2", "toy-paper/table1"]
    assert found[1]["images"][0]["file"] == str(folder / "grid.png")
    assert found[0] == small_record()
    assert page.read_records(folder / "table1-full.json") == found[1:]
    (folder / "grid.png").write_bytes(PNG)
    page.write_page(found, tmp_path / "elsewhere" / "page.html")
    assert "data:image/png" in (tmp_path / "elsewhere" / "page.html").read_text(encoding="utf-8")


def test_read_records_names_what_it_cannot_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such file or folder"):
        page.read_records(tmp_path / "nowhere")
    for text, message in (("{", "not JSON"), ("[1]", "got .1."), ('{"rows": []}', "'experiment'")):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match=rf"bad\.json: .*{message}"):
            page.read_records(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(None, "unknown"), (0.012345, "0.0123 s"), (59.94, "59.9 s"), (59.99, "1 min 0 s")],
        *[(60, "1 min 0 s"), (3599.9, "1 h 0 min"), (93784, "26 h 3 min")],
    ],
)
def test_duration(seconds, text):
    assert page.duration(seconds) == text


def test_the_report_needs_no_other_room_and_no_jax():
    code = (
        "import sys; from undirected.report import images, markdown, page; "
        "page.render([page.Section('a')], 'b'); images.image_grid([[0., 1.]], (1, 2)); "
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('undirected.')}; "
        "heavy = {'jax', 'matplotlib.pyplot'} & set(sys.modules); "
        "sys.exit(f'imported {rooms} {heavy}' if heavy or rooms != {'report'} else 0)"
    )
    source = str(Path(page.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
