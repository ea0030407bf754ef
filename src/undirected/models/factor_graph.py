"""Factor graphs: discrete variables of any number of states, factor groups of any order."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import Graph
from undirected.core.layout import Block, Domain, Layout
from undirected.core.numerics import row
from undirected.core.potentials import Potentials, local_fields, potentials, values
from undirected.factors import (
    Bilinear,
    Count,
    Edges,
    Factor,
    Incidence,
    Logic,
    Pool,
    Symmetric,
    Tables,
    Wired,
)
from undirected.factors.colouring import colour_variables


def discrete(**blocks: int | tuple[int, int]) -> Layout:
    """A layout of named blocks: a number of binary variables, or (number, states).

    `discrete(pixels=784, digit=(1, 10))`: variables are numbered block after block. A block of two
    states is binary: one unit a variable.
    """
    found, start = [], 0
    for name, size in blocks.items():
        count, states = size if isinstance(size, tuple) else (size, 2)
        if count < 1 or states < 2:
            raise UndirectedError(
                f"discrete: block '{name}' has {count} variables of {states} states; pass at "
                "least 1 variable of at least 2"
            )
        binary = states == 2
        stop = start + count * (1 if binary else states)
        domain = Domain.BINARY if binary else Domain.CATEGORICAL
        found.append(Block(name, start, stop, domain, states))
        start = stop
    return Layout(tuple(found))


class FactorGraph(eqx.Module):
    """-E(x) = unary' x + sum over factor groups + offset, on the units of a discrete layout.

    Groups come from `factors` (tables, logical_or, logical_and, pool, count, at_most, Bilinear,
    Symmetric, Edges, ...). A state that breaks a hard constraint has an energy of at least CERTAIN.
    `colours` lists the units that share no factor, for samplers and mean field (`create` finds
    them).
    """

    unary: Float[Array, " n"]
    factors: tuple[Factor, ...]
    offset: Float[Array, ""]
    layout: Layout = eqx.field(static=True)
    colours: Int[Array, "C m"] | None = None

    def __check_init__(self) -> None:
        if jnp.shape(self.unary) != (self.layout.n,):
            raise UndirectedError(
                f"FactorGraph: unary has shape {jnp.shape(self.unary)}, the layout has "
                f"{self.layout.n} units; pass one log-odds per binary variable and one "
                "log-potential per state of the others"
            )
        for factor in self.factors:
            factor.check(self.layout)

    @classmethod
    def create(
        cls,
        layout: Layout,
        factors: Sequence[Factor] = (),
        unary: Float[Array, " n"] | None = None,
    ) -> "FactorGraph":
        """A factor graph; without `unary` no single variable prefers a state."""
        unary = jnp.zeros(layout.n) if unary is None else jnp.asarray(unary, float)
        for factor in factors:
            factor.check(layout)
        colours = colour_variables(layout, factors)
        return cls(unary, tuple(factors), jnp.zeros((), unary.dtype), layout, colours)

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(x) of joint states."""
        flat = x.reshape(-1, x.shape[-1])
        return -values(self.lower(), flat).reshape(x.shape[:-1])

    def free_energy(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v) of graphs whose variables are all visible: nothing is summed out."""
        self._check_visible("free energy")
        return self.energy(v)

    def log_odds(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """The field of every unit given all others, of graphs whose variables are all visible."""
        self._check_visible("log odds")
        fields = local_fields(self.lower(), v)
        return fields + row(self.unary, fields)

    def _check_visible(self, asked: str) -> None:
        """Hidden variables would have to be summed out, which no group can do in general."""
        hidden = [block.name for block in self.layout.blocks if not block.visible]
        if hidden:
            groups = ", ".join(sorted({type(factor).__name__ for factor in self.factors}))
            raise UnsupportedFactor(
                f"FactorGraph: {asked}: block '{hidden[0]}' of a graph of {groups} is hidden, and "
                "factor graphs do not sum hidden variables out; use inference on lower()"
            )

    def lower(self) -> Potentials:
        """The groups as they are."""
        return potentials(self.layout, self.unary, self.factors, self.offset, self.colours)

    def config(self) -> dict[str, Any]:
        """Hyper-parameters for a model file."""
        blocks = [
            {
                "name": b.name,
                "size": b.size,
                "domain": b.domain.value,
                "states": b.states,
                "visible": b.visible,
            }
            for b in self.layout.blocks
        ]
        return {"blocks": blocks, "factors": [_describe(f) for f in self.factors]}

    @classmethod
    def skeleton(cls, config: dict[str, Any]) -> "FactorGraph":
        """A model of zeros with these hyper-parameters."""
        blocks, start = [], 0
        for b in config["blocks"]:
            domain = Domain(b["domain"])
            end = start + b["size"]
            blocks.append(Block(b["name"], start, end, domain, b["states"], b["visible"]))
            start = end
        return cls.create(Layout(tuple(blocks)), [_empty(f, start) for f in config["factors"]])


def _describe(factor: Factor) -> dict[str, Any]:
    """The static parts and the shapes of one group."""
    kind = type(factor).__name__
    shape = None if factor.weight is None else list(factor.weight.shape)
    found: dict[str, Any] = {"group": kind, "weight": shape}
    match factor:
        case Wired():
            wires = factor.wires
            found["units"] = list(wires.units.shape)
            found["incoming"] = [list(table.shape) for table in wires.incoming]
    match factor:
        case Tables():
            return {**found, "states": list(factor.states), "widths": list(factor.widths)}
        case Logic():
            return {**found, "conjunction": factor.conjunction}
        case Pool() | Count():
            return found
        case Bilinear():
            return {**found, "rows": factor.rows, "cols": factor.cols}
        case Symmetric():
            return {**found, "block": factor.block}
        case Edges():
            incoming = factor.graph.incoming
            table = None if incoming is None else list(incoming.shape)
            shapes = {"incoming": table, "colours": list(factor.graph.colours.shape)}
            return {**found, **shapes, "sides": factor.graph.sides}
    raise UnsupportedFactor(f"FactorGraph: cannot describe a {kind} group in a model file")


def _empty(found: dict[str, Any], n: int) -> Factor:
    """A group of zeros with these shapes."""

    def zeros(shape: list[int], dtype: Any = jnp.int32) -> Array:
        return jnp.zeros(tuple(shape), dtype)

    kind, shape = found["group"], found["weight"]
    weight = None if shape is None else zeros(shape, float)
    if kind in ("Bilinear", "Symmetric", "Edges"):
        assert weight is not None
        assert shape is not None
        if kind == "Bilinear":
            return Bilinear(weight, found["rows"], found["cols"])
        if kind == "Symmetric":
            return Symmetric(weight, found["block"])
        incoming = None if found["incoming"] is None else zeros(found["incoming"])
        edges = zeros([shape[0], 2])
        sides = tuple(found["sides"]) if found.get("sides") else None
        return Edges(weight, Graph(edges, incoming, zeros(found["colours"]), n, sides))
    tables = tuple(zeros(table) for table in found["incoming"])
    incidence = Incidence(zeros(found["units"]), tables, zeros([n]), n)
    match kind:
        case "Tables":
            assert weight is not None
            return Tables(weight, incidence, tuple(found["states"]), tuple(found["widths"]))
        case "Logic":
            return Logic(weight, incidence, found["conjunction"])
        case "Pool":
            return Pool(weight, incidence)
        case "Count":
            assert weight is not None
            return Count(weight, incidence)
    raise UnsupportedFactor(f"FactorGraph: a file names a factor group {kind}, which is unknown")
