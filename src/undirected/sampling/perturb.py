"""Perturb-and-max-product: the best state of a model with noisy fields is a sample."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Domain, Layout, best, free_variables, perturbation
from undirected.core.moments import mean_statistics, values
from undirected.core.potentials import Beliefs, Potentials, batch_axes, clamp, shift
from undirected.core.protocols import Inference, Info, Lowerable


class PerturbedState(eqx.Module):
    """Samples, and the messages that found them where the sampler keeps those."""

    x: Float[Array, "*chains n"]
    messages: Any = None


@dataclass(frozen=True)
class PerturbAndMap:
    """Solve for the best state under Gumbel noise (pmp, eq. 2, Algorithm 1).

    `infer` finds the best state: `MaxProduct(50, None, 0.5, parallel=True)` for the paper's
    sampler, `Exact(0.0)` for the true maximum, or any inference at temperature 0. Binary units get
    logistic noise, states of categorical variables Gumbel noise. As an `Inference` the beliefs are
    means over `samples` draws, and `log_z` is the mean perturbed maximum: an upper bound of log Z
    in expectation where the maxima are found (pmp, Sec. 2.2). As a kernel every step draws afresh;
    with `persistent` its messages go on from those of the chain's last step (noise is always new),
    which is for belief propagation alone and keeps all messages of all chains.
    """

    infer: Inference
    samples: int = 1
    persistent: bool = False

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UndirectedError(f"PerturbAndMap: samples is {self.samples}; pass 1 or more")
        if self.persistent and not hasattr(self.infer, "go_on"):
            raise UndirectedError(
                f"PerturbAndMap: {type(self.infer).__name__} has no messages to go on from; "
                "persistent=True needs MaxProduct"
            )

    def __call__(self, potentials: Potentials, key: Key[Array, ""]) -> Beliefs:
        """Beliefs of one instance, as means over perturbed maxima."""
        found = self.draw(potentials, key)
        beliefs = mean_statistics(potentials, found.x)
        return eqx.tree_at(
            lambda b: (b.log_z, b.converged, b.iterations),
            beliefs,
            (found.log_z.mean(), found.converged.all(), found.iterations.max()),
        )

    def draw(self, potentials: Potentials, key: Key[Array, ""]) -> "Draws":
        """`samples` draws of one instance, with the perturbed maxima; evidence is honoured."""
        p = potentials
        noise_key, key = jax.random.split(key)
        noise = perturbation(p.layout, noise_key, (self.samples,)).astype(p.unary.dtype)
        return self.solve(shift(p, _on_free_units(p, noise)), key)

    def solve(self, noisy: Potentials, key: Key[Array, ""]) -> "Draws":
        """The best states of instances that share their factors, and their centred values."""
        if hasattr(self.infer, "decode"):
            x, converged, iterations = self.infer.decode(noisy)  # type: ignore[attr-defined]
        else:
            keys = jax.random.split(key, len(noisy.unary))
            found = jax.vmap(self.infer, in_axes=(batch_axes(noisy), 0))(noisy, keys)
            x = best(noisy.layout, found.unary - 0.5)
            converged, iterations = found.converged, found.iterations
        constant = np.euler_gamma * _categorical(noisy.layout)
        return Draws(x, values(noisy, x) - constant, converged, iterations)

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> PerturbedState:
        """Chains that start at x; only units that are not free stay there."""
        if not isinstance(model, Lowerable):
            raise UnsupportedFactor(
                f"PerturbAndMap: {type(model).__name__} does not lower to potentials; use Gibbs"
            )
        state = jnp.asarray(x, float)
        if not self.persistent:
            return PerturbedState(state)
        silence = self.infer.silence(model.lower())  # type: ignore[attr-defined]
        chains = int(np.prod(state.shape[:-1]))
        messages = jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), silence)
        return PerturbedState(state, messages)

    def step(
        self,
        model: Lowerable,
        state: PerturbedState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[PerturbedState, Info]:
        """A new independent sample for every chain, given the units that are not free."""
        p, before = model.lower(), state.x
        flat = before.reshape(-1, before.shape[-1])
        free = free_variables("PerturbAndMap", p.layout, free)
        held = ~jnp.broadcast_to(free, before.shape).reshape(flat.shape)
        noise_key, key = jax.random.split(key)
        clamped = clamp(p, held, flat)
        noise = perturbation(p.layout, noise_key, (len(flat),)).astype(flat.dtype)
        noisy = shift(clamped, _on_free_units(clamped, noise))
        messages = None
        if self.persistent:
            go_on = jax.vmap(self.infer.go_on, in_axes=(batch_axes(noisy), 0))  # type: ignore[attr-defined]
            found, messages, converged, _ = go_on(noisy, state.messages)
        else:
            draws = self.solve(noisy, key)
            found, converged = draws.x, draws.converged
        x = jnp.where(held, flat, found).reshape(before.shape)
        flips = (x != before).mean(-1, dtype=before.dtype)
        return PerturbedState(x, messages), {"flips": flips, "converged": converged.astype(x.dtype)}


class Draws(eqx.Module):
    """Samples, their perturbed values (their mean estimates log Z), and how the solver went."""

    x: Float[Array, "samples n"]
    log_z: Float[Array, " samples"]
    converged: Bool[Array, " samples"]
    iterations: Array


def _on_free_units(p: Potentials, noise: Float[Array, "samples n"]) -> Any:
    """No noise on binary units that evidence has fixed: it would only add variance to log Z."""
    binary = np.concatenate([np.full(b.size, b.domain is Domain.BINARY) for b in p.layout.blocks])
    fixed = (p.evidence != 0) & jnp.broadcast_to(binary, p.evidence.shape)
    return jnp.where(jnp.broadcast_to(fixed, noise.shape), 0.0, noise)


def _categorical(layout: Layout) -> int:
    """Number of categorical variables; the best of Gumbel noise is raised by gamma for each."""
    return sum(b.variables for b in layout.blocks if b.domain is Domain.CATEGORICAL)
