"""The explorer's page of an RBM 784x500: a sweep beside the compiled one, its size, its frames.

    taskset -c 0 python -m benchmarks.explorer

Both sweeps send 2 x 784 x 500 messages in single precision on one core, one at a time; the page's
is timed in a headless chromium (Playwright) by calls of `step`, which also counts the change, and
the compiled one by the difference between runs of 110 and of 10 sweeps. Both are best and median.
Frames are those of a stroke across the picture, rendered without a GPU. Beside what a clock on the
wall tells there is the CPU time, which other programs on the same cores do not lengthen as much.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

import undirected as un
from undirected.ops.bipartite import sum_product

SETTLED = "() => document.getElementById('app').view.runs.settled"
TIME = """([method, times]) => {
  const run = document.getElementById('app').view.model.run(method, {}), found = [];
  for (let i = 0; i < 10; i++) run.step();
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    for (let k = 0; k < 5; k++) run.step();
    found.push((performance.now() - start) / 5);
  }
  return found.sort((a, b) => a - b);
}"""
COUNT = """() => { window.times = [];
  const look = (time) => { window.times.push(time); requestAnimationFrame(look); };
  requestAnimationFrame(look); }"""


def model():
    rng = np.random.default_rng(0)

    def normal(scale: float, *shape: int):
        return jnp.asarray(rng.normal(0, scale, shape), jnp.float32)

    return un.RBM(normal(0.1, 784, 500), normal(0.5, 784), normal(0.5, 500))


def spread(times: list[float]) -> dict:
    return {"best_ms": round(min(times), 3), "median_ms": round(float(np.median(times)), 3)}


def compiled(rbm: un.RBM) -> dict:
    def timed(iterations: int) -> list[float]:
        work = partial(sum_product, iterations=iterations, tolerance=None, damping=0.0, gentle=True)
        call = jax.jit(work)
        arrays = rbm.weights, rbm.visible_bias, rbm.hidden_bias
        call(*arrays)[1].block_until_ready()
        found = []
        for _ in range(9):
            start = time.perf_counter()
            call(*arrays)[1].block_until_ready()
            found.append(time.perf_counter() - start)
        return sorted(found)

    few, many = timed(10), timed(110)
    return spread([10 * (b - a) for a, b in zip(few, many, strict=True)])


def cpu_seconds(page, session) -> dict:
    """CPU time so far: of the page's main thread by kinds of work, of whole processes."""
    told = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    found = {
        "main_thread": told["TaskDuration"],
        "of_it_script": told["ScriptDuration"],
        "of_it_layout": told["LayoutDuration"] + told["RecalcStyleDuration"],
    }
    processes = page.context.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    for process in processes["processInfo"]:
        name = {"GPU": "compositor", "renderer": "all_of_page"}.get(process["type"], "browser")
        found[name] = found.get(name, 0.0) + process["cpuTime"]
    return found


def stroke(page, session) -> dict:
    """Frames while a line is drawn across the picture, and the CPU time of one frame."""
    box = page.locator(".easel canvas").bounding_box()
    page.evaluate(COUNT)
    before = cpu_seconds(page, session)
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    for i in range(150):
        page.mouse.move(box["x"] + 40 + 2 * i, box["y"] + 40 + 1.5 * i)
        page.wait_for_timeout(15)
    page.mouse.up()
    gaps, after = np.diff(page.evaluate("window.times")), cpu_seconds(page, session)
    return {
        "a_second": round(1000 / gaps.mean(), 1),
        "median_ms": round(float(np.median(gaps)), 1),
        "cpu_ms": {k: round(1000 * (after[k] - before[k]) / len(gaps), 2) for k in before},
    }


def in_page(path: Path) -> dict:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(f"file://{path}")
        page.wait_for_selector("main")
        ready = page.evaluate("performance.now()")
        cpu = cpu_seconds(page, session)["main_thread"]
        page.wait_for_function(SETTLED)
        sweeps = {m: spread(page.evaluate(TIME, [m, 30])) for m in ("bp", "mf", "tap")}
        frames = stroke(page, session)
        pace = page.locator(".pace").inner_text()
        browser.close()
    return {
        "ready_ms": round(ready),
        "ready_cpu_ms": round(1000 * cpu),
        "sweeps": sweeps,
        "frames": frames,
        "pace": pace,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    rbm, folder = model(), Path(tempfile.mkdtemp())
    path = un.explore(rbm, image=(28, 28)).save(folder / "page.html")
    record = {"bytes": path.stat().st_size, "compiled": compiled(rbm), "page": in_page(path)}
    record["load"] = os.getloadavg()[0]
    record["cores"] = len(os.sched_getaffinity(0))
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
