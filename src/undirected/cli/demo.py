"""`undirected demo`: restore hidden patches of digits; learn, score and sample a model of them."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from undirected import data
from undirected.cli import console
from undirected.cli.answer import Saved
from undirected.cli.restore import SIDE, restore
from undirected.cli.train import train_with_bar
from undirected.core.errors import UndirectedError
from undirected.core.files import check_folder
from undirected.core.units import log_normaliser
from undirected.data.corruption import drop_half, threshold
from undirected.evaluation import Estimate, binary_cross_entropy, error_rate, log_likelihood
from undirected.experiments.record import curve
from undirected.explorer.page import explore
from undirected.io.model_files import save_model
from undirected.report.images import filters, image_grid
from undirected.report.page import Image, Section, write_sections
from undirected.report.tables import pivot
from undirected.tasks import Settings, log_partition, query
from undirected.tasks.sample import sample_units
from undirected.tasks.train_table import column_means

SHAPE = (28, 28)
SETTINGS = Settings(
    model="rbm", method="pcd", hidden=256, epochs=120, batch=100, learning_rate=1e-3
)
QUERIES = 100


def _free_folder(out: Path) -> Path:
    """The folder to write to; one that holds a model of something else is refused."""
    check_folder(out)
    if (Path(out) / "model").exists() and not (Path(out) / "explore.html").is_file():
        raise UndirectedError(
            f"demo: {Path(out) / 'model'} is there and not of a demo; choose another --out"
        )
    return Path(out)


def run_demo(out: Path, seed: int, as_json: bool) -> None:
    """The whole tour on 5,000 MNIST digits; writes a model folder and a page."""
    started = time.monotonic()
    out = _free_folder(out)
    train, test = _digits()
    console.say(f"{len(train):,} handwritten digits to learn from, {len(test)} held out")
    seen, errors, answers = restore(train, test, SHAPE, seed)
    restored = [
        _row("hidden pixels filled in wrong (patch)", "lower", name, wrong)
        for name, wrong in errors.items()
    ]
    patches = np.stack([test, seen, *answers.values()])[:, :24].reshape(-1, test.shape[1])
    settings = replace(SETTINGS, seed=seed, validation=0.0)
    with tempfile.TemporaryDirectory() as work:
        result = train_with_bar(train, settings, Path(work), "learning").result
    means = column_means(train)
    saved = Saved(result.model, [], SHAPE, jnp.asarray(means))
    scores, facts = _score(saved, test, seed)
    console.say("sampling new digits")
    samples = _samples(saved.model, seed)
    console.say(f"filling in the hidden half of {QUERIES} held-out digits")
    pictures, more = _complete(saved, means, test[:QUERIES], seed)
    page = out / "index.html"
    sections = [_restored(restored, patches, list(answers))]
    sections += _generative(scores, more, saved.model, samples, pictures, facts, result.history)
    write_sections(sections, page, "undirected: a first tour")
    shown = explore(saved.model, rows=test[:40], image=SHAPE, title="Handwritten digits")
    explorer = shown.save(out / "explore.html")
    save_model(out / "model", saved.model, {"image": SHAPE, "means": means.tolist()})
    where = {
        "page": str(page),
        "explorer": str(explorer),
        "model": str(out / "model"),
        "seconds": round(time.monotonic() - started, 1),
    }
    _show(restored + scores + more, as_json, where)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Digits as black and white pixels: to learn from, and held out."""
    images = data.mnist5k()
    return _black_and_white(images.train.x), _black_and_white(images.test.x)


def _black_and_white(x: np.ndarray) -> np.ndarray:
    return np.asarray(threshold(jnp.asarray(x)), np.float32)


