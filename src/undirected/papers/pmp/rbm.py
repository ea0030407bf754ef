"""Section 5.5, Figure 3: an RBM of MNIST digits, learned and sampled by several methods."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from undirected.core.protocols import Kernel
from undirected.data import mnist
from undirected.evaluation import log_mmd
from undirected.experiments.claims import Claim, everywhere
from undirected.experiments.fitting import EachModel, PersistentSeeds, SeedBatches, fit
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context, restore, store
from undirected.io.checkpoint import Checkpoints
from undirected.learning import Batches, Persistent, Progress, stack
from undirected.models import RBM
from undirected.papers.pmp import _common
from undirected.report.images import image_grid

SHAPE = (28, 28)
PIXELS = 784
TITLE = "Restricted Boltzmann machines on MNIST (Section 5.5)"
_FULL = {
    "rows": 60_000,
    "hidden": 500,
    "rate": 0.01,
    "epochs": 200,
    "batch": 100,
    "chains": 100,
    "sweeps": 100,
    "methods": ["PMP", "Gibbs-reset", "PCD-1", "PCD-100"],
    "test_sweeps": [5, 10, 25, 50, 100, 200, 500, 1000, 2000],
    "samples": 10_000,
    "chunk": 1000,
    "bias_scale": 1.0,
    "completions": 100,
    "twos": {
        "rows": 5000,
        "hidden": 250,
        "rate": 0.01,
        "steps": 1000,
        "batch": 50,
        "samples": 1000,
    },
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "rows": 100,
        "hidden": 8,
        "epochs": 1,
        "batch": 50,
        "chains": 5,
        "sweeps": 2,
        "methods": ["PMP"],
        "test_sweeps": [2],
        "samples": 10,
        "chunk": 10,
        "completions": 5,
        "twos": {"rows": 50, "hidden": 4, "rate": 0.01, "steps": 2, "batch": 10, "samples": 10},
    },
    "quick": {
        **_FULL,
        "rows": 5000,
        "hidden": 64,
        "rate": 0.05,
        "epochs": 10,
        "chains": 50,
        "sweeps": 15,
        "methods": ["PMP", "Gibbs-reset", "PCD-1"],
        "test_sweeps": [5, 15, 50],
        "samples": 500,
        "chunk": 250,
        "bias_scale": 0.1,
        "twos": {
            "rows": 500,
            "hidden": 64,
            "rate": 0.01,
            "steps": 200,
            "batch": 50,
            "samples": 250,
        },
    },
    "full": _FULL,
}

CLAIMS = [
    Claim(
        "Samples of an RBM learned and drawn by perturb-and-max-product are nearer to the digits "
        "than those of Gibbs learners, from 25 to 500 sweeps.",
        "read off Figure 3",
        everywhere(
            [f"{sweeps} sweeps" for sweeps in _FULL["test_sweeps"] if 25 <= sweeps <= 500],
            "log MMD^2",
            "PMP",
            ["Gibbs-reset", "PCD-1", "PCD-100"],
        ),
    ),
]

Learned = dict[str, np.ndarray]
PMP_ALONE = "PMP"
"""The method whose seeds are learned one after the other: a single one fills a GPU."""


@dataclass(frozen=True)
class Digits:
    """Binary images: a pixel is 1 where its grey value is above half of 255."""

    train: Float[np.ndarray, "rows 784"]
    test: Float[np.ndarray, "some 784"]
    twos: Float[np.ndarray, "twos 784"]


def load_digits(config: dict[str, Any]) -> Digits:
    """Training digits, those to be completed, and the training twos."""
    found = mnist()
    assert found.train.y is not None
    twos = found.train.x[np.asarray(found.train.y) == 2][: config["twos"]["rows"]]
    train, test = found.train.x[: config["rows"]], found.test.x[: config["completions"]]
    return Digits(*(_common.binary(x) for x in (train, test, twos)))


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """log MMD^2 of samples of every learned model, for growing numbers of sweeps."""
    digits = load_digits(config)

    def learned(method: str) -> Learned:
        return _learn_one(method, digits, config, seed, context)

    return _report(learned, digits, config, seed, context, "")


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds: models learned with Gibbs chains side by side, PMP in turn."""
    digits = load_digits(config)
    stacks = {
        method: context.stage(
            f"learn, {method}", partial(_learn_all, method, digits.train, config, seeds, context)
        )
        for method in config["methods"]
        if method != PMP_ALONE
    }

    def learned(i: int, method: str) -> Learned:
        if method == PMP_ALONE:
            return _learn_one(method, digits, config, seeds[i], context, f", seed {seeds[i]}")
        return {name: leaf[i] for name, leaf in stacks[method].items()}

    return [
        _report(partial(learned, i), digits, config, seed, context, f", seed {seed}", i == 0)
        for i, seed in enumerate(seeds)
    ]


