"""What the experiments share: binary digits, the learners, one way to learn and to keep it."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from undirected import data
from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info, Kernel
from undirected.data import corruption
from undirected.evaluation import Bracket, bracket, brackets
from undirected.experiments.fitting import EachModel, PersistentSeeds, SeedBatches, fit
from undirected.experiments.stages import Context, store
from undirected.io.checkpoint import Checkpoints
from undirected.learning import Batches, Persistent, hold_then_decay, stack
from undirected.learning.checkpointing import SETTINGS
from undirected.models import RBM, ModelPath, SemiRestrictedBM, tempered
from undirected.ops.hidden_states import log_z_over_hidden
from undirected.sampling import Alternating, ParallelTempering, TemperedTransitions, ladder

CLASSES = 10
NEVER = 2**30
FIRST = "before the tempered runs"
FAIR = "Trans-SAP, equal Gibbs updates"
PARTICLES = ("SAP", FAIR, "Trans-SAP", "PT-SAP")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Digits:
    """Grey training images 0..255; validation and test images are binary, drawn once.

    Columns after the pixels are one-hot classes; training classes are `y`.
    """

    x: Int[np.ndarray, "rows 784"]
    y: Int[np.ndarray, " rows"]
    valid: Float[np.ndarray, "valid 794"]
    test: Float[np.ndarray, "test 794"]

    @property
    def joint_means(self) -> Float[np.ndarray, " 794"]:
        """Share of ones of every pixel; the classes are taken as equally frequent."""
        pixels = self.x.mean(0) / 255
        return np.concatenate([pixels, np.full(CLASSES, 1 / CLASSES)]).astype(np.float32)

    def training_sample(self, count: int, seed: int) -> Float[np.ndarray, "count 794"]:
        """The first training images, binary, with their classes."""
        return _joint(data.Split(self.x[:count], self.y[:count]), seed + 2)


def load_digits(config: dict[str, Any], seed: int) -> Digits:
    """`train` and `test` rows of `images`; `valid` training rows are set aside, as in the paper."""
    found = data.hold_out(data.load(config["images"]), config["valid"], seed)
    train = found.train.take(np.arange(config["train"]))
    assert train.y is not None
    valid = _joint(found.valid, seed + 1)
    test = _joint(found.test.take(np.arange(config["test"])), seed)
    return Digits(train.x, train.y.astype(np.int32), valid, test)


def training_rows(config: dict[str, Any], seed: int) -> Int[np.ndarray, " rows"]:
    """The numbers of the training rows that `load_digits` keeps."""
    found = data.load(config["images"])
    numbers = data.Split(np.arange(len(found.train))[:, None], found.train.y)
    kept = data.hold_out(replace(found, train=numbers), config["valid"], seed)
    return kept.train.x[: config["train"], 0]


def _joint(part: data.Split, seed: int) -> Float[np.ndarray, "rows 794"]:
    """Binary images with one-hot classes."""
    classes = np.eye(CLASSES, dtype=np.float32)[np.asarray(part.y)]
    return np.concatenate([binarise(part.x, seed), classes], 1)


def binarise(x: Int[np.ndarray, "rows n"], seed: int) -> Float[np.ndarray, "rows n"]:
    """A pixel is 1 with probability grey / 255, drawn once (tempered, Section 4.1)."""
    uniform = np.random.default_rng([seed, 1]).random(x.shape, np.float32)
    return (255 * uniform < x).astype(np.float32)


def draw_joint(batch: tuple[Array, Array], key: Key[Array, ""]) -> Float[Array, "rows 794"]:
    """Binary images, drawn afresh, with one-hot classes."""
    x, y = batch
    return jnp.concatenate([corruption.binarise(x, key), jax.nn.one_hot(y, CLASSES)], 1)


@dataclass(frozen=True)
class ExactLikelihood:
    """-mean log p(v) of an RBM with few hidden units: its gradient is that of (tempered, eq. 3)."""

    value_name: ClassVar[str] = "negative_log_likelihood"

    def init(self, model: RBM, batch: Float[Array, "rows v"], key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step."""
        return None

    def __call__(
        self, model: RBM, batch: Float[Array, "rows v"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The mean free energy plus log Z."""
        return model.free_energy(batch.astype(float)).mean() + exact_log_z(model), (None, {})


def exact_log_z(model: RBM) -> Float[Array, ""]:
    """log Z of an RBM of binary units by a sum over its hidden states."""
    return log_z_over_hidden(model.weights, model.visible_bias, model.hidden_bias)


@eqx.filter_jit
def mean_log_p(model: RBM, v: Float[Array, "rows v"]) -> Float[Array, ""]:
    """Mean log p(v) of such an RBM, exact."""
    return -model.free_energy(v).mean() - exact_log_z(model)


def learner(method: str, config: dict[str, Any], kernel: Kernel) -> tuple[Persistent, int]:
    """A learner with persistent particles, and its parameter updates in `gibbs` Gibbs updates."""
    moves, steps = _moves(method, config, kernel, lambda inside: inside)
    return Persistent(moves, config["chains"]), steps


def learner_of_seeds(
    method: str, config: dict[str, Any], kernel: Kernel
) -> tuple[PersistentSeeds, int]:
    """The same for the models of several seeds side by side."""
    moves, steps = _moves(method, config, kernel, EachModel)
    return PersistentSeeds(Persistent(kernel, config["chains"]), kernel=moves), steps


def _moves(
    method: str, config: dict[str, Any], kernel: Kernel, whole: Callable[[Kernel], Kernel]
) -> tuple[Kernel, int]:
    """How particles move, and the number of parameter updates; `whole` takes a kernel to a stack.

    With `fair`, and for the learner of that name, the Gibbs updates of a tempered run, and those of
    every rung of a ladder, count too, though only those at the model's own temperature move the
    parameters (footnote 4); otherwise they come on top. SAP is Trans-SAP whose tempered runs never
    come.
    """
    total, how = config["gibbs"], config["tempered"]
    fair = config["fair"] or method == FAIR
    match method:
        case "SAP":
            return Alternating(whole(kernel), whole(kernel), NEVER), total
        case "Trans-SAP" | "Trans-SAP, equal Gibbs updates":
            run = TemperedTransitions(kernel, tempered, ladder(how["lowest"], how["betas"]))
            share = how["every"] / (how["every"] + run_length(config)) if fair else 1
            updates = how["after"] + int(share * (total - how["after"]))
            return Alternating(whole(kernel), whole(run), how["every"], how["after"]), updates
        case "PT-SAP":
            betas = ladder(how["lowest"], config["rungs"])
            ladders = ParallelTempering(kernel, tempered, betas)
            return whole(ladders), total // (config["rungs"] if fair else 1)
    raise UndirectedError(f"tempered: no learner {method!r}; pass one of {', '.join(PARTICLES)}")


def run_length(config: dict[str, Any]) -> int:
    """Gibbs updates of one tempered run, there and back."""
    return 2 * (config["tempered"]["betas"] - 1)


@dataclass(frozen=True)
class Learning:
    """What the learners of one experiment share; `watch(model)` is noted `points` times a run.

    The names of its stages begin with `prefix`.
    """

    start: Any
    batches: Batches
    config: dict[str, Any]
    seed: int
    context: Context
    watch: Callable[[Any], float | Array]
    learner: Callable[[str, dict[str, Any], Kernel], tuple[Any, int]] = learner
    prefix: str = ""

    def run_all(self, methods: Iterable[str], kernel: Kernel) -> Iterator[tuple[str, int, Arrays]]:
        """Name, parameter updates and result of those methods that keep particles.

        SAP and Trans-SAP are the same until the tempered runs begin: where both are asked for, that
        part is learned once. Trans-SAP at equal Gibbs updates is a shorter Trans-SAP: where it is
        asked for before the longer one, that goes on from it.
        """
        kept = [method for method in methods if method in PARTICLES]
        both = "SAP" in kept and not {"Trans-SAP", FAIR}.isdisjoint(kept)
        if both:
            objective, _ = self.learner("SAP", self.config, kernel)
            self.run(FIRST, objective, self.config["tempered"]["after"])
        for i, method in enumerate(kept):
            objective, steps = self.learner(method, self.config, kernel)
            begin = FIRST if both and method != "PT-SAP" else None
            if method == "Trans-SAP" and FAIR in kept[:i] and not self.config["fair"]:
                begin = FAIR
            yield method, steps, self.run(method, objective, steps, begin)

    def run(self, name: str, objective: Any, steps: int, begin: str | None = None) -> Arrays:
        """Parameters, particles and history of one run, a stage with checkpoints inside.

        The learning rate is held, then falls as a / (b + t). With `begin` the run goes on from
        where the one of that name ended.
        """
        return self.context.stage(
            f"{self.prefix}learn, {name}", lambda: self._fit(name, objective, steps, begin)
        )

    def _fit(self, name: str, objective: Any, steps: int, begin: str | None) -> Arrays:
        config, folder = self.config, self.context.scratch / f"{self.prefix}{name}"
        if begin is not None and not folder.exists():
            copy = folder.with_name(f"{folder.name} (copy)")
            shutil.rmtree(copy, ignore_errors=True)
            before = folder.with_name(f"{self.prefix}{begin}")
            shutil.copytree(before, copy).rename(folder)
        every = max(1, min(config["gibbs"] // config["points"], steps // 10))
        found = fit(
            self.start,
            objective,
            _optimiser(config),
            self.batches,
            jax.random.key(self.seed),
            steps=steps,
            log_every=min(every, config["chunk"]),
            validate=lambda model, key: float(self.watch(model)),
            validate_every=every,
            store=_AnyLearner(folder),
            save_every=30.0,
            on_event=lambda p: self.context.progress(
                f"{self.prefix}{name}: update {p.step} of {p.total}, {p.rate:.0f} a second",
                p.step / p.total,
            ),
        )
        x = getattr(found.carry, "x", np.zeros((0, 0)))
        return store(found.model) | {"particles": np.asarray(x)} | _history(found.history)


class _AnyLearner(Checkpoints):
    """Checkpoints from which another learner goes on, with other moves of the same chains."""

    def latest(self, like: Any) -> Any:
        """The newest checkpoint, which does not know the settings it was made with."""
        found = super().latest(like)
        if found is not None:
            found[2]["run"].pop(SETTINGS, None)
        return found


def _optimiser(config: dict[str, Any]) -> optax.GradientTransformation:
    """Gradient steps of a rate that is held and then falls; `decay` pulls weights towards zero."""
    rate = hold_then_decay(config["rate"], config["hold"], config["offset"])
    pull = optax.add_decayed_weights(
        config["decay"], lambda model: jax.tree.map(lambda leaf: jnp.ndim(leaf) > 1, model)
    )
    return optax.chain(pull, optax.sgd(rate)) if config["decay"] else optax.sgd(rate)


def _history(rows: list[dict[str, float]]) -> Arrays:
    """The columns of a history; NaN where a row has no such entry."""
    names = sorted({name for row in rows for name in row})
    return {f"curve.{n}": np.asarray([row.get(n, np.nan) for row in rows]) for n in names}


def acceptance(found: Arrays, model: int | None = None) -> float | None:
    """Share of the tempered runs that were accepted; None where there were none.

    `model`: of this one of several that were learned side by side.
    """
    name = "curve.jump_accepted" + ("" if model is None else f".{model}")
    if name not in found:
        return None
    steps = np.diff(found["curve.step"], prepend=0)
    count = (steps * found["curve.jumps"]).sum()
    return float(np.nansum(steps * found[name]) / count) if count else None


def gibbs_updates(found: Arrays, config: dict[str, Any], method: str) -> np.ndarray:
    """Gibbs updates made up to every row of the history."""
    steps = found["curve.step"]
    if method == "PT-SAP":
        return steps * config["rungs"]
    if not method.startswith("Trans-SAP"):
        return steps
    return steps + run_length(config) * np.cumsum(np.diff(steps, prepend=0) * found["curve.jumps"])


def seconds(context: Context, method: str) -> float:
    """Time spent on a learner, with the part it shares with others."""
    before = {"SAP": [FIRST], FAIR: [FIRST], "Trans-SAP": [FIRST, FAIR]}
    names = [*before.get(method, []), method]
    return sum(context.clock.stages.get(f"learn, {name}", 0.0) for name in names)


def estimate(
    model: Any, means: Float[np.ndarray, " v"], kernel: Kernel, config: dict[str, Any], seed: int
) -> Bracket:
    """log Z from both sides, from base rates."""
    how = config["ais"]
    path = ModelPath(model.independent(jnp.asarray(means, jnp.float32)), model)
    betas = annealing(how["betas"])
    return bracket(path, kernel, jax.random.key(seed + 1), chains=how["chains"], betas=betas)


def estimate_all(
    models: Sequence[Any],
    means: Sequence[Float[np.ndarray, " v"]],
    kernel: Kernel,
    config: dict[str, Any],
    seed: int,
) -> list[Bracket]:
    """`estimate` of several models, side by side."""
    how = config["ais"]
    paths = [
        ModelPath(model.independent(jnp.asarray(mean, jnp.float32)), model)
        for model, mean in zip(models, means, strict=True)
    ]
    betas = annealing(how["betas"])
    return brackets(paths, kernel, jax.random.key(seed + 1), chains=how["chains"], betas=betas)


def annealing(count: int) -> Float[np.ndarray, " betas"]:
    """Betas that get denser towards 1: a tenth up to 0.5, half up to 0.9, the rest above.

    At equal cost they leave the weights of a trained machine less uneven than equal steps do.
    """
    return np.interp(np.linspace(0, 1, count), [0, 0.1, 0.6, 1], [0, 0.5, 0.9, 1])


def joint_learning(
    digits: Digits,
    config: dict[str, Any],
    seed: int,
    context: Context,
    watch: Callable[[Any], float | Array],
) -> Learning:
    """Learning of a semi-restricted Boltzmann machine of images and classes, from base rates."""
    start = SemiRestrictedBM.create(
        digits.x.shape[1] + CLASSES,
        config["hidden"],
        jax.random.key(seed),
        label_states=CLASSES,
        means=jnp.asarray(digits.joint_means),
    )
    batches = Batches((digits.x, digits.y), config["batch"], seed, transform=draw_joint)
    return Learning(start, batches, config, seed, context, watch)


def joint_learning_of_seeds(
    digits: Sequence[Digits],
    config: dict[str, Any],
    seeds: Sequence[int],
    context: Context,
    watch: Callable[[Any], float | Array],
) -> Learning:
    """`joint_learning` of several seeds side by side: a stack of models, each with its own rows."""
    ones = [
        joint_learning(mine, config, seed, context, watch)
        for mine, seed in zip(digits, seeds, strict=True)
    ]
    train = data.load(config["images"]).train
    assert train.y is not None
    batches = SeedBatches(
        (train.x, train.y.astype(np.int32)),
        config["batch"],
        transform=draw_joint,
        seeds=tuple(seeds),
        subsets=[training_rows(config, seed) for seed in seeds],
    )
    start = stack([one.start for one in ones])
    return replace(ones[0], start=start, batches=batches, learner=learner_of_seeds)


def rbm_learning_of_seeds(
    train: Int[np.ndarray, "rows v"],
    means: Float[np.ndarray, " v"],
    config: dict[str, Any],
    seeds: Sequence[int],
    context: Context,
    transform: Callable[[Array, Key[Array, ""]], Array] | None = None,
    prefix: str = "",
) -> Learning:
    """Learning of an RBM for every seed, from base rates, each with its own start and order."""
    rates = jnp.asarray(means, jnp.float32)
    starts = [
        RBM.create(train.shape[1], config["hidden"], jax.random.key(seed), means=rates)
        for seed in seeds
    ]
    batches = SeedBatches(train, config["batch"], transform=transform, seeds=tuple(seeds))
    return Learning(
        stack(starts),
        batches,
        config,
        seeds[0],
        context,
        lambda models: 0.0,
        learner_of_seeds,
        prefix,
    )


@eqx.filter_jit
def seen_pixels(model: SemiRestrictedBM, x: Float[Array, "rows n"]) -> Float[Array, "rows p"]:
    """How particles are shown: probability of every pixel given hiddens and other pixels."""
    n = model.n_pixels
    fields = x[:, model.n_visible :] @ model.rbm.weights[:n].T + model.rbm.visible_bias[None, :n]
    return jax.nn.sigmoid(fields + x[:, :n] @ model.couplings)