def _score(
    saved: Saved, test: np.ndarray, seed: int
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Test log-likelihood against that of independent pixels."""
    console.say("estimating the log-likelihood by annealed importance sampling")
    log_z = log_partition(
        saved.model, method="ais", means=saved.means, chains=100, betas=3000, seed=seed
    )
    base = saved.model.independent(saved.means)
    base_log_z = float(log_normaliser(base.layout, base.lower().fields))
    metric = "log-likelihood per digit (nats)"
    rows = [
        _row(metric, "higher", "independent pixels", log_likelihood(base, test, base_log_z)),
        _row(metric, "higher", "RBM", log_likelihood(saved.model, test, log_z.value)),
    ]
    low, high = log_z.interval
    meet = log_z.sides is None or log_z.sides.meet
    meet = "estimates from below and above meet" if meet else "the two estimates do not meet"
    return rows, {"log Z of the RBM": [f"{low:.1f} to {high:.1f} (99 %)", meet]}


def _samples(model: Any, seed: int) -> np.ndarray:
    """Pixel probabilities at the end of 100 chains that started from noise."""
    row = np.full(model.n_visible, np.nan, np.float32)
    units = sample_units(model, 100, row, jax.random.key(seed + 1), sweeps=5000)
    return np.asarray(jax.nn.sigmoid(model.conditional(0, jnp.asarray(units))))


def _complete(
    saved: Saved, means: np.ndarray, test: np.ndarray, seed: int
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Hide the lower half of held-out digits and fill it in; pictures and scores."""
    seen, hidden = drop_half(jnp.asarray(test), SHAPE, jax.random.key(seed), sides=["bottom"])
    seen, hidden = np.asarray(seen), np.asarray(hidden)
    answers = {"independent pixels": np.broadcast_to(means, test.shape)}
    for name, method in (("RBM, belief propagation", "bp"), ("RBM, Gibbs sampling", "gibbs")):
        answers[name] = query(saved.model, seen, method=method, seed=seed)
    rows = []
    for name, p in answers.items():
        wrong = error_rate(p > 0.5, test, hidden)
        rows.append(_row("hidden pixels filled in wrong", "lower", name, wrong))
    for name, p in answers.items():
        bits = binary_cross_entropy(p, test, hidden, unit="bits")
        rows.append(_row("bits per hidden pixel", "lower", name, bits))
    return np.stack([test, seen, answers["RBM, belief propagation"]], 1), rows


def _row(metric: str, better: str, method: str, estimate: Estimate) -> dict[str, Any]:
    return {
        "case": "held-out digits",
        "method": method,
        "metric": metric,
        "ours": estimate.mean,
        "stderr": estimate.stderr,
        "n": estimate.n,
        "paper": None,
        "better": better,
    }


def _restored(rows: list[dict[str, Any]], patches: np.ndarray, methods: list[str]) -> Section:
    return Section(
        "Restoring what is covered",
        f"A patch of {SIDE}x{SIDE} pixels is covered, and a conditional RBM answers with the whole "
        "digit. Learned by belief propagation it completes strokes that a logistic regression, one "
        f"for every pixel, only blurs. Rows: the digit, what is seen, {', '.join(methods)}.",
        table=pivot({"rows": rows}),
        images=[Image(image_grid(patches, SHAPE, columns=24), "digit, seen, answers")],
    )


def _generative(
    scores: list[dict[str, Any]],
    more: list[dict[str, Any]],
    model: Any,
    samples: np.ndarray,
    pictures: np.ndarray,
    facts: dict[str, list[str]],
    history: list[dict[str, float]],
) -> list[Section]:
    steps = [row["step"] for row in history]
    gap = curve(
        "Free energy of the data minus that of the chains",
        "step",
        "nats (a surrogate, not a likelihood)",
        {"surrogate": (steps, [row["surrogate"] for row in history])},
    )
    shown = pictures[:20].reshape(-1, pictures.shape[-1])
    weights = filters(np.asarray(model.weights).T[:60], SHAPE, columns=20)
    return [
        Section(
            "A model of digits",
            f"A restricted Boltzmann machine with {SETTINGS.hidden} hidden units learned "
            "handwritten digits by persistent contrastive divergence. It is scored on digits it "
            "never saw, beside a model that knows only how often each pixel is on. The partition "
            "function is estimated by annealed importance sampling, from below and from above.",
            table=pivot({"rows": scores}),
            facts=facts,
        ),
        Section(
            "Filling in what is hidden",
            "The model sees the upper half of a held-out digit and answers with the probability of "
            "every hidden pixel. In threes: the digit, what the model sees (blue is hidden), what "
            "belief propagation answers. Belief propagation is quick and more certain than it "
            "should be; Gibbs sampling takes its time and is better calibrated.",
            table=pivot({"rows": more}),
            images=[Image(image_grid(shown, SHAPE, columns=12), "digit, seen, answer")],
        ),
        Section(
            "New digits",
            "The end of 100 independent Gibbs chains that started from noise.",
            images=[Image(image_grid(samples, SHAPE, columns=20), "pixel probabilities")],
        ),
        Section(
            "Inside",
            "What the first 60 hidden units look for, and how learning went.",
            images=[Image(weights, "weights: blue below zero, red above")],
            curves=[gap],
        ),
    ]


def _show(rows: list[dict[str, Any]], as_json: bool, where: dict[str, Any]) -> None:
    if as_json:
        console.result({**where, "rows": rows}, True)
        return
    from rich.table import Table

    table = Table(title="Held-out digits")
    for name in ("measure", "method", "value"):
        table.add_column(name, justify="right" if name == "value" else "left")
    for row in rows:
        label = f"{row['metric']} ({row['better']} is better)"
        table.add_row(label, row["method"], f"{row['ours']:.3f} ± {row['stderr']:.3f}")
    console.out.print(table)
    console.out.print(f"Wrote {where['page']} in {where['seconds']:.0f} s: open it in a browser.")
    console.out.print(f"Wrote {where['explorer']}: paint a digit and see the model complete it.")
