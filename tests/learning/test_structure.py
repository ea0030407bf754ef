"""Settings made the same way are the same key; anything that changes the program changes it."""

import functools
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from undirected.inference import Exact, MeanField, SumProduct
from undirected.learning import (
    Ensemble,
    MaskQueries,
    Persistent,
    PseudoLikelihood,
    QueryTraining,
    TwoPhase,
    hold_then_decay,
)
from undirected.learning.structure import Structure
from undirected.sampling import BlockGibbs, Gibbs


def noise(scale):
    def transform(batch, key):
        return batch + scale * jax.random.normal(key, batch.shape)

    return transform


def counting(start):
    """A function that closes over itself."""

    def down(n):
        return down(n - 1) if n else start

    return down


class Scale(eqx.Module):
    factor: jax.Array

    def of(self, x):
        return self.factor * x


CLIP = optax.clip_by_global_norm
SETTINGS = {
    "adam": lambda: optax.adam(1e-3),
    "another rate": lambda: optax.adam(2e-3),
    "another momentum": lambda: optax.adam(1e-3, b1=0.8),
    "sgd": lambda: optax.sgd(1e-3),
    "a whole number": lambda: optax.sgd(1),
    "the same as a float": lambda: optax.sgd(1.0),
    "schedule": lambda: optax.adam(hold_then_decay(0.1, 5, 2.0)),
    "another schedule": lambda: optax.adam(hold_then_decay(0.1, 6, 2.0)),
    "cosine": lambda: optax.adam(optax.cosine_decay_schedule(0.1, 5)),
    "chain": lambda: optax.chain(CLIP(1.0), optax.sgd(0.1)),
    "chain, turned round": lambda: optax.chain(optax.sgd(0.1), CLIP(1.0)),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "persistent": lambda: Persistent(BlockGibbs(), 10),
    "more chains": lambda: Persistent(BlockGibbs(), 11),
    "another kernel": lambda: Persistent(Gibbs(), 10),
    "with a posterior": lambda: Persistent(BlockGibbs(), 10, posterior=MeanField()),
    "two-phase": lambda: TwoPhase(Exact()),
    "at a temperature": lambda: TwoPhase(Exact(jnp.asarray(1.0))),
    "at another": lambda: TwoPhase(Exact(jnp.asarray(2.0))),
    "by propagation": lambda: TwoPhase(SumProduct(5)),
    "ensemble": lambda: Ensemble(PseudoLikelihood(), rates=[1.0, 0.5]),
    "other rates": lambda: Ensemble(PseudoLikelihood(), rates=[1.0, 0.25]),
    "masks": lambda: QueryTraining(MaskQueries(np.eye(3, dtype=bool))),
    "other masks": lambda: QueryTraining(MaskQueries(np.eye(3, dtype=bool)[:2])),
    "noise": lambda: noise(0.1),
    "more noise": lambda: noise(0.2),
    "noise of an array": lambda: noise(jnp.arange(3.0)),
    "of another array": lambda: noise(jnp.arange(3.0) + 1),
    "of another type": lambda: noise(np.arange(3)),
    "no noise": lambda: None,
    "zero": lambda: 0.0,
    "minus zero": lambda: -0.0,
    "recursive": lambda: counting(1),
    "recursive, from elsewhere": lambda: counting(2),
    "partial": lambda: functools.partial(noise, scale=1.0),
    "another partial": lambda: functools.partial(noise, scale=2.0),
    "method": lambda: Scale(jnp.ones(2)).of,
    "method of another": lambda: Scale(jnp.zeros(2)).of,
    "mapping": lambda: {"a": optax.sgd(0.1)},
    "another name": lambda: {"b": optax.sgd(0.1)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_only_what_is_made_the_same_way_is_the_same(name):
    key = Structure(SETTINGS[name]())
    again = Structure(SETTINGS[name]())
    assert key == again
    assert hash(key) == hash(again)
    assert [other for other in SETTINGS if Structure(SETTINGS[other]()) == key] == [name]


def test_arrays_that_were_written_to_are_other_arrays():
    scale = np.ones(3)
    transform = noise(scale)
    before = Structure(transform)
    assert Structure(transform) == before
    scale[0] = 2.0
    assert Structure(transform) != before


def test_unknown_objects_are_their_own_until_they_change():
    class Setting:
        def __init__(self):
            self.weight = 1.0

    one = Setting()
    before = Structure(one)
    assert Structure(one) == before
    assert Structure(Setting()) != before
    one.weight = 2.0
    assert Structure(one) != before


def session(text: str) -> dict:
    """What a session holds after this was typed into it."""
    module = types.ModuleType("__main__")
    exec(text, vars(module))
    return vars(module)


@pytest.mark.parametrize("asked", ["transform", "objective"])
def test_what_is_typed_again_counts_wherever_it_is_called(asked):
    """A helper changes two calls below; what calls it stays as it was."""
    names = session(
        "def helper(x): return 2 * x\n"
        "def between(x): return helper(x)\n"
        "def transform(x, key): return between(x)\n"
        "class Objective:\n"
        "    def __call__(self, x): return between(x)\n"
        "objective = Objective()\n"
    )
    before = Structure(names[asked])
    assert Structure(names[asked]) == before
    exec("def helper(x): return 2 * x\n", names)
    assert Structure(names[asked]) == before
    exec("def helper(x): return 3 * x\n", names)
    assert Structure(names[asked]) != before


def test_a_helper_of_a_module_that_was_replaced_counts(monkeypatch):
    before = Structure(optax.adam(0.1))
    place = optax.scale_by_adam.__globals__
    name = next(n for n in optax.scale_by_adam(0.1).update.__code__.co_names if n in place)
    monkeypatch.setitem(place, name, place[name].__class__)
    assert Structure(optax.adam(0.1)) != before
