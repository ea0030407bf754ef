"""The widget in notebooks that really run: nbclient, JupyterLab and marimo, in a headless browser.

Needs the dependency group `notebooks`, Playwright and a chromium of the system.
"""

import importlib.util
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest

import undirected as un
from tests.explorer.test_browser import CHROMIUM, engine, picture_model, playwright

MISSING = [
    name
    for name in ("anywidget", "ipykernel", "jupyterlab", "marimo", "nbclient")
    if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

MODEL = """
import jax.numpy as jnp, numpy as np
import undirected as un
rng = np.random.default_rng(0)
arrays = rng.normal(0, 0.7, (16, 5)), rng.normal(0, 0.5, 16), rng.normal(0, 0.5, 5)
model = un.RBM(*(jnp.asarray(a, jnp.float32) for a in arrays))
shown = un.explore(model, image=(4, 4)).widget()
"""
# marimo puts widgets into shadow roots, which locators see and `document` does not.
MEANS = "root => Array.from(root.view.beliefs.bp.mean)"
SETTLED = """root => new Promise((done) => {
  const look = () => (root.view?.runs.settled ? done() : setTimeout(look, 50));
  look();
})"""


def environment(folder):
    """Settings of the user's own notebooks stay out of it."""
    names = "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"
    own = {name: str(folder / name.lower()) for name in (*names, "XDG_CONFIG_HOME")}
    return os.environ | own | {"JAX_PLATFORMS": "cpu", "NO_COLOR": "1"}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def serving(command, address, folder):
    """A server in a process group of its own, from its first answer on."""
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        for _ in range(240):
            assert server.poll() is None, (folder / "server.log").read_text()
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                time.sleep(0.25)
        else:
            raise AssertionError((folder / "server.log").read_text())
        yield
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        log.close()


@pytest.fixture
def page():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser.new_page(viewport={"width": 1400, "height": 1000})
        browser.close()


def paint(page):
    """The pixel in row 3, column 3 on, and the one to its left off; the marginals that come."""
    easel = page.get_by_role("application", name=re.compile("to paint"))
    easel.wait_for(timeout=120_000)
    root = page.locator(".explore")
    root.evaluate(SETTLED)
    before = root.evaluate(MEANS)
    easel.focus()
    for key in ("1", "ArrowLeft", "0"):
        easel.press(key)
    root.evaluate(SETTLED)
    return before, root.evaluate(MEANS)


def check(before, after):
    np.testing.assert_allclose(before, engine({})[:16], atol=1e-5)
    np.testing.assert_allclose(after, engine({10: 1, 9: 0})[:16], atol=1e-5)
    assert np.abs(np.subtract(after, before)).max() > 0.1


def notebook():
    import nbformat

    cells = [MODEL + "shown", "print('kept', (shown.state or {}).get('known'))"]
    cells = [nbformat.v4.new_code_cell(text) for text in cells]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def test_a_kernel_gives_the_widget(tmp_path, monkeypatch):
    """nbclient runs the notebook; its output is a view of a widget that holds page and model."""
    import nbclient

    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    done = nbclient.NotebookClient(notebook(), timeout=120, kernel_name="python3").execute()
    views = [out["data"] for out in done.cells[0].outputs if "data" in out]
    (view,) = (v["application/vnd.jupyter.widget-view+json"] for v in views)
    state = done.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    held = state[view["model_id"]]["state"]
    assert held["payload"] == un.explore(picture_model(), image=(4, 4)).widget().payload
    assert "mount(root" in held["_esm"] and held["state"] is None
    assert done.cells[1].outputs[0]["text"] == "kept None\n"


def test_the_widget_in_jupyterlab(tmp_path, page):
    """Pixels are painted in the notebook; marginals are the engine's, and the kernel knows them."""
    import nbformat

    nbformat.write(notebook(), tmp_path / "shown.ipynb")
    port, token = free_port(), secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--ServerApp.port={port}", f"--IdentityProvider.token={token}"]
    command += [f"--ServerApp.root_dir={tmp_path}", "--LabApp.news_url=None"]
    root = f"http://127.0.0.1:{port}"
    with serving(command, f"{root}/api/status?token={token}", tmp_path):
        page.goto(f"{root}/lab/tree/shown.ipynb?token={token}")
        cell = page.locator(".jp-CodeCell .cm-content").first
        page.get_by_text("(ipykernel) | Idle").wait_for(timeout=60_000)
        cell.click()
        page.keyboard.press("Shift+Enter")
        before, after = paint(page)
        page.wait_for_timeout(800)  # the state goes to the kernel a moment after the last stroke
        page.locator(".jp-CodeCell .cm-content").nth(1).click()
        page.keyboard.press("Shift+Enter")
        told = page.locator(".jp-OutputArea-output", has_text="kept").first
        told.wait_for(timeout=30_000)
        said = told.inner_text()
    check(before, after)
    assert said.strip() == "kept .(9)01.(5)"


MARIMO = """
import marimo
app = marimo.App()

@app.cell
def _():
    import marimo as mo
    {model}
    return mo, shown

@app.cell
def _(mo, shown):
    held = mo.ui.anywidget(shown)
    held
    return (held,)

@app.cell
def _(held, mo):
    mo.md("kept " + str((held.value.get("state") or {{}}).get("known")))
    return

if __name__ == "__main__":
    app.run()
"""


def test_the_widget_in_marimo(tmp_path, page):
    """Pixels are painted; a cell that depends on the widget is run again with them."""
    source = MARIMO.format(model="\n    ".join(MODEL.strip().splitlines()))
    (tmp_path / "shown.py").write_text(source, encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "marimo", "run", "shown.py", "--headless", "--no-token"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with serving(command, f"http://127.0.0.1:{port}/health", tmp_path):
        page.goto(f"http://127.0.0.1:{port}/")
        before, after = paint(page)
        told = page.get_by_text("kept .(9)01.(5)")
        told.wait_for(timeout=30_000)
    check(before, after)
