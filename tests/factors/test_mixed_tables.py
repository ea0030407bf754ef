"""Tables of many shapes in one group: as few programs as for one shape, little padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compilations
from undirected.core.errors import UndirectedError
from undirected.factors import MixedTables, Tables, mixed_tables
from undirected.factors.mixed_tables import ROOM, size_classes
from undirected.inference import MaxProduct, MeanField, SumProduct
from undirected.models import FactorGraph, discrete, markov_network


def ring(sizes: list[int]) -> FactorGraph:
    """Variables of these numbers of states, each joined with the next by a table."""
    rng = np.random.default_rng(0)
    pairs = [(v, (v + 1) % len(sizes)) for v in range(len(sizes))]
    return markov_network(
        sizes, [(pair, rng.gamma(2.0, size=[sizes[v] for v in pair])) for pair in pairs]
    )


@pytest.mark.parametrize(
    "routine", [SumProduct(20), MaxProduct(20), MeanField(20)], ids=["sum", "max", "mean field"]
)
def test_ten_numbers_of_states_make_the_program_of_three(routine) -> None:
    programs, made = [], []
    for sizes in ([3, 4, 5, 2] * 3, [*range(2, 12), 3, 4]):
        jax.clear_caches()  # what other tests have made is not to be counted against one of both
        with compilations() as found:
            graph = ring(sizes)
        made.append(len(found))
        p = graph.lower()
        assert [type(group) for group in graph.factors] == [MixedTables]
        text = jax.jit(lambda p: routine(p).unary).lower(p).as_text()
        programs.append(text.count(" = "))
    assert programs[0] == programs[1]
    assert made[0] == made[1] > 0


def test_a_network_of_one_shape_is_not_padded() -> None:
    assert [type(group) for group in ring([3] * 5).factors] == [Tables]


@pytest.mark.parametrize("many", [1, 10_000], ids=["few", "many"])
def test_padding_is_bounded(many: int) -> None:
    """One variable of 500 states beside small ones; and ten numbers of states, often or rarely."""
    shapes = [(a, b) for a in range(2, 12) for b in range(a, 12)]
    for counts in (
        {(2, 2): many, (2, 500): 3, (3, 3): 5, (500, 500): 1},
        dict.fromkeys(shapes, many),
    ):
        classes = size_classes(counts)
        assert sorted(shape for own in classes for shape in own) == sorted(counts)
        entries = sum(np.prod(shape) * count for shape, count in counts.items())
        padded = sum(
            np.prod(np.max(own, 0)) * sum(counts[shape] for shape in own) for own in classes
        )
        assert padded <= entries + max(entries, ROOM)
    assert len(size_classes(dict.fromkeys(shapes, 3))) == 1
    assert len(size_classes({(2, 2): 10**6, (500, 500): 1})) == 2


def test_padding_is_no_state() -> None:
    """Beliefs about states that do not exist are 0, and a gradient does not reach them."""
    group = ring([2, 3, 5, 4]).factors[0]
    assert isinstance(group, MixedTables)
    there = np.asarray(group.weight) > -1e8
    assert there.sum() == sum(np.prod(shape) * count for shape, count in group.runs)
    beliefs = SumProduct(20)(ring([2, 3, 5, 4])).factors[0].weight
    assert (np.asarray(beliefs)[~there] == 0).all()
    np.testing.assert_allclose(beliefs.sum((1, 2)), 1.0, atol=1e-5)

    def log_z(weight: jax.Array) -> jax.Array:
        graph = ring([2, 3, 5, 4])
        own = MixedTables(weight, group.incidence, group.states, group.runs)
        graph = FactorGraph(graph.unary, (own,), graph.offset, graph.layout, graph.colours)
        return SumProduct(20, None)(graph).log_z

    slope = np.asarray(jax.grad(log_z)(jnp.asarray(group.weight)))
    assert np.isfinite(slope).all()
    assert (slope[~there] == 0).all()
    np.testing.assert_allclose(slope[there], np.asarray(beliefs)[there], atol=1e-3)


def test_wrong_tables_are_refused() -> None:
    layout = discrete(x=2, y=(1, 3))
    with pytest.raises(UndirectedError, match=r"table 0 has shape \(2, 2\).*\(2, 3\) states"):
        mixed_tables(layout, [[0, 2]], [np.zeros((2, 2))])
    with pytest.raises(UndirectedError, match="1 tables for scopes of shape"):
        mixed_tables(layout, [[0, 2], [0, 1]], [np.zeros((2, 3))])
    group = mixed_tables(layout, [[0, 2], [0, 1]], [np.zeros((2, 3)), np.zeros((2, 2))])
    wrong = MixedTables(group.weight[:1], group.incidence, group.states, group.runs)
    with pytest.raises(UndirectedError, match="for 2 factors"):
        FactorGraph.create(layout, [wrong])
