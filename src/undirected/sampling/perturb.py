"""Perturb-and-max-product: the best state of a model with noisy fields is a sample."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.agreement import told_of_loss
from undirected.core.errors import UndirectedError, check_counts
from undirected.core.layout import Domain, Layout
from undirected.core.mesh import check_mesh, gather, place, place_chains, use_mesh
from undirected.core.numerics import is_traced
from undirected.core.potentials import (
    Beliefs,
    Potentials,
    Status,
    batch_axes,
    clamp,
    lowered,
    mean_statistics,
    shift,
    values,
)
from undirected.core.protocols import Decoder, Info, Lowerable, Resumable
from undirected.core.units import free_variables, perturbation
from undirected.sampling.base import Evaluations, check_lowerable


class PerturbedState(eqx.Module):
    """Samples, and the messages that found them where the sampler keeps those."""

    x: Float[Array, "*chains n"]
    messages: Any = None


@dataclass(frozen=True)
class PerturbAndMap:
    """Samples as best states of a model with noisy fields (pmp, eq. 2, Algorithm 1).

    Binary units get logistic noise, states of categorical variables Gumbel noise. It is a kernel,
    each step of which draws afresh, and an inference, whose beliefs are means over draws.

    Args:
        infer: finds the best state: `MaxProduct(50, None, 0.5, parallel=True)` for the paper's
            sampler, `Exact(0.0)` for the true maximum, or any inference at temperature 0.
        samples: draws that a call, or `draw`, makes.
        persistent: as a kernel, let the messages go on from those of the chain's last step (noise
            is always new). This is for belief propagation alone, and keeps all messages of all
            chains.

    Returns:
        A call with a model and a key gives `Beliefs`, whose `log_z` is the mean perturbed maximum:
        an upper bound of log Z in expectation where the maxima are found (pmp, Sec. 2.2). `draw`
        gives the samples.

    Example:
        >>> import jax
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> sampler = un.PerturbAndMap(un.MaxProduct(), samples=4)
        >>> sampler.draw(model, jax.random.key(0)).x.shape
        (4, 3)
    """

    infer: Decoder
    samples: int = 1
    persistent: bool = False

    def __post_init__(self) -> None:
        check_counts("PerturbAndMap", samples=self.samples)
        name = type(self.infer).__name__
        if not getattr(self.infer, "finds_best_state", False):
            raise UndirectedError(
                f"PerturbAndMap: {name} finds marginals, and the sampler needs best states; pass "
                "MaxProduct, MPLP, LinearProgram, Elimination, or Exact(temperature=0.0)"
            )
        if self.persistent and not isinstance(self.infer, Resumable):
            raise UndirectedError(
                f"PerturbAndMap: {name} has no messages to resume; persistent=True needs MaxProduct"
            )

    def __call__(self, model: Any, key: Key[Array, ""]) -> Beliefs:
        """Beliefs as means over perturbed maxima, with the batch axes of the potentials."""
        p = lowered("PerturbAndMap", model)
        if p.unary.ndim > 1:
            return _each_instance(self, p, key)
        found = self.draw(p, key)
        how = found.log_z.mean(), found.status.max(), found.iterations.max()
        beliefs = mean_statistics(p, found.x)
        return eqx.tree_at(lambda b: (b.log_z, b.status, b.iterations), beliefs, how)

    def draw(self, model: Any, key: Key[Array, ""], mesh: Mesh | None = None) -> "Draws":
        """`samples` draws, with the perturbed maxima; evidence is honoured.

        Batch axes of the potentials come first, before the samples. On a mesh the draws of one
        instance are split over its devices.
        """
        p = lowered("PerturbAndMap", model)
        mesh = check_mesh("PerturbAndMap", mesh, model)
        if p.unary.ndim > 1:
            if mesh is not None:
                raise UndirectedError(
                    f"PerturbAndMap: got potentials of {len(p.unary)} instances and a mesh, over "
                    "which the draws of one are split; leave out mesh, or draw from each alone"
                )
            return _each_instance(self.draw, p, key)
        noise_key, key = jax.random.split(key)
        noise = perturbation(p.layout, noise_key, (self.samples,)).astype(p.unary.dtype)
        if mesh is None:
            return self.solve(shift(p, _on_free_units(p, noise)), key)
        return self._draw_on(mesh, p, noise, key)

    def _draw_on(self, mesh: Mesh, p: Potentials, noise: Array, key: Key[Array, ""]) -> "Draws":
        """`draw` with this noise, split over the devices of a mesh."""
        if getattr(self.infer, "on_host", False):
            raise UndirectedError(
                f"PerturbAndMap: {type(self.infer).__name__} runs in NumPy and cannot be split over"
                " devices; leave out mesh, or use MaxProduct"
            )
        p, key = place(mesh, (p, key))
        with use_mesh(mesh), told_of_loss(mesh):
            noisy = shift(p, _on_free_units(p, place_chains(mesh, noise)))
            return gather(mesh, self.solve(noisy, key))

    def solve(self, noisy: Potentials, key: Key[Array, ""]) -> "Draws":
        """The best states of instances that share their factors, and their centred values."""
        x, status, iterations = self.infer.decode(noisy, key)
        constant = np.euler_gamma * _categorical(noisy.layout)
        return Draws(x, values(noisy, x) - constant, status, iterations)

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> PerturbedState:
        """Chains that start at x; only units that are not free stay there."""
        check_lowerable("PerturbAndMap", model, "BlockGibbs")
        state = jnp.asarray(x, float)
        if not self.persistent:
            return PerturbedState(state)
        assert isinstance(self.infer, Resumable)
        neutral = self.infer.init_messages(model.lower())
        chains = int(np.prod(state.shape[:-1]))
        messages = jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), neutral)
        return PerturbedState(state, messages)

    def evaluations(self, model: Lowerable) -> Evaluations:
        """The energy of the sample; a round of messages, at most all are made, is as a gradient."""
        rounds = getattr(self.infer, "iterations", None)
        if rounds is None:
            raise UndirectedError(
                f"PerturbAndMap: {type(self.infer).__name__} makes no rounds that could be counted;"
                " only those of MaxProduct are"
            )
        return Evaluations(0 if self.persistent else 1, int(rounds))

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
            assert isinstance(self.infer, Resumable)
            resume = jax.vmap(self.infer.resume, in_axes=(batch_axes(noisy), 0))
            found, messages = resume(noisy, state.messages)
        else:
            found = self.solve(noisy, key)
        x = jnp.where(held, flat, found.x).reshape(before.shape)
        flips = (x != before).mean(-1, dtype=before.dtype)
        info = {"flips": flips, "converged": found.converged.astype(x.dtype)}
        return PerturbedState(x, messages), info


class Draws(eqx.Module):
    """Samples, their perturbed values (their mean estimates log Z), and how the solver went."""

    x: Float[Array, "samples n"]
    log_z: Float[Array, " samples"]
    status: Int[Array, " samples"]
    iterations: Array

    @property
    def converged(self) -> Bool[Array, " samples"]:
        """Which searches reached their goal."""
        return self.status == Status.CONVERGED


def _each_instance(answer: Any, p: Potentials, key: Key[Array, ""]) -> Any:
    """The answers of the instances along the first axis, each with a key of its own."""
    keys = jax.random.split(key, len(p.unary))
    if is_traced((p, key)):
        return jax.vmap(answer, in_axes=(batch_axes(p), 0))(p, keys)
    # One after the other: solvers on the host cannot be mapped.
    fields = lambda q: (q.unary, q.evidence)  # noqa: E731
    found = [
        answer(eqx.tree_at(fields, p, (p.unary[i], p.evidence[i])), keys[i])
        for i in range(len(keys))
    ]
    if not found:
        raise UndirectedError("PerturbAndMap: got potentials of 0 instances; pass at least one")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def _on_free_units(p: Potentials, noise: Float[Array, "samples n"]) -> Any:
    """No noise on binary units that evidence has fixed: it would only add variance to log Z."""
    binary = np.concatenate([np.full(b.size, b.domain is Domain.BINARY) for b in p.layout.blocks])
    fixed = (p.evidence != 0) & jnp.broadcast_to(binary, p.evidence.shape)
    return jnp.where(jnp.broadcast_to(fixed, noise.shape), 0.0, noise)


def _categorical(layout: Layout) -> int:
    """Number of categorical variables; the best of Gumbel noise is raised by gamma for each."""
    return sum(b.variables for b in layout.blocks if b.domain is Domain.CATEGORICAL)
