"""The protocols of the house: what models, inference, kernels and objectives promise each other."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from undirected.core.layout import Layout
from undirected.core.potentials import Beliefs, Potentials

State = Float[Array, "*batch n"]
Info = dict[str, Array]
S = TypeVar("S")
C = TypeVar("C")


@runtime_checkable
class Model(Protocol):
    """An equinox Module whose float arrays are its parameters."""

    @property
    def layout(self) -> Layout: ...

    def energy(self, x: State) -> Float[Array, "*batch"]: ...


@runtime_checkable
class Lowerable(Model, Protocol):
    """A model that is an exponential family: energy(x) = -inner(lower(), statistics(x))."""

    def lower(self) -> Potentials: ...


@runtime_checkable
class Blocked(Model, Protocol):
    """A model whose blocks are independent inside given the rest: block Gibbs, mean field."""

    def conditional(self, block: int, x: State) -> Float[Array, "*batch size"]: ...


@runtime_checkable
class Summable(Model, Protocol):
    """A model whose hidden units can be summed out; given the visibles its blocks do not meet."""

    def free_energy(self, v: Float[Array, "*batch v"]) -> Float[Array, "*batch"]: ...


@runtime_checkable
class Marginal(Summable, Protocol):
    """A summable model of discrete visible units, each with fields given all other visibles."""

    def log_odds(self, v: Float[Array, "*batch v"]) -> Float[Array, "*batch v"]: ...


@runtime_checkable
class Separable(Model, Protocol):
    """A model that knows itself without couplings, where annealing starts."""

    def independent(self, means: Float[Array, " v"] | None = None) -> Any: ...


@runtime_checkable
class Centrable(Model, Protocol):
    """A model of real units that knows itself with their means at 0.

    `centred` gives the model of v - m, of the same class and log Z, and m in double precision, 0 at
    units that are not real: in single precision differences are lost beside a large mean.
    """

    def centred(self) -> tuple[Any, Float[np.ndarray, " v"]]: ...


@runtime_checkable
class Rescalable(Model, Protocol):
    """A model of real or nonnegative units that can be told in other units of measure.

    `rescaled` gives the model of means + scale * v, `units_of_measure` the means and scales at
    which the model stands itself, 0 and 1 where units are discrete. `started_at` moves one that is
    as its class makes it without data to the means and deviations of data; any other stays.
    """

    def units_of_measure(self) -> tuple[Float[Array, " v"], Float[Array, " v"]]: ...

    def rescaled(self, means: Float[Array, " v"], scale: Float[Array, " v"]) -> Any: ...

    def started_at(
        self, means: Float[np.ndarray, " v"], deviations: Float[np.ndarray, " v"]
    ) -> Any: ...


@runtime_checkable
class Componential(Blocked, Protocol):
    """A blocked model of visible units, hidden units and one categorical hidden unit, its last.

    `component_fields` are the logits of the last given the hidden units, the visible ones summed
    out but for those that are held.
    """

    def component_fields(
        self,
        h: Float[Array, "*batch h"],
        held: Float[Array, "*batch v"] | None = None,
        v: Float[Array, "*batch v"] | None = None,
    ) -> Float[Array, "*batch k"]: ...


@runtime_checkable
class Annealable(Model, Protocol):
    """A model that knows one near it, with couplings, that can be drawn from exactly.

    `tractable` gives that model, `exact_samples` its joint states and log Z: annealing from there
    has a shorter way than from independent units.
    """

    def tractable(self) -> Any: ...

    def exact_samples(
        self, count: int, key: Key[Array, ""]
    ) -> tuple[Float[Array, "count n"], Float[Array, ""]]: ...


@runtime_checkable
class Conditionals(Model, Protocol):
    """A model that has log p(v_i | all other visibles) itself, as continuous units need it."""

    def log_conditionals(self, v: Float[Array, "*batch v"]) -> Float[Array, "*batch v"]: ...


class Inference(Protocol):
    """A model or potentials in, beliefs of the same shape out; `inference.Inference` is one."""

    def __call__(self, model: Any, key: Key[Array, ""], /) -> Beliefs: ...


@runtime_checkable
class Decoder(Protocol):
    """An inference that finds best states, of many instances that share their factors at once.

    `decode` gives (states, status, iterations); it refuses where `finds_best_state` is False.
    """

    @property
    def finds_best_state(self) -> bool: ...

    def decode(self, model: Any, key: Key[Array, ""] | None = None) -> Any: ...


@runtime_checkable
class Resumable(Protocol):
    """An inference whose messages can go on from those of an earlier call."""

    def init_messages(self, p: Potentials) -> PyTree: ...

    def resume(self, p: Potentials, messages: PyTree) -> tuple[Any, PyTree]: ...


class Kernel(Protocol[S]):
    """A Markov transition; `free` is False for units that must stay as they are."""

    def init(self, model: Any, x: State, key: Key[Array, ""]) -> S: ...

    def step(
        self, model: Any, state: S, free: Bool[Array, "*#batch n"], key: Key[Array, ""]
    ) -> tuple[S, Info]: ...


class Optimiser(Protocol):
    """An optimiser of optax, or anything with the same two functions.

    Named here so that what only passes one on need not import optax, which takes a while.
    """

    @property
    def init(self) -> Callable[..., Any]: ...

    @property
    def update(self) -> Callable[..., tuple[Any, Any]]: ...


class Objective(Protocol[C]):
    """A scalar to differentiate: its gradient is right, its value may be a surrogate."""

    def init(self, model: Any, batch: PyTree, key: Key[Array, ""]) -> C: ...

    def __call__(
        self, model: Any, batch: PyTree, carry: C, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[C, Info]]: ...
