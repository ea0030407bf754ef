"""`undirected demo`: learn digits, score the model, sample it, fill in what is hidden."""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from undirected import data
from undirected.cli import console
from undirected.cli.answer import Saved, log_partition, query, sample_given
from undirected.cli.train import Settings, column_means, train_model
from undirected.core.layout import log_normaliser
from undirected.data.corruption import drop_half, threshold
from undirected.evaluation import binary_cross_entropy, error_rate, log_likelihood
from undirected.io.metrics import read as read_metrics
from undirected.io.model_files import save_model
from undirected.report.images import filters, image_grid
from undirected.report.page import Image, Section, write_sections
from undirected.report.tables import Cell, Table

SHAPE = (28, 28)
SETTINGS = Settings(method="pcd", hidden=256, epochs=150, batch=100, learning_rate=2e-3)
HELD_OUT, QUERIES = 500, 100


def run_demo(out: Path, seed: int, as_json: bool) -> None:
    """The whole tour on 5,000 MNIST digits; writes a model folder and a page."""
    started = time.monotonic()
    out = Path(out)
    train, test = _digits(seed)
    console.say(f"{len(train):,} handwritten digits to learn from, {len(test)} held out")
    work = out / "training"
    (work / "metrics.jsonl").unlink(missing_ok=True)
    settings = Settings(**{**SETTINGS.__dict__, "seed": seed})
    result = train_model(train, test[:0], settings, work, "learning")
    saved = Saved(result.model, [], SHAPE, jnp.asarray(column_means(train)))
    save_model(out / "model", saved.model, {"image": SHAPE, "means": column_means(train).tolist()})
    rows, facts = _score(saved, train, test, seed)
    console.say("sampling new digits")
    samples = _samples(saved.model, seed)
    console.say(f"filling in the hidden half of {QUERIES} held-out digits by belief propagation")
    completion, more = _complete(saved, train, test[:QUERIES], seed)
    rows += more
    page = out / "index.html"
    _page(page, rows, saved.model, samples, completion, work / "metrics.jsonl", facts)
    seconds = round(time.monotonic() - started, 1)
    _show(rows, as_json, {"page": str(page), "model": str(out / "model"), "seconds": seconds})


def _digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    images = data.mnist5k()
    x = np.concatenate([part.x for part in (images.train, images.valid, images.test)])
    x = np.asarray(threshold(x), np.float32)
    order = np.random.default_rng(seed).permutation(len(x))
    return x[order[HELD_OUT:]], x[order[:HELD_OUT]]


def _score(
    saved: Saved, train: np.ndarray, test: np.ndarray, seed: int
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Test log-likelihood against that of independent pixels."""
    console.say("estimating the log-likelihood by annealed importance sampling")
    log_z, interval, _, agree = log_partition(saved, "ais", chains=100, betas=2000, seed=seed)
    ours = log_likelihood(saved.model, test, log_z)
    base = saved.model.independent(saved.means)
    base_log_z = float(log_normaliser(base.layout, base.lower().fields))
    theirs = log_likelihood(base, test, base_log_z)
    rows = [_row("test log-likelihood (nats)", theirs, ours, "higher")]
    low, high = interval
    facts = {"log Z": [f"{low:.2f} to {high:.2f} (99 %)", "settled" if agree else "not settled"]}
    return rows, facts


def _samples(model: Any, seed: int) -> np.ndarray:
    rows = jnp.full((100, model.n_visible), jnp.nan)
    chains = sample_given(model, rows, jax.random.key(seed + 1), 5000, 1, keep=True)
    return np.asarray(model.conditional(0, chains.x[-1]))


def _complete(
    saved: Saved, train: np.ndarray, test: np.ndarray, seed: int
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Hide the lower half of held-out digits and fill it in."""
    seen, hidden = drop_half(test, SHAPE, jax.random.key(seed), sides=["bottom"])
    seen, hidden = np.asarray(seen), np.asarray(hidden)
    answers, _ = query(saved.model, seen, "bp", jax.random.key(seed))
    guess = np.broadcast_to(column_means(train), test.shape)
    rows = []
    for name, score in (
        ("wrong hidden pixels", lambda p: error_rate(p > 0.5, test, hidden)),
        ("bits per hidden pixel", lambda p: binary_cross_entropy(p, test, hidden, unit="bits")),
    ):
        rows.append(_row(name, score(guess), score(answers), "lower"))
    return np.stack([test, seen, answers], 1), rows


def _row(metric: str, base: Any, ours: Any, better: str) -> dict[str, Any]:
    return {
        "metric": metric,
        "independent_pixels": base.mean,
        "rbm": ours.mean,
        "stderr": ours.stderr,
        "better": better,
    }


def _page(
    page: Path,
    rows: list[dict[str, Any]],
    model: Any,
    sample_fields: np.ndarray,
    completion: np.ndarray,
    metrics: Path,
    facts: dict[str, list[str]],
) -> None:
    history = read_metrics(metrics)
    table = Table(
        header=["measure", "independent pixels", "RBM"],
        rows=[
            [
                f"{row['metric']} ({row['better']} is better)",
                Cell(f"{row['independent_pixels']:.3f}"),
                Cell(f"{row['rbm']:.3f}", f"± {row['stderr']:.3f}", better=True),
            ]
            for row in rows
        ],
    )
    shown = completion[:20].reshape(-1, completion.shape[-1])
    curve = {
        "name": "Gap of free energies, data against chains",
        "x_label": "step",
        "y_label": "surrogate (not a likelihood)",
        "series": [
            {
                "name": "surrogate",
                "x": [row["step"] for row in history],
                "y": [row["surrogate"] for row in history],
            }
        ],
    }
    sections = [
        Section(
            "What it learned",
            "A restricted Boltzmann machine with 256 hidden units, trained on 4,500 handwritten "
            "digits by persistent contrastive divergence, against a model that knows only how "
            "often each pixel is on. Held-out digits; the partition function by annealed "
            "importance sampling.",
            table=table,
            facts=facts,
        ),
        Section(
            "Filling in what is hidden",
            "The model sees the upper half of a held-out digit and answers with the probability of "
            "every hidden pixel. In threes: the digit, what the model sees, its answer.",
            images=[Image(image_grid(shown, SHAPE, columns=12), "digit, seen, answer")],
        ),
        Section(
            "New digits",
            "One sample each of 100 independent Gibbs chains, started from noise.",
            images=[
                Image(
                    image_grid(1 / (1 + np.exp(-sample_fields)), SHAPE, columns=20),
                    "samples (probabilities of the last half-step)",
                )
            ],
        ),
        Section(
            "Inside",
            "What the first 60 hidden units look for.",
            images=[
                Image(
                    filters(np.asarray(model.weights).T[:60], SHAPE, columns=20),
                    "weights: blue below zero, red above",
                )
            ],
            curves=[curve],
        ),
    ]
    write_sections(sections, page, "undirected: a first tour")


def _show(rows: list[dict[str, Any]], as_json: bool, where: dict[str, Any]) -> None:
    if as_json:
        console.result({**where, "rows": rows}, True)
        return
    from rich.table import Table as RichTable

    table = RichTable(title="Held-out digits")
    for name in ("measure", "independent pixels", "RBM"):
        table.add_column(name, justify="left" if name == "measure" else "right")
    for row in rows:
        ours = f"{row['rbm']:.3f} ± {row['stderr']:.3f}"
        table.add_row(row["metric"], f"{row['independent_pixels']:.3f}", ours)
    console.out.print(table)
    console.out.print(f"Wrote {where['page']} in {where['seconds']:.0f} s: open it in a browser.")
