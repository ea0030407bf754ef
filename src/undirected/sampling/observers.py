"""What a chain keeps while it runs: its states, its energies, moments, or any function of a state.

Some observers store (`States`, `Energies`, `Trace`: an entry for every draw), others average
(`Mean`, `Moments`: memory does not grow with the number of draws). What they found stands by name
in `ChainResult.observed`.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.potentials import Potentials
from undirected.core.protocols import Lowerable, Model
from undirected.factors import Factor


class States(eqx.Module):
    """Stores every `every`-th draw: `observed["states"]`, which is `ChainResult.x`."""

    every: int = 1
    name: ClassVar[str] = "states"

    def __call__(self, model: Model, x: Float[Array, "chains n"]) -> PyTree:
        """The states of one draw of all chains."""
        return x


class Energies(eqx.Module):
    """Stores the energy of every `every`-th draw: `observed["energies"]`, (samples, chains)."""

    every: int = 1
    name: ClassVar[str] = "energies"

    def __call__(self, model: Model, x: Float[Array, "chains n"]) -> PyTree:
        """The energies of one draw of all chains."""
        return model.energy(x)


class Trace(eqx.Module):
    """Stores `function` of one joint state (n,), for every chain and every `every`-th draw.

    The function gives an array or a tree of them; each gets two axes in front, (samples // every,
    chains, ...), and so goes into `rhat` and `ess` as it is. `name` is its key in `observed`, by
    default that of the function. A function that is defined once is compiled once; where it has
    numbers of its own, let it be an equinox Module, whose arrays may change without compilation.
    """

    function: Callable[[Array], PyTree]
    every: int = 1
    name: str = ""

    def __call__(self, model: Model, x: Float[Array, "chains n"]) -> PyTree:
        """The values at one draw of all chains."""
        return jax.vmap(self.function)(x)


class Mean(eqx.Module):
    """Averages `function` of one joint state (n,) over the draws of every chain: (chains, ...).

    The chains are kept apart, because how far their means differ says how far to trust them.
    `function` and `name` are as in `Trace`.
    """

    function: Callable[[Array], PyTree]
    name: str = ""

    def __call__(self, model: Model, x: Float[Array, "chains n"]) -> PyTree:
        """The values at one draw of all chains, as floats."""
        return jax.tree.map(lambda a: a.astype(jnp.result_type(a, x)), jax.vmap(self.function)(x))


class Moments(eqx.Module):
    """Averages the statistics of the factors a model lowers to, over draws and chains.

    `observed["moments"]` are beliefs as inference gives them, also `ChainResult.beliefs`.
    """

    name: ClassVar[str] = "moments"

    def __call__(self, model: Lowerable, x: Float[Array, "chains n"]) -> PyTree:
        """The statistics of one draw, averaged over chains."""
        p = model.lower()
        means = [factor.mean_statistic(p.layout, x) for factor in p.factors]
        return eqx.filter(means, eqx.is_inexact_array)


Stored = States | Energies | Trace
Observer = Stored | Mean | Moments


def check_observers(
    observe: Observer | Iterable[Observer], model: Model, samples: int
) -> dict[str, Observer]:
    """The observers by their names, refused with a reason where they cannot work."""
    found: dict[str, Observer] = {}
    for observer in (observe,) if isinstance(observe, Observer) else tuple(observe):
        if not isinstance(observer, Observer):
            raise UndirectedError(
                f"run_chains: observe holds a {type(observer).__name__}; pass States(), "
                "Energies(), Moments(), Mean(function) or Trace(function), one or several"
            )
        name = _name(observer)
        if name in found:
            raise UndirectedError(
                f"run_chains: two observers are called '{name}'; give one a name of its own, as in "
                "Mean(function, name='magnetisation')"
            )
        if isinstance(observer, Stored) and not 1 <= observer.every <= samples:
            raise UndirectedError(
                f"run_chains: '{name}' are to be kept every {observer.every} draws of {samples}; "
                f"pass every= between 1 and {samples}"
            )
        if isinstance(observer, Moments) and not isinstance(model, Lowerable):
            raise UnsupportedFactor(
                f"run_chains: moments need a model that lowers to potentials, got "
                f"{type(model).__name__}; leave moments out"
            )
        found[name] = observer
    return found


def as_groups(p: Potentials, x: Float[Array, " n"], means: list[PyTree]) -> tuple[Factor, ...]:
    """Beliefs about factor groups from their mean statistics; `x` is any state.

    What is not averaged, such as the graph of edges, is taken from the statistic of that state:
    wiring, which beliefs do without, is not in it.
    """
    parts = []
    for factor, mean in zip(p.factors, means, strict=True):
        rest = eqx.filter(factor.statistic(p.layout, x), eqx.is_inexact_array, inverse=True)
        parts.append(eqx.combine(mean, rest))
    return tuple(parts)


def _name(observer: Observer) -> str:
    """The key of an observer in `observed`."""
    if not isinstance(observer, Trace | Mean):
        return observer.name
    name = observer.name or getattr(observer.function, "__name__", "")
    if name in ("", "<lambda>", States.name, Energies.name, Moments.name):
        raise UndirectedError(
            f"run_chains: an observer of a function is called '{name}'; give it a name of its own, "
            f"as in {type(observer).__name__}(function, name='magnetisation')"
        )
    return name