def _learn_one(
    method: str,
    digits: Digits,
    config: dict[str, Any],
    seed: int,
    context: Context,
    tail: str = "",
) -> Learned:
    """A stage that learns one model."""
    name = f"learn, {method}{tail}"
    saved = Checkpoints(context.scratch / f"{method}{tail}")
    tell = partial(_tell, context, name)
    work = partial(_learn, _digits(method, config), digits.train, seed, saved, tell)
    return context.stage(name, work)


def _tell(context: Context, name: str, now: Progress) -> None:
    context.progress(f"{name}: {now.step} of {now.total} steps", now.step / max(now.total, 1))


def _report(
    learned: Callable[[str], Learned],
    digits: Digits,
    config: dict[str, Any],
    seed: int,
    context: Context,
    tail: str,
    shown: bool = True,
) -> Outcome:
    """Rows of every model; stages end on `tail`, and images are drawn where they are shown."""
    rows: list[Row] = []
    data, test = digits.train, digits.test
    lines, sheet, completed = {}, [data[:10]], [test[:10], _upper(test[:10])]
    for method in config["methods"]:
        model = learned(method)
        found = context.stage(
            f"sample, {method}{tail}", partial(_score, method, model, data, config, seed)
        )
        for sweeps, score in zip(config["test_sweeps"], found["scores"], strict=True):
            case = f"{sweeps} sweeps"
            rows.append(Row(case, method, "log MMD^2", float(score), n=1, better="lower"))
        spent = float(found["seconds"])
        rows.append(Row("sampling", method, "seconds per sample", spent, n=1, better="lower"))
        lines[method] = config["test_sweeps"], [float(s) for s in found["scores"]]
        sheet.append(found["samples"])
        halves = context.stage(
            f"complete, {method}{tail}", partial(_complete, method, model, test, config, seed)
        )
        score = log_mmd(halves["x"], test)
        case = "lower halves given upper ones"
        rows.append(Row(case, method, "log MMD^2", score, n=1, better="lower"))
        completed += [halves["x"][:10], halves["again"][:10]]
    twos = context.stage(f"twos{tail}", partial(_twos, digits.twos, config, seed))
    for method, score in zip(("PMP", "Gibbs-reset"), twos["scores"], strict=True):
        rows.append(Row("twos", method, "log MMD^2", float(score), n=1, better="lower"))
    sheets = {"samples": sheet, "completions": completed, "twos": [twos["samples"]]}
    return Outcome(
        rows=rows,
        curves=[curve("sample quality", "sweeps", "log MMD^2", lines)],
        images=_images(sheets, config, context) if shown else (),
        notes=_notes(config),
    )


