"""`python -m benchmarks rbm_kernels`: RBMs of MNIST digits, by the kernel they are trained with.

Every kernel trains for the same CPU seconds, compilation apart, at the learning rate that is best
on validation digits after a third of them; so does the package rbms, at the best of its settings.
The models are scored alike: log Z by annealing in both directions, its interval told.

`--only` runs the method it names; the record is renewed after every run.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import undirected as un
from benchmarks.environments import prepare
from benchmarks.saving import docs_page, make_record, save
from undirected.experiments.record import Row, read
from undirected.learning import Batches
from undirected.learning import fit as run_fit
from undirected.learning.centring import centred
from undirected.sampling import ladder
from undirected.tasks.learn import falling_adam

TITLE = "Kernels that train an RBM"
SCORE, WIDTH = "log-likelihood of a test digit (nats)", "nats that log Z is known to"
CPU, UPDATES = "CPU seconds of training", "updates"
PEER = "rbms, PCD"
VALIDATION, KNOWN = 5000, 10.0
BATCH, CHUNKS = 100, 20
Setting = dict[str, float]


class Digits(NamedTuple):
    """Rows of 0 and 1."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @property
    def means(self) -> jax.Array:
        return jnp.asarray(self.train.mean(0))


class Trained(NamedTuple):
    """A model, and what it took."""

    model: un.RBM
    seconds: float
    updates: int


@cache
def digits() -> Digits:
    """MNIST, white where a pixel is above half; the last training digits are for validation."""
    from undirected.data import mnist

    found = mnist()
    train, test = ((np.asarray(part.x) > 127) for part in (found.train, found.test))
    train, test = (a.reshape(len(a), -1).astype(np.float32) for a in (train, test))
    return Digits(train[:-VALIDATION], train[-VALIDATION:], test)


