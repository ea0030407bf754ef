"""Nonnegative Boltzmann machines: rectified Gaussians, dense or on a graph."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from undirected.core import rectified
from undirected.core.cells import unmasked
from undirected.core.errors import NotFinite, UndirectedError, shape_of
from undirected.core.graph import Graph, check_graph, from_edges
from undirected.core.layout import Block, Domain, Layout, joint_states, visible_states
from undirected.core.numerics import row
from undirected.core.potentials import Potentials, potentials
from undirected.factors import Edges, Factor, Squares, Symmetric


class NonnegativeBM(eqx.Module):
    """E(x) = -b' x + 1/2 sum_i w_ii x_i^2 + sum_{(i,j)} w_ij x_i x_j, x >= 0 (nnbm, 1).

    The density exists where the full matrix is copositive. `from_matrix` and `on_graph` check that;
    the bare constructor checks shapes and signs only. `from_data` gives a model to start learning
    from.

    Args:
        weights: w_ij, (n, n), of which the symmetric part without the diagonal counts; or (E,), one
            for each edge of `graph`.
        diagonal: w_ii > 0, (n,).
        bias: b (n,).
        graph: which units are coupled; None couples all pairs.

    Example:
        >>> import jax.numpy as jnp
        >>> import undirected as un
        >>> model = un.NonnegativeBM.from_matrix(jnp.array([[2.0, 0.5], [0.5, 1.0]]), jnp.ones(2))
        >>> print(model.energy(jnp.ones(2)))
        0.0
    """

    weights: Float[Array, "..."]
    diagonal: Float[Array, " n"]
    bias: Float[Array, " n"]
    graph: Graph | None = None

    def __check_init__(self) -> None:
        check_graph("NonnegativeBM", self.graph)
        (n,) = shape_of("NonnegativeBM", "bias", self.bias, 1)
        found = shape_of("NonnegativeBM", "weights", self.weights)
        wanted = (n, n) if self.graph is None else (self.graph.n_edges,)
        if found != wanted or (self.graph is not None and self.graph.n != n):
            where = "no graph" if self.graph is None else f"a graph of {self.graph.n} units"
            raise UndirectedError(
                f"NonnegativeBM: weights are {found} and biases ({n},) with "
                f"{where}; weights must be {wanted}"
            )
        if (own := shape_of("NonnegativeBM", "diagonal", self.diagonal)) != (n,):
            raise UndirectedError(f"NonnegativeBM: diagonal is {own}, the biases ask for ({n},)")
        parts = (self.weights, self.diagonal, self.bias)
        if not any(isinstance(a, Tracer) for a in parts):
            _check_values(*(np.asarray(a) for a in parts))

    @classmethod
    def from_matrix(cls, matrix: Float[Array, "n n"], bias: Float[Array, " n"]) -> "NonnegativeBM":
        """The dense model of a symmetric copositive matrix, w_ii on its diagonal."""
        matrix = 1.0 * jnp.asarray(matrix)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise UndirectedError(f"NonnegativeBM: the matrix is {matrix.shape}; pass (n, n)")
        gap = np.abs(np.asarray(matrix - matrix.T))
        if gap.max(initial=0.0) > 1e-5 * max(1.0, float(jnp.abs(matrix).max(initial=0.0))):
            i, j = np.unravel_index(gap.argmax(), gap.shape)
            raise UndirectedError(
                f"NonnegativeBM: couplings are not symmetric: w[{i}, {j}] is {matrix[i, j]:.6g}, "
                f"w[{j}, {i}] is {matrix[j, i]:.6g}; pass (w + w.T) / 2"
            )
        model = cls(_without_diagonal(matrix), jnp.diagonal(matrix), 1.0 * jnp.asarray(bias))
        model.check()
        return model

    @classmethod
    def on_graph(
        cls,
        graph: Graph,
        weights: Float[Array, " E"],
        diagonal: Float[Array, " n"],
        bias: Float[Array, " n"],
    ) -> "NonnegativeBM":
        """The model with couplings along the edges of a graph, which may be disconnected."""
        couplings, own, fields = (1.0 * jnp.asarray(a) for a in (weights, diagonal, bias))
        model = cls(couplings, own, fields, graph)
        model.check()
        return model

    @classmethod
    def from_data(cls, data: Float[Array, "rows n"], graph: Graph | None = None) -> "NonnegativeBM":
        """Independent rectified normals with the first two moments of the data: where to start."""
        x = check_data(data)
        n = x.shape[1]
        l, r = rectified.from_moments(x.mean(0), (x * x).mean(0))
        weights = jnp.zeros((n, n) if graph is None else graph.n_edges, r.dtype)
        return cls(weights, r, l, graph)

    def check(self) -> None:
        """Raise where x' W x < 0 for some x >= 0; warn where that is not known either way."""
        from undirected.models.copositivity import check_copositive

        check_copositive(self)

    @property
    def n(self) -> int:
        return self.bias.shape[-1]

    @property
    def layout(self) -> Layout:
        return Layout((Block("visible", 0, self.n, Domain.NONNEGATIVE),))

    @property
    def couplings(self) -> Float[Array, "..."]:
        """Edge weights, or the symmetric matrix with a zero diagonal."""
        return _without_diagonal(self.weights) if self.graph is None else self.weights

    @property
    def matrix(self) -> Float[Array, "n n"]:
        """The full matrix W, dense."""
        matrix = jnp.diag(self.diagonal)
        if self.graph is None:
            return matrix + self.couplings
        i, j = self.graph.edges[:, 0], self.graph.edges[:, 1]
        return matrix.at[i, j].set(self.weights).at[j, i].set(self.weights)

    def lower(self) -> Potentials:
        """Squares with -w_ii / 2, and one symmetric or edge group with -w_ij."""
        factor: Factor = (
            Symmetric(-self.couplings, 0)
            if self.graph is None
            else Edges(-self.weights, self.graph)
        )
        return potentials(self.layout, self.bias, (Squares(-0.5 * self.diagonal, 0), factor))

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(x); the density exp(-E) is zero where some x_i < 0."""
        x = joint_states("NonnegativeBM.energy", self.layout, x)
        pull = 0.5 * self._pulls(x) + 0.5 * row(self.diagonal, x) * x
        return (x * pull).sum(-1) - x @ self.bias

    def free_energy(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v): nothing is hidden."""
        return self.energy(v)

    def log_odds(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Field l_i = b_i - sum_j w_ij x_j of each unit: x_i | rest ~ exp(l_i x - w_ii x^2 / 2)."""
        v = visible_states("NonnegativeBM.log_odds", self.layout, v)
        return row(self.bias, v) - self._pulls(v)

    def log_conditionals(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """log p(x_i | all others): their sum is the pseudo-likelihood."""
        v = visible_states("NonnegativeBM.log_conditionals", self.layout, v)
        l = self.log_odds(v)
        r = jnp.broadcast_to(self.diagonal, l.shape)
        return l * v - 0.5 * r * v * v - rectified.log_normaliser(l, r)

    def independent(self, means: Float[Array, " n"] | None = None) -> "NonnegativeBM":
        """The same units without couplings; with `means`, exponentials cut at three of them."""
        bias, diagonal = jnp.zeros_like(self.bias), self.diagonal
        if means is not None:
            first = jnp.maximum(jnp.asarray(means, bias.dtype), 1e-3)
            bias, diagonal = rectified.from_moments(first, 1.6 * first**2)
        return NonnegativeBM(jnp.zeros_like(self.weights), diagonal, bias, self.graph)

    def units_of_measure(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """0, and the means of the units alone."""
        return jnp.zeros_like(self.bias), rectified.cumulants(self.bias, self.diagonal).mean

    def rescaled(self, means: Float[Array, " n"], scale: Float[Array, " n"]) -> "NonnegativeBM":
        """The model of scale * x; means are 0."""
        if self.graph is None:
            pairs = scale[:, None] * scale[None]
        else:
            pairs = scale[self.graph.edges].prod(1)
        return NonnegativeBM(
            self.weights / pairs, self.diagonal / scale**2, self.bias / scale, self.graph
        )

    def started_at(
        self, means: Float[np.ndarray, " n"], deviations: Float[np.ndarray, " n"]
    ) -> "NonnegativeBM":
        """The same: `from_data` makes it in the units of the data."""
        return self

    def given(self, seen: np.ndarray, x: Float[Array, " n"]) -> "NonnegativeBM":
        """The model of the other units when those under the mask `seen` have their values in x."""
        seen = np.asarray(seen, bool)
        if seen.shape != (self.n,) or jnp.shape(x) != (self.n,):
            raise UndirectedError(
                f"given: the mask has shape {seen.shape} and x {jnp.shape(x)}; the model has "
                f"{self.n} units, pass one entry for each"
            )
        x = jnp.where(seen, jnp.asarray(x, self.bias.dtype), 0.0)
        bias = self.log_odds(x)[~seen]
        if self.graph is None:
            weights = self.weights[np.ix_(~seen, ~seen)]
            return NonnegativeBM(weights, self.diagonal[~seen], bias)
        edges = np.asarray(self.graph.edges)
        kept = ~seen[edges].any(1)
        number = np.cumsum(~seen) - 1
        graph = from_edges(int((~seen).sum()), number[edges[kept]])
        return NonnegativeBM(self.weights[kept], self.diagonal[~seen], bias, graph)

    def _pulls(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        if self.graph is None:
            return x @ self.couplings
        return self.graph.fields(self.weights, x)


def check_data(data: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    """The data as floats, refused with a reason where they are not finite or not nonnegative."""
    x = jnp.asarray(unmasked(data))
    if x.ndim != 2 or x.shape[0] < 2:
        raise UndirectedError(
            f"nonnegative data: got shape {x.shape}; pass (rows, units), rows > 1"
        )
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
    if not jnp.isfinite(x).all():
        bad = np.argwhere(~np.isfinite(np.asarray(x)))
        raise NotFinite(
            f"nonnegative data: {len(bad)} entries are NaN or infinite, the first at row "
            f"{bad[0][0]}, unit {bad[0][1]}; drop those rows, or fill them in by sampling"
        )
    if (x < 0).any():
        where = np.argwhere(np.asarray(x) < 0)
        raise UndirectedError(
            f"nonnegative data: {len(where)} entries are negative, the first at row "
            f"{where[0][0]}, unit {where[0][1]}; shift the data, or model them as real units"
        )
    if not (x > 0).any(0).all():
        dead = np.flatnonzero(~np.asarray((x > 0).any(0)))
        raise UndirectedError(
            f"nonnegative data: {len(dead)} units are always 0, the first is unit {dead[0]}; drop "
            "them"
        )
    return x


def sigma_points(data: Float[Array, "rows n"]) -> Float[Array, "2n n"]:
    """2n rows with the mean and all second moments of the data.

    The energy is quadratic, so in learning they weigh exactly what the data do. Some entries may be
    negative: the rows carry moments, they are not states.
    """
    x = check_data(data)
    n, centre = x.shape[1], x.mean(0)
    centred = x - centre[None]
    values, vectors = jnp.linalg.eigh(centred.T @ centred / len(x))
    spread = vectors * jnp.sqrt(n * jnp.maximum(values, 0.0))[None]
    return jnp.concatenate([centre[None] + spread.T, centre[None] - spread.T])


def _without_diagonal(weights: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return 0.5 * (weights + weights.T) * (1 - jnp.eye(weights.shape[0], dtype=weights.dtype))


def _check_values(weights: np.ndarray, diagonal: np.ndarray, bias: np.ndarray) -> None:
    for name, part in (("weights", weights), ("diagonal", diagonal), ("bias", bias)):
        if not np.isfinite(part).all():
            raise NotFinite(f"NonnegativeBM: {name} has NaN or infinite entries")
    if (diagonal <= 0).any():
        i = int(np.flatnonzero(diagonal <= 0)[0])
        raise UndirectedError(
            f"NonnegativeBM: w[{i}, {i}] is {diagonal[i]:.6g}; the diagonal must be positive, or "
            "the density of that unit cannot be normalised"
        )