def _images(
    sheets: dict[str, list[np.ndarray]], config: dict[str, Any], context: Context
) -> list[dict[str, str]]:
    methods = ", ".join(config["methods"])
    captions = {
        "samples": f"Data, then {methods}: states after {_shown(config)} sweeps",
        "completions": f"Test digits, upper halves, then two completions each by {methods}",
        "twos": "Twos: data, PMP, Gibbs-reset",
    }
    for name, sheet in sheets.items():
        image_grid(np.concatenate(sheet), SHAPE, context.out / f"{name}.png", scale=2)
    return [
        {"name": name, "caption": caption, "file": f"{name}.png"}
        for name, caption in captions.items()
    ]


def _notes(config: dict[str, Any]) -> list[str]:
    return [
        f"{config['epochs']} epochs of plain gradient descent; the hidden units are summed out "
        "in both phases. Gibbs chains go on from one number of sweeps to the next, PMP starts "
        "afresh. Biases of the start are drawn apart; the authors' program draws those of both "
        "layers with one key.",
        f"Completions: {config['sweeps']} sweeps with the upper half held, scored against the "
        "whole test digits.",
        "Seconds per sample are of the last number of sweeps: for PMP of all of them, for "
        "Gibbs chains of those since the number before.",
    ]


def _digits(method: str, config: dict[str, Any]) -> dict[str, Any]:
    """How a model of all digits is learned."""
    steps = Batches(np.zeros((config["rows"], 1)), config["batch"]).steps(config["epochs"])
    kernels: dict[str, Kernel] = {
        "PMP": _common.kernel("PMP", config["sweeps"], 0),
        "Gibbs-reset": _common.kernel("block Gibbs-reset", config["sweeps"], 0),
        "PCD-1": _common.kernel("block Gibbs", 1, 0),
        "PCD-100": _common.kernel("block Gibbs", 100, 0),
    }
    return {
        "kernel": kernels[method],
        "optimiser": optax.sgd(config["rate"]),
        "steps": steps,
        **{name: config[name] for name in ("batch", "chains", "hidden", "bias_scale")},
    }


def _shown(config: dict[str, Any]) -> int:
    """The number of sweeps whose samples are shown: that of learning, or the nearest below."""
    below = [s for s in config["test_sweeps"] if s <= config["sweeps"]]
    return max(below, default=config["test_sweeps"][0])


def _skeleton(hidden: int, bias_scale: float, seed: int) -> RBM:
    """W ~ N(0, 0.01^2) and biases ~ N(0, 1), as the program has it; N(0, 0.01) in the text."""
    w_key, v_key, h_key = jax.random.split(jax.random.key(seed), 3)
    return RBM(
        0.01 * jax.random.normal(w_key, (PIXELS, hidden)),
        bias_scale * jax.random.normal(v_key, (PIXELS,)),
        bias_scale * jax.random.normal(h_key, (hidden,)),
    )


