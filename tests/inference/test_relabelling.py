"""Exchanging the two states of all units exchanges them in every answer, whatever the routine.

No oracle is needed: the relabelled model is written down by hand in NumPy, and the routine is asked
about both. It must hold at every round, not at a fixed point alone, or the routine favours a state.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import mostly_slow
from tests.relabelled import PAIRS, Pair, dense_weights, turned
from undirected.core import graph
from undirected.core.potentials import clamp
from undirected.inference import (
    MPLP,
    TAP,
    BeliefPropagation,
    Elimination,
    Exact,
    ImprovedSusceptibility,
    LinearProgram,
    MaxProduct,
    MeanField,
    QueryNetwork,
    SumProduct,
    Susceptibility,
    Transfer,
)
from undirected.models import Ising
from undirected.ops import max_product_gpu, on_chip

pytestmark = pytest.mark.usefixtures("x64")


def check(routine, pair: Pair, atol: float) -> None:
    """Beliefs about units and factors are exchanged, log Z moves by the constant."""
    here, there = routine(pair.model.lower()), routine(pair.relabelled.lower())
    np.testing.assert_allclose(there.unary, 1 - here.unary, atol=atol)
    moved = float(there.log_z) + pair.constant
    # A hard factor costs 1e9 times the probability that it is broken, which is known to rounding.
    rounding = 4 * 1e9 * np.finfo(float).eps
    assert float(here.log_z) == pytest.approx(moved, abs=10 * atol + rounding, rel=1e-9)
    assert int(here.status) == int(there.status)
    assert int(here.iterations) == int(there.iterations)
    for a, b in zip(here.factors, there.factors, strict=True):
        if getattr(a, "states", None):
            axes = tuple(range(-len(a.states), 0))
            np.testing.assert_allclose(np.flip(b.weight, axes), a.weight, atol=atol)


FEW = ["dense", "rbm steep", "factor graph"]
each_pair = pytest.mark.parametrize("name", mostly_slow(PAIRS, FEW))
ROUNDS = [1, 2, 5, 50]
SCHEDULES = {
    "in turn": {"damping": 0.0, "parallel": False},
    "at once, damped": {"damping": 0.3, "parallel": True},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@each_pair
def test_belief_propagation_at_every_round(name, schedule):
    """Sum-product and a lower temperature, in one compiled program."""
    pair, how = PAIRS[name](), SCHEDULES[schedule]
    for temperature in (1.0, 0.6):
        for rounds in ROUNDS:
            T = jnp.asarray(temperature)
            infer = BeliefPropagation(jnp.asarray(rounds), None, temperature=T, **how)
            check(infer, pair, 1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
@each_pair
def test_max_product_at_every_round(name, schedule):
    pair = PAIRS[name]()
    for rounds in ROUNDS:
        infer = MaxProduct(jnp.asarray(rounds), None, **SCHEDULES[schedule])
        check(infer, pair, 1e-9)
        here, there = infer.decode(pair.model), infer.decode(pair.relabelled)
        np.testing.assert_array_equal(there.x, 1 - here.x)


@pytest.mark.parametrize("infer", [SumProduct(3), MaxProduct(3)], ids=["sum", "max"])
@pytest.mark.parametrize("name", ["dense", "torus", "rbm gentle"])
def test_a_fixed_number_of_rounds_and_a_tolerance(name, infer):
    """Numbers of rounds that are known when the program is compiled take ways of their own."""
    check(infer, PAIRS[name](), 1e-9)


OTHERS = {
    "exact": Exact(),
    "exact best": Exact(0.0),
    "elimination": Elimination(),
    "elimination best": Elimination(0.0),
    "mean field": MeanField(7, None),
    "greedy": MeanField(7, None, temperature=0.0),
    "mplp": MPLP(iterations=20),
    "highs": LinearProgram(),
}


@pytest.mark.parametrize("routine", OTHERS)
@pytest.mark.parametrize("name", mostly_slow([n for n in PAIRS if n != "logic"], FEW))
def test_routines_of_every_model(name, routine):
    check(OTHERS[routine], PAIRS[name](), 1e-8)


THEORIES = {
    "tap": TAP(iterations=5),
    "naive": TAP(order=1),
    "susceptibility": Susceptibility(iterations=30),
    "improved": ImprovedSusceptibility(iterations=5),
    "cut": LinearProgram("cut"),
}


@pytest.mark.parametrize("routine", THEORIES)
@pytest.mark.parametrize("name", mostly_slow(["dense", "grid", "rbm gentle"], ["dense"]))
def test_routines_of_pairwise_models(name, routine):
    check(THEORIES[routine], PAIRS[name](), 1e-8)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_transfer(temperature):
    pair = PAIRS["grid"]()
    check(Transfer.plan(pair.model.graph, temperature), pair, 1e-9)


def test_no_field_means_no_preference():
    """J = 0.4 and h = 0 on a torus: every mean is one half at every round."""
    where = graph.torus(4, 4)
    model = Ising.from_spins(np.full(where.n_edges, 0.4), np.zeros(where.n), where)
    for infer in (SumProduct(), SumProduct(100, None), MaxProduct(), MeanField(), TAP()):
        np.testing.assert_allclose(infer(model).unary, 0.5, atol=1e-12)


@pytest.mark.parametrize("name", ["torus", "rbm gentle", "rbm steep"])
def test_evidence_is_exchanged_too(name):
    pair = PAIRS[name]()
    n = pair.model.layout.n
    mask, x = jnp.arange(n) % 3 == 0, jnp.arange(n) % 2
    here = SumProduct(5, None)(clamp(pair.model.lower(), mask, x))
    there = SumProduct(5, None)(clamp(pair.relabelled.lower(), mask, 1 - x))
    np.testing.assert_allclose(there.unary, 1 - here.unary, atol=1e-9)
    assert float(here.log_z) == pytest.approx(float(there.log_z) + pair.constant, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", ["belief", "message"])
@pytest.mark.parametrize("name", ["rbm gentle", "rbm very steep", "torus"])
def test_query_networks_of_the_spin_form(name, temperature):
    pair = PAIRS[name]()
    rows = jnp.asarray(np.random.default_rng(4).normal(size=(3, pair.model.layout.n_visible)))
    here, there = (
        QueryNetwork(model, 1.3, 4, temperature, symmetric_start=True).logits(sign * rows)
        for model, sign in ((pair.model, 1), (pair.relabelled, -1))
    )
    np.testing.assert_allclose(there, -here, atol=1e-8)


def test_messages_that_do_not_start_neutral_fail_this_test():
    """The query network of the {0, 1} form starts with messages that favour a state."""
    pair = PAIRS["rbm gentle"]()
    rows = jnp.zeros((1, 5))
    here, there = (
        QueryNetwork(model, 1.0, 3).logits(rows) for model in (pair.model, pair.relabelled)
    )
    assert not np.allclose(there, -here, atol=1e-2)


FUSED = {
    "symmetric": partial(max_product_gpu.symmetric_fused, interpret=True),
    "two layers": partial(max_product_gpu.bipartite_fused, interpret=True),
}


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "tolerance"), [(1, None), (7, None), (4, 1e-3)])
@pytest.mark.parametrize("form", FUSED)
def test_fused_max_product(form, rounds, tolerance):
    """Interpreted: the fields with all messages added change their sign."""
    w, fields = dense_weights(5, *((20, 20) if form == "symmetric" else (9, 20)))
    totals = [
        FUSED[form](jnp.asarray(w), *map(jnp.float32, own), rounds, tolerance, 0.5)[0]
        for own in (fields, turned(w, fields))
    ]
    np.testing.assert_allclose(totals[1], -totals[0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 4])
def test_messages_on_chip(rounds):
    """In single precision, as on a GPU."""
    with jax.enable_x64(False):
        _check_on_chip(rounds)


def _check_on_chip(rounds):
    w, fields = dense_weights(6, 30, 20)
    w, fields = 0.3 * w, [0.3 * f for f in fields]
    odds = []
    for own in (fields, turned(w, fields)):
        rows, cols = (jnp.float32(f)[None] for f in own)
        sets = jnp.float32(w)[None], rows[None], cols[None], jnp.full((1, 1), rounds, jnp.int32)
        _, at_rows, at_cols, *_ = on_chip.run(*sets, None, split=(2, 2))
        odds.append(np.concatenate([rows + at_rows[0], cols + at_cols[0]], 1))
    np.testing.assert_allclose(odds[1], -odds[0], atol=1e-4)