def objectives() -> dict[str, Any]:
    """Ours, by name."""
    gibbs = un.BlockGibbs()

    def from_means(model: un.RBM) -> un.ModelPath:
        return un.ModelPath(model.independent(digits().means), model)

    tempering = un.ParallelTempering(gibbs, from_means, ladder(0.8, 5))
    perturbed = un.PerturbAndMap(un.MaxProduct(5, None, 0.5, parallel=True))
    return {
        "CD-1": un.ContrastiveDivergence(gibbs),
        "PCD, block Gibbs": un.Persistent(gibbs, BATCH),
        "PCD, parallel tempering": un.Persistent(tempering, BATCH // 2),
        "PCD, perturb-and-max-product": un.Persistent(perturbed, BATCH // 5),
    }


def settings(method: str) -> list[Setting]:
    """What is tried on validation digits."""
    return [{"rate": rate} for rate in ((0.1, 0.3, 1.0) if method == PEER else (2e-3, 6e-3, 2e-2))]


def train(method: str, setting: Setting, seconds: float, hidden: int, seed: int) -> Trained:
    """For so many CPU seconds."""
    if method == PEER:
        return by_peer(setting, seconds, hidden, seed)
    steps = CHUNKS * max(1, round(seconds / pace(method, hidden) / CHUNKS))
    return fitted(method, setting["rate"], steps, hidden, seed)


@cache
def pace(method: str, hidden: int) -> float:
    """CPU seconds of an update."""
    found = fitted(method, 1e-3, 2 * CHUNKS, hidden, seed=0)
    return found.seconds / found.updates


def fitted(method: str, rate: float, steps: int, hidden: int, seed: int) -> Trained:
    """Adam of centred units, whose rate falls to 0 over the second half.

    The first chunk, in which the program is compiled, is taken to last as long as the others.
    """
    data, marks = digits(), []
    start = un.RBM.create(784, hidden, seed=seed, means=data.means)
    done = run_fit(
        start,
        objectives()[method],
        centred(falling_adam(rate, steps)),
        Batches(data.train, BATCH, seed),
        jax.random.key(seed),
        steps=steps,
        log_every=steps // CHUNKS,
        on_event=lambda event: marks.append((time.process_time(), event.step)),
    )
    (first, early), (last, late) = marks[1], marks[-1]  # there is a mark at 0
    return Trained(done.model, (last - first) * steps / (late - early), steps)


def by_peer(setting: Setting, seconds: float, hidden: int, seed: int) -> Trained:
    """In a process of its own; a step of rbms is one of Gibbs sampling, and a gradient of length 1.

    Its own 100 steps with 2,000 chains would leave a few updates.
    """
    home = prepare("torch", Path("build/peers").absolute())
    if home.python is None:
        raise RuntimeError(f"rbms: no result: {home.problem}")
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npz"
        how = {"hidden": hidden, "seconds": seconds, "seed": seed, "chains": BATCH, **setting}
        np.savez(given, data=digits().train, **how)
        script = Path(__file__).parent / "peers" / "rbms_training.py"
        subprocess.run([str(home.python), "-P", str(script), str(given), str(found)], check=True)
        with np.load(found) as file:
            w, b, c = (jnp.asarray(file[name]) for name in ("w", "b", "c"))
            return Trained(un.RBM(w, b, c), float(file["seconds"]), int(file["updates"]))


def score(
    model: un.RBM, rows: np.ndarray, chains: int, betas: int, seed: int
) -> tuple[float, float]:
    """Mean log-likelihood of rows, and the length of the interval of log Z."""
    path = un.ModelPath(model.independent(digits().means), model)
    found = un.bracket(path, un.BlockGibbs(), seed=seed, chains=chains, betas=betas)
    return float(
        -np.asarray(model.free_energy(jnp.asarray(rows))).mean() - found.log_z
    ), found.spread


def choose(method: str, seconds: float, hidden: int, betas: int) -> Setting:
    """The setting that is best on validation digits after a third of the time.

    Where log Z is not known its whole interval is taken off, or what cannot be measured would win.
    """
    scores = []
    for setting in settings(method):
        model = train(method, setting, seconds / 3, hidden, seed=100).model
        nats, width = score(model, digits().valid, 50, betas, seed=100)
        scores.append(nats - width)
        print(
            f"{method}, {setting}: {nats:.2f} of validation digits, width {width:.2f}", flush=True
        )
    return settings(method)[int(np.nanargmax(scores))]


def main(quick: bool, only: str, out: Path) -> None:
    """Three seeds, one after the other."""
    profile, hidden, seconds, seeds = ("quick", 20, 1.0, 1) if quick else ("full", 500, 40.0, 3)
    betas = 100 if quick else 5000
    file, chosen = out / f"rbm_kernels-{profile}.json", {}
    config = {"hidden": hidden, "seconds": seconds, "betas": betas, "batch": BATCH}
    for seed in range(seeds):
        for method in (*objectives(), PEER):
            if only not in method:
                continue
            began = time.perf_counter()
            if method not in chosen:
                chosen[method] = choose(method, seconds, hidden, betas // 5)
            done = train(method, chosen[method], seconds, hidden, seed)
            nats, width = score(done.model, digits().test, 100, betas, seed)
            found = {SCORE: nats, WIDTH: width, CPU: done.seconds, UPDATES: done.updates}
            print(f"{method}, seed {seed}: {found}", flush=True)
            past = read(file) if file.is_file() else None
            rows = renewed(past.rows if past else [], method, seed, found)
            spent = time.perf_counter() - began + (past.seconds if past else 0.0)
            used = (past.config.get("settings", {}) if past else {}) | {method: chosen[method]}
            how, told = {**config, "settings": used}, [*notes(rows, used)]
            ran = list(range(max(len(row.values or ()) for row in rows)))
            record = make_record("rbm_kernels", profile, how, spent, rows, TITLE, told, seeds=ran)
            save(record, file)


def renewed(rows: Sequence[Row], method: str, seed: int, found: Mapping[str, float]) -> list[Row]:
    """The rows with this run among them; the first seed of a method begins it anew."""
    rest = [row for row in rows if row.method != method]
    old = {row.metric: row.values or () for row in rows if row.method == method}
    for metric, value in found.items():
        better = "higher" if metric in (SCORE, UPDATES) else "lower"
        values = (*old.get(metric, ())[:seed], value)
        rest.append(Row.over_runs("MNIST", method, metric, values, better=better))
    return rest


def part(record: Mapping[str, Any]) -> str:
    """The part of a page of the documentation that is written from the record."""
    return docs_page(TITLE, INTRODUCTION, record, 2)


INTRODUCTION = """\
`make bench ARGS=rbm_kernels` trains RBMs of 500 hidden units on MNIST digits whose pixels are white
above half, with the same CPU seconds of one core for every kernel: contrastive divergence from the
data, and persistent chains that move by block Gibbs sampling, by parallel tempering (50 chains of 5
rungs, down to 0.8 on the way from the means of the pixels) or by perturb-and-max-product (20 draws
of 5 rounds). All ours take batches of 100 and Adam with centred units, whose rate is chosen on
5,000 validation digits after a third of the time. The package rbms trains by its own loop of
persistent chains with centred gradients of length 1, 100 chains and one step of Gibbs sampling an
update; its rate is chosen in the same way. (Its defaults, 2,000 chains and 100 steps an update,
would leave it a few updates.) Its weights are scored as ours are: log Z by annealing in both
directions with 100 chains and 5,000 temperatures. Test digits are looked at with what was chosen.
Replicas along the training (`un.TrainingPath`) are not among the kernels: they need the checkpoints
of a training.
"""


def notes(rows: Sequence[Row], used: Mapping[str, Setting]) -> Iterator[str]:
    """Who is best, how far rbms is, whose log Z is not known, and who took the largest rate."""
    widths = {row.method: row.values or () for row in rows if row.metric == WIDTH}
    vague = [name for name, all_of in widths.items() if any((w or 0.0) > KNOWN for w in all_of)]
    scores = {
        row.method: row.ours or -np.inf
        for row in rows
        if row.metric == SCORE and row.method not in vague
    }
    if scores:
        best = max(scores, key=lambda name: scores[name])
        yield f"Best: {best}, {scores[best]:.1f} nats."
    if PEER in scores and len(scores) > 1:
        own = max((name for name in scores if name != PEER), key=lambda name: scores[name])
        ahead = scores[own] - scores[PEER]
        yield f"{own} is {ahead:.1f} nats above rbms at equal CPU time."
    if vague:
        yield (
            f"log Z is not known to {KNOWN:g} nats, the scores say nothing and nothing is compared "
            f"with them: {'; '.join(vague)}."
        )
    most = {name: max(one["rate"] for one in settings(name)) for name in used}
    edge = [name for name, one in used.items() if one["rate"] == most[name]]
    if edge:
        yield f"The largest rate that was tried was the best one for: {'; '.join(edge)}."
