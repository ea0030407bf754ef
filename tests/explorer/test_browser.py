"""The page in a real browser: what is painted, chosen, dropped and read, by mouse and by keys.

Needs Playwright (dependency group `browser`) and a chromium of the system.
"""

import base64
import functools
import http.server
import json
import os
import re
import shutil
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests.explorer.test_page import TABLE, filmed, table_model
from undirected.core.potentials import clamp
from undirected.explorer.page import WIDGET, bundle
from undirected.explorer.serve import Served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(os.environ.get("AXE_CORE", "build/node_modules/axe-core/axe.min.js"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
PAGES = ["image", "table", "network", "film", "rows"]
SETTLED = "() => document.getElementById('app').view.runs.settled"
WORKED_OUT = "() => document.getElementById('app').view.settled"


def picture_model():
    rng = np.random.default_rng(0)
    arrays = rng.normal(0, 0.7, (16, 5)), rng.normal(0, 0.5, 16), rng.normal(0, 0.5, 5)
    return un.RBM(*(jnp.asarray(a, jnp.float32) for a in arrays))


def alarm():
    calls = [[0.95, 0.05], [0.1, 0.9]]
    rings = [[[0.999, 0.001], [0.71, 0.29]], [[0.06, 0.94], [0.05, 0.95]]]
    return un.markov_network(
        {"burglary": ["no", "yes"], "quake": ["no", "yes"], "alarm": ["off", "on"], "call": 2},
        {
            ("burglary",): [0.99, 0.01],
            ("quake",): [0.98, 0.02],
            ("burglary", "quake", "alarm"): rings,
            ("alarm", "call"): calls,
        },
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rows = np.eye(16)[:3]
    un.explore(picture_model(), rows=rows, image=(4, 4)).save(folder / "image.html")
    un.explore(table_model(), rows={k: v[:3] for k, v in TABLE.items()}).save(folder / "table.html")
    un.explore(alarm()).save(folder / "network.html")
    un.explore(filmed(folder / "film", picture_model(), [4, 4])).save(folder / "film.html")
    table = table_model()
    notes = {"schema": table.schema.to_json()}
    un.explore(filmed(folder / "rows", table.model, notes=notes)).save(folder / "rows.html")
    return folder


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


@pytest.fixture
def visit(browser, files):
    """Open a page, offline; at the end nothing may have been complained of or asked for."""
    contexts, said, asked = [], [], []

    def open_page(name, fragment="", **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.on("console", lambda m: said.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{files / name}.html{fragment}")
        page.wait_for_selector("main")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def settled(page):
    page.wait_for_function(SETTLED)


def engine(known):
    """Belief propagation of the engine with the page's own settings."""
    p = picture_model().lower()
    mask, value = np.zeros(p.layout.n, bool), np.zeros(p.layout.n, np.float32)
    for pixel, x in known.items():
        mask[pixel], value[pixel] = True, x
    return np.asarray(un.SumProduct()(clamp(p, jnp.asarray(mask), jnp.asarray(value))).unary)


def test_painted_evidence_gives_the_marginals_of_the_engine(visit):
    page = visit("image")
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Width of the brush").fill("0")
    easel = page.get_by_role("application", name=re.compile("to paint"))
    box = easel.bounding_box()
    cell = box["width"] / 4
    page.mouse.click(box["x"] + 1.5 * cell, box["y"] + 0.5 * cell)  # row 1, column 2: on
    page.get_by_label("Off", exact=True).check()
    page.mouse.click(box["x"] + 2.5 * cell, box["y"] + 3.5 * cell)  # row 4, column 3: off
    settled(page)
    unary = engine({1: 1, 14: 0})
    found = page.evaluate("Array.from(document.getElementById('app').view.beliefs.bp.mean)")
    np.testing.assert_allclose(found, unary[:16], atol=1e-5)
    easel.focus()
    easel.press("ArrowUp")  # row 3, column 3, in words
    told = page.locator("main [role=status]").first.inner_text()
    assert told.startswith("Row 3, column 3: unknown, on with")
    shown = float(re.findall(r"([\d.]+) %", told)[0])
    assert shown == pytest.approx(100 * unary[10], abs=0.51)


def test_a_large_model_is_small_enough_and_uses_vectors(visit, files):
    """An RBM 784x500: under 4 MB, its sweeps by the kernels, its marginals those of the engine."""
    rng = np.random.default_rng(0)
    sizes = (0.1, (784, 500)), (0.5, 784), (0.5, 500)
    model = un.RBM(*(jnp.asarray(rng.normal(0, s, n), jnp.float32) for s, n in sizes))
    rows = (rng.random((1, 784)) < 0.2).astype(float)
    path = un.explore(model, rows=rows, image=(28, 28)).save(files / "large.html")
    assert path.stat().st_size < 4_000_000
    page = visit("large")
    page.wait_for_function("() => document.getElementById('app').view.runs.runs.bp?.done")
    view = "document.getElementById('app').view"
    assert page.evaluate(f"{view}.model.kernels !== null && {view}.runs.runs.bp.kernels !== null")
    p = model.lower()
    seen = np.arange(p.layout.n) < 392  # the upper half of the first row
    known, value = jnp.asarray(seen), jnp.asarray(np.where(seen, np.resize(rows[0], len(seen)), 0))
    unary = un.SumProduct()(clamp(p, known, value.astype(jnp.float32))).unary
    found = page.evaluate(f"Array.from({view}.beliefs.bp.mean)")
    np.testing.assert_allclose(found, unary[:784], atol=1e-5)
    page.wait_for_function("() => document.querySelector('.pace').textContent")
    assert "frames a second" in page.locator(".pace").inner_text()
    units = page.get_by_role("application", name=re.compile("hidden units"))
    units.focus()
    for _ in range(30):  # far below the part of the units that is in view
        units.press("ArrowDown")
    frame, view = page.locator(".mark.here"), page.locator(".filters").bounding_box()
    box = frame.bounding_box()
    assert frame.is_visible() and view["y"] <= box["y"] < view["y"] + view["height"]


def test_pixels_and_hidden_units_by_keyboard(visit):
    page = visit("image")
    page.get_by_role("button", name="Clear").press("Enter")
    easel = page.get_by_role("application", name=re.compile("to paint"))
    easel.focus()
    for key in ("ArrowLeft", "ArrowUp", "1", "ArrowRight", "0", "ArrowRight", "1", "."):
        easel.press(key)
    known = page.evaluate("Array.from(document.getElementById('app').view.known)")
    assert {i: v for i, v in enumerate(known) if v >= 0} == {5: 1, 6: 0}
    units = page.get_by_role("application", name=re.compile("hidden units"))
    units.focus()
    units.press("ArrowRight")
    units.press("Enter")
    assert "Unit 2: held on" in page.locator("main").inner_text()
    settled(page)
    unary = engine({5: 1, 6: 0, 17: 1})
    found = page.evaluate("Array.from(document.getElementById('app').view.beliefs.bp.mean)")
    np.testing.assert_allclose(found, unary[:16], atol=2e-4)  # first messages of a held unit differ
    units.press("Enter")
    assert "Unit 2: held off" in page.locator("main").inner_text()


UNITS = """() => {
  const { unitCanvas, shade, beliefs } = document.getElementById('app').view;
  const read = (canvas) => Array.from(
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data);
  return { filters: read(unitCanvas), veil: read(shade), hidden: Array.from(beliefs.bp.hidden) };
}"""


def test_hidden_units_show_their_weights_and_how_much_they_are_on(visit):
    """Five filters of 4x4 pixels, each to its largest weight; a veil where a unit is off."""
    page = visit("image", color_scheme="light")
    settled(page)
    found = page.evaluate(UNITS)
    weights = np.asarray(picture_model().weights).reshape(4, 4, 5)
    share = weights / np.abs(weights).max((0, 1))
    share = np.round(127.5 + 127.5 * share) / 127.5 - 1  # in 256 steps
    paper, ends = np.array([252, 252, 250]), {1: [8, 88, 158], -1: [217, 95, 14]}
    filters = np.reshape(found["filters"], (6, 5, 6, 4))
    for (row, col, j), x in np.ndenumerate(share):
        colour = paper + abs(x) * (np.array(ends[1 if x > 0 else -1]) - paper)
        np.testing.assert_allclose(filters[row + 1, j, col + 1, :3], colour, atol=0.51)
    veil = np.reshape(found["veil"], (5, 4))[:, 3]
    np.testing.assert_allclose(veil, 255 * 0.88 * (1 - np.array(found["hidden"])), atol=0.51)
    assert np.ptp(found["hidden"]) > 0.2
    marks = page.locator(".mark:not(.here)")
    assert marks.count() == 0
    units = page.get_by_role("application", name=re.compile("hidden units"))
    for how in ("on", "off"):
        units.click()  # in the middle, the third
        assert marks.get_attribute("class") == f"mark {how}"
        box, frame = units.bounding_box(), marks.bounding_box()
        assert frame["x"] == pytest.approx(box["x"] + 0.4 * box["width"], abs=1)
        assert frame["width"] == pytest.approx(0.2 * box["width"], abs=1)
    page.get_by_role("button", name="Clear").click()
    assert marks.count() == 0


PIXEL = """([label, x, y]) => {
  const canvas = document.querySelector(`canvas[aria-label^="${label}"]`);
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext('2d', { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  return Array.from(context.getImageData(x, y, 1, 1).data).slice(0, 3);
}"""


def test_a_film_goes_by_slider_by_click_and_by_play(visit):
    """Filters grow from nothing to full colour, the first one above zero, the second below."""
    page = visit("film", color_scheme="light")
    page_colour, full = [252, 252, 250], [8, 88, 158]
    assert page.evaluate(PIXEL, ["Filters at step 600", 0, 0]) == full
    slider = page.get_by_label("Step of learning")
    slider.focus()
    slider.press("Home")
    told = page.locator(".learning [role=status]")
    assert told.inner_text() == "Step 0. Held-out score: −1. Frame 1 of 16"
    assert page.evaluate(PIXEL, ["Filters at step 0", 0, 0]) == page_colour
    slider.press("ArrowRight")
    assert told.inner_text() == "Step 40. Held-out score: −1. Frame 2 of 16"
    red, _, blue = page.evaluate(PIXEL, ["Filters at step 40", 5, 0])  # the second filter
    assert red > blue  # orange
    assert page.evaluate(PIXEL, ["Samples at step 40", 1, 0]) == [22, 25, 29]  # ink: on
    assert page.evaluate(PIXEL, ["Samples at step 40", 0, 0]) == page_colour
    strip = page.locator(".strip canvas")
    strip.scroll_into_view_if_needed()
    strip.click(position={"x": strip.bounding_box()["width"] * 14.5 / 16, "y": 5})
    assert "Frame 15 of 16" in told.inner_text()
    play = page.locator(".learning").get_by_role("button", name="Play")
    play.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('.learning [role=status]').textContent.includes('16 of 16')"
    )
    page.wait_for_function("() => document.querySelector('.learning button').textContent == 'Play'")
    assert slider.input_value() == "15"


def test_a_film_of_a_table_names_its_lines(visit):
    page = visit("rows")
    names = page.locator(".heat .names li").all_inner_texts()
    assert names == ["sky: clear", "sky: dark", "sky: grey", "wet", "mm", "felt"]
    page.get_by_label("Step of learning").press("End")
    assert "Frame 16 of 16" in page.locator(".learning [role=status]").inner_text()


def test_words_of_a_table_give_the_answers_of_the_engine(visit):
    page = visit("table")
    model = table_model()
    page.get_by_role("group", name="sky").get_by_label("dark").check()
    settled(page)
    row = model.schema.encode({"sky": ["dark"], "wet": [""], "mm": [""], "felt": [""]})
    answers = model.answers(row, method="exact")
    wet = page.get_by_role("group", name="wet").locator(".share").all_inner_texts()
    for text, p in zip(wet, answers[1].probabilities[0], strict=True):
        assert float(re.findall(r"[\d.]+", text)[0]) == pytest.approx(100 * p, abs=0.51)
    felt = page.get_by_role("group", name="felt").locator(".said").inner_text()
    mean, spread = (float(x.replace("−", "-")) for x in re.findall(r"[−\d.]+", felt)[:2])
    assert mean == pytest.approx(answers[3].mean[0], abs=0.06)
    assert spread == pytest.approx(answers[3].std[0], rel=0.01)
    page.get_by_role("button", name="Forget sky").click()
    assert page.evaluate("document.getElementById('app').view.values") == [None] * 4
    page.get_by_role("button", name="What would change felt most?").click()
    page.wait_for_selector(".changes li")
    assert "felt" in page.get_by_role("heading", name=re.compile("What would change")).inner_text()


def test_a_network_is_asked_by_click_and_played(visit):
    page = visit("network")
    call = page.get_by_role("button", name=re.compile("^call:"))
    call.press("Enter")
    call.press("Enter")
    page.wait_for_function(WORKED_OUT)
    assert "known to be 1" in call.get_attribute("aria-label")
    exact = un.query(alarm(), given={"call": 1}, method="exact")
    text = page.locator("tr", has=page.locator("th", has_text="burglary")).inner_text()
    p = max(exact["burglary"].values())
    numbers = [float(x.replace("−", "-")) for x in re.findall(r"−?\d\.\d+", text)]
    assert numbers[:2] == pytest.approx([p, p], abs=1e-4)  # a tree: both are exact
    page.get_by_role("button", name="Start again").click()
    page.get_by_role("button", name="Step").click()
    assert page.evaluate("document.getElementById('app').view.run.rounds") == 1
    page.get_by_label("Fast").check()
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => document.getElementById('app').view.run.done")


WIDE_GRID = """() => {
  const { view } = document.getElementById('app');
  return { shown: document.querySelector('.numbers').innerText, logZ: view.exact.logZ() };
}"""


def test_a_grid_that_takes_long_is_worked_out_between_frames(visit):
    """Ising spins on 14x14, all couplings 0: log Z is 196 log 2, and the page draws meanwhile."""
    page = visit("network")
    pairs = [(r * 14 + c, r * 14 + c + 1) for r in range(14) for c in range(13)]
    pairs += [(r * 14 + c, r * 14 + c + 14) for r in range(13) for c in range(14)]
    scopes = "\n".join(f"2 {a} {b}" for a, b in pairs)
    tables = "\n".join(["4 1 1 1 1"] * len(pairs))
    text = f"MARKOV\n196\n{' '.join(['2'] * 196)}\n{len(pairs)}\n{scopes}\n{tables}\n"
    page.evaluate(DROP, ["grid.uai", text, 0])
    page.wait_for_selector("h2:has-text('grid.uai')")
    page.wait_for_function(WORKED_OUT)
    found = page.evaluate(WIDE_GRID)
    assert found["logZ"] == pytest.approx(196 * np.log(2), rel=1e-12)
    assert f"{196 * np.log(2):.7g}" in found["shown"]


DROP = """([name, text, size]) => {
  const data = new DataTransfer();
  data.items.add(new File([size ? new Uint8Array(size) : text], name));
  const event = new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true });
  document.querySelector('.drop').dispatchEvent(event);
}"""


@pytest.mark.parametrize(
    ("text", "size", "complaint"),
    [
        ("MARKOV\n2\n2 3\n1\n2 0 1\n6\n1 2 3 4 5 6\n", 0, None),
        ("MARKOV\n2\n2 3\n1\n2 0 1\n6\n1 2 3 x 5 6\n", 0, "line 7: “x” in table 0 is not a number"),
        ("MARKOV 5000", 0, "a page shows up to 300"),
        ("", 9_000_000, "a page takes up to 8 MB"),
        ("", 8, "starts with"),
    ],
    ids=["good", "broken", "many", "huge", "binary"],
)
def test_files_that_are_dropped(visit, text, size, complaint):
    page = visit("network")
    page.evaluate(DROP, ["mine.uai", text, size])
    if complaint is None:
        page.wait_for_selector("h2:has-text('mine.uai')")
        page.wait_for_function(WORKED_OUT)
        assert page.evaluate("document.getElementById('app').view.model.cards") == [2, 3]
        shown = page.locator(".numbers").first.inner_text()
        assert f"{np.log(21):.6g}"[:6] in shown
        page.get_by_role("button", name=re.compile("^0:")).press("Enter")
        again = visit("network", "#" + page.url.split("#")[1])  # a link has not the file
        assert again.evaluate("document.getElementById('app').view.evidence") == {}
    else:
        page.wait_for_function("() => document.querySelector('.complaint').textContent !== ''")
        assert complaint in page.locator(".complaint").inner_text()
        assert "mine.uai" in page.locator(".complaint").inner_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_control_is_reached_by_tab(visit, name):
    """All that can be focused is focused in turn; of radio buttons of one name, one."""
    page = visit(name)
    wanted = page.evaluate(
        """() => {
      const all = [...document.querySelectorAll('button, select, input, [tabindex="0"]')];
      const open = all.filter((e) => !e.disabled && e.tabIndex >= 0 && e.checkVisibility());
      return new Set(open.map((e) => (e.type === 'radio' ? e.name : open.indexOf(e)))).size;
    }"""
    )
    reached = page.evaluate("() => { window.reached = new Set(); return 0; }")
    for _ in range(wanted + 3):
        page.keyboard.press("Tab")
        page.evaluate(
            "() => { const e = document.activeElement; if (e !== document.body) "
            "window.reached.add(e.type === 'radio' ? e.name : e); }"
        )
    reached = page.evaluate("window.reached.size")
    assert reached == wanted
    assert wanted > 8


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_no_width_scrolls_sideways_or_shifts(visit, name, width):
    page = visit(name, viewport={"width": width, "height": 900})
    page.evaluate(
        """() => { window.shift = 0; new PerformanceObserver((list) => {
      for (const e of list.getEntries()) window.shift += e.value;
    }).observe({ type: 'layout-shift', buffered: true }); }"""
    )
    page.wait_for_timeout(400)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("window.shift") < 0.05


def test_a_link_keeps_the_state(visit):
    page = visit("image")
    page.get_by_role("button", name="Clear").click()
    easel = page.get_by_role("application", name=re.compile("to paint"))
    easel.focus()
    for key in ("1", "ArrowLeft", "0"):
        easel.press(key)
    page.get_by_label("Uncertainty").check()
    page.get_by_role("button", name="Copy link").click()
    fragment = page.evaluate("location.hash")
    other = visit("image", fragment)
    state = "JSON.stringify(document.getElementById('app').view.state())"
    assert other.evaluate(state) == page.evaluate(state)
    broken = visit("image", "#bm9uc2Vuc2U")  # not JSON: the page opens as if there were none
    assert broken.evaluate("document.getElementById('app').view.shown") == "probability"


def test_the_tour_can_be_walked_and_left(visit):
    page = visit("table")
    opener = page.get_by_role("button", name="Take the tour")
    opener.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Next").press("Enter")
    assert "2 of" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    assert opener.evaluate("e => e === document.activeElement")


@pytest.mark.parametrize("name", ["image", "table", "network"])
def test_the_tour_does_not_hide_what_it_tells_of(visit, name):
    """On a phone its card takes half of the window: what it points at is above, if it fits."""
    page = visit(name, viewport={"width": 360, "height": 740})
    page.get_by_role("button", name="Take the tour").click()
    card = page.get_by_role("dialog")
    for _ in range(int(card.get_by_text(re.compile(r"^1 of \d$")).inner_text()[-1])):
        top = card.bounding_box()["y"]
        box = page.locator(".pointed").bounding_box()
        room = top - max(box["y"], 0)
        assert box["y"] >= -1 and room >= min(box["height"], 0.4 * top)
        card.get_by_role("button", name=re.compile("Next|Done")).click()
    assert card.count() == 0


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(
    ("theme", "width"), [("light", 1200), ("dark", 1200), ("light", 360), ("dark", 3840)]
)
def test_axe_has_no_serious_finding(visit, name, theme, width):
    if not AXE.is_file():
        pytest.skip(f"axe-core is not in {AXE}: npm install --prefix build axe-core")
    page = visit(name, color_scheme=theme, viewport={"width": width, "height": 900})
    page.wait_for_timeout(300)
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("async () => (await axe.run()).violations")
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    told = [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in serious]
    assert told == []


def test_a_served_page_asks_the_engine(browser):
    """Pixels are painted on the page, and the answers are those of `un.query`."""
    served = Served(picture_model(), image=(4, 4))
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    said, page = [], browser.new_page()
    page.on("console", lambda m: said.append(m.text) if m.type != "log" else None)
    page.goto(served.address)
    easel = page.get_by_role("application", name=re.compile("to paint"))
    easel.focus()
    for key in ("1", "ArrowLeft", "0"):
        easel.press(key)
    settled(page)
    row = np.full((1, 16), np.nan)
    row[0, 10], row[0, 9] = 1, 0
    for method in ("bp", "mf"):
        found = page.evaluate(f"document.getElementById('app').view.beliefs.{method}.mean")
        expected = un.query(picture_model(), row, method=method)[0]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert page.get_by_role("heading", name="Hidden units").count() == 0
    page.close()
    served.stop()
    thread.join(10)
    assert said == [] and not thread.is_alive()


def test_a_served_network_lists_its_variables_and_asks(browser):
    """Evidence by keyboard, and the answers of the engine, which are exact here."""
    served = Served(alarm())
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    said, page = [], browser.new_page()
    page.on("console", lambda m: said.append(m.text) if m.type != "log" else None)
    page.goto(served.address)
    done = "() => document.getElementById('app').view.settled"
    page.wait_for_function(done)
    page.get_by_label("Find variables by name").fill("CALL")
    assert page.locator(".asked tbody tr").count() == 1
    page.get_by_label("What is known of call").select_option("1")
    page.wait_for_function(done)
    page.get_by_label("Find variables by name").fill("")
    assert page.locator(".asked tbody tr").count() == 4
    assert page.locator(".asked tbody th").first.inner_text() == "call"  # what is known comes first
    found = page.evaluate("document.getElementById('app').view.answer")
    exact = un.query(alarm(), given={"call": 1}, method="exact")
    assert found["marginals"][3] == [0, 1]
    for v, name in enumerate(("burglary", "quake", "alarm")):
        np.testing.assert_allclose(found["marginals"][v], list(exact[name].values()), atol=1e-5)
    assert page.locator("aside [role=status]").inner_text().startswith("Exact, by")
    page.get_by_label("Changed most").check()
    assert page.locator(".asked tbody th").nth(1).inner_text() == "alarm"
    if AXE.is_file():
        page.evaluate(AXE.read_text("utf-8"))
        found = page.evaluate("async () => (await axe.run()).violations")
        assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
    served.stop()
    thread.join(10)
    assert said == [] and not thread.is_alive()


HOST = """
<!doctype html><html lang="en"><head><title>a notebook</title></head><body>
<div id="one"></div><div id="two"></div><script type="module">
import widget from "./widget.mjs";
function traits(values) {
  return { values, get: (k) => values[k], set: (k, v) => (values[k] = v), save_changes: () => {} };
}
const payload = await (await fetch("data:application/json;base64,PAYLOAD")).text();
for (const id of ["one", "two"]) {
  window[id + "Model"] = traits({ payload, state: null });
  widget.render({ model: window[id + "Model"], el: document.getElementById(id) });
}
</script></body></html>
"""


def test_the_script_of_the_widget_in_a_host_with_two_of_them(browser, tmp_path):
    """As a notebook loads it: the default export renders, and the state goes back to the model."""
    page_of = un.explore(picture_model(), image=(4, 4))
    (tmp_path / "widget.mjs").write_text(bundle() + WIDGET, encoding="utf-8")
    payload = base64.b64encode(json.dumps(page_of.payload).encode()).decode()
    (tmp_path / "host.html").write_text(HOST.replace("PAYLOAD", payload), encoding="utf-8")
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/host.html")
        page.wait_for_selector("#two main")
        first = page.locator("#one").get_by_role("application", name=re.compile("to paint"))
        first.focus()
        first.press("1")
        page.wait_for_function("() => window.oneModel.values.state?.known.includes('1')")
        page.locator("#one").get_by_label("Uncertainty").check()
        assert page.locator("#two").get_by_label("Probability", exact=True).is_checked()
        other = page.evaluate("Array.from(document.querySelector('#two > div').view.known)")
        assert other == [-1] * 16
        assert page.evaluate("location.hash") == ""
        server.shutdown()
        page.close()