def _learn(
    how: dict[str, Any],
    data: Float[np.ndarray, "rows 784"],
    seed: int,
    saved: Checkpoints | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Learned:
    """The parameters of a model; a run that was stopped goes on from its last checkpoint."""
    model = fit(
        _skeleton(how["hidden"], how["bias_scale"], seed),
        Persistent(how["kernel"], chains=how["chains"]),
        how["optimiser"],
        Batches(data, how["batch"], seed),
        jax.random.key(seed),
        steps=how["steps"],
        store=saved,
        save_every=30.0,
        on_event=tell,
    ).model
    return store(model)


def _learn_all(
    method: str,
    data: Float[np.ndarray, "rows 784"],
    config: dict[str, Any],
    seeds: list[int],
    context: Context,
) -> Learned:
    """The same for several seeds side by side; the parameters lead with an axis over them."""
    how = _digits(method, config)
    kernel, size = how["kernel"], how["bias_scale"]
    model = fit(
        stack([_skeleton(how["hidden"], size, seed) for seed in seeds]),
        PersistentSeeds(Persistent(kernel, chains=how["chains"]), kernel=EachModel(kernel)),
        how["optimiser"],
        SeedBatches(data, how["batch"], seeds=tuple(seeds)),
        jax.random.key(seeds[0]),
        steps=how["steps"],
        store=Checkpoints(context.scratch / method),
        save_every=30.0,
        on_event=partial(_tell, context, f"learn, {method}"),
    ).model
    return store(model)


def _upper(x: Float[np.ndarray, "rows 784"]) -> Float[np.ndarray, "rows 784"]:
    """Images with their lower half blank."""
    return np.where(np.arange(PIXELS) < PIXELS // 2, x, 0.0)


def _complete(
    method: str,
    learned: dict[str, np.ndarray],
    test: Float[np.ndarray, "rows 784"],
    config: dict[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """Two samples of the lower half of every test digit, given its upper half."""
    model = restore(_skeleton(config["hidden"], config["bias_scale"], seed), learned)
    name = "PMP" if method == "PMP" else "block Gibbs"
    kernel = _common.Fresh(_common.kernel(name, config["sweeps"], 0))
    free = jnp.arange(model.layout.n) >= PIXELS // 2
    digits = jnp.pad(jnp.asarray(test), ((0, 0), (0, model.n_hidden)))

    def draw(key: Key[Array, ""]) -> np.ndarray:
        state = kernel.init(model, digits, key)
        x = eqx.filter_jit(kernel.step)(model, state, free, key)[0].x
        return np.asarray(x[:, :PIXELS], np.float32)

    keys = jax.random.split(jax.random.key(seed + 1))
    return {"x": draw(keys[0]), "again": draw(keys[1])}


def _twos(
    data: Float[np.ndarray, "twos 784"], config: dict[str, Any], seed: int
) -> dict[str, np.ndarray]:
    """Models of the digit two alone, by PMP and by Gibbs chains that start anew."""
    twos, sweeps = config["twos"], config["sweeps"]
    some = data[: twos["samples"]]
    scores, sheet = [], [some[:10]]
    for name in ("PMP", "block Gibbs-reset"):
        kernel = _common.kernel(name, sweeps, 0)
        how = {
            **twos,
            "kernel": kernel,
            "optimiser": optax.adam(twos["rate"]),
            "chains": twos["batch"],
            "bias_scale": config["bias_scale"],
        }
        model = restore(
            _skeleton(twos["hidden"], config["bias_scale"], seed), _learn(how, data, seed)
        )
        test = _common.kernel(name.removesuffix("-reset"), sweeps, 0)
        x, _ = _common.draw(test, model, len(some), jax.random.key(seed + 2), config["chunk"])
        scores.append(log_mmd(x[:, :PIXELS], some))
        sheet.append(x[:10, :PIXELS])
    return {"scores": np.asarray(scores), "samples": np.concatenate(sheet).astype(np.float32)}


def _score(
    method: str,
    learned: dict[str, np.ndarray],
    data: Float[np.ndarray, "rows 784"],
    config: dict[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """log MMD^2 after each number of sweeps, samples, and the time of one sample."""
    model = restore(_skeleton(config["hidden"], config["bias_scale"], seed), learned)
    rng = np.random.default_rng(seed)
    some = data[rng.choice(len(data), min(config["samples"], len(data)), replace=False)]
    scores, shown, spent, x, done = [], some[:10], 0.0, None, 0
    for sweeps in config["test_sweeps"]:
        key = jax.random.fold_in(jax.random.key(seed), sweeps)
        extra = sweeps if method == "PMP" else sweeps - done
        name = "PMP" if method == "PMP" else "block Gibbs"
        start = None if method == "PMP" else x
        kernel = _common.kernel(name, extra, 0)
        x, spent = _common.draw(kernel, model, config["samples"], key, config["chunk"], start)
        done = sweeps
        scores.append(log_mmd(x[:, :PIXELS], some))
        if sweeps == _shown(config):
            shown = x[:10, :PIXELS]
    return {"scores": np.asarray(scores), "samples": shown, "seconds": np.asarray(spent)}
