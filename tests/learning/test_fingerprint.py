"""Fingerprints: the same for what is made the same way, in any process, and for nothing else."""

import subprocess
import sys
from functools import partial

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from undirected.inference import SumProduct
from undirected.learning import Conditional, Persistent, TwoPhase
from undirected.learning.fingerprint import data_fingerprint, fingerprint
from undirected.sampling import BlockGibbs, Gibbs

MAKERS = {
    "adam": lambda rate=1e-3: optax.adam(rate),
    "falling sgd": lambda rate=0.1: optax.sgd(optax.cosine_decay_schedule(rate, 100), 0.9),
    "clipped": lambda most=1.0: optax.chain(optax.clip_by_global_norm(most), optax.adam(1e-3)),
    "persistent": lambda chains=10: Persistent(BlockGibbs(), chains=chains),
    "two-phase": lambda rounds=10: Conditional(TwoPhase(SumProduct(rounds))),
    "partial": lambda base=2: partial(int, base=base),
    "array": lambda scale=1: {"a": np.arange(4) * scale, "b": (1.0, None)},
}


@pytest.mark.parametrize("name", MAKERS)
def test_made_the_same_way_or_another(name):
    make = MAKERS[name]
    assert fingerprint(make()) == fingerprint(make())
    assert fingerprint(make()) != fingerprint(make(3))


def test_kinds_are_told_apart():
    different = [1, 1.0, True, "1", None, (1,), [1], np.arange(1), jnp.zeros(1), int, BlockGibbs()]
    different += [Gibbs(), optax.adam(1.0), optax.sgd(1.0)]
    assert len({fingerprint(value) for value in different}) == len(different)


def test_another_process_finds_the_same():
    code = (
        "import optax; from undirected.learning import Persistent; from undirected.sampling import "
        "BlockGibbs; from undirected.learning.fingerprint import fingerprint; "
        "print(fingerprint([optax.adam(optax.cosine_decay_schedule(0.1, 5)), "
        "Persistent(BlockGibbs(), chains=3)]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = [optax.adam(optax.cosine_decay_schedule(0.1, 5)), Persistent(BlockGibbs(), chains=3)]
    assert found.stdout.strip() == fingerprint(here)


def test_tables_by_shape_and_rows():
    rows = np.random.default_rng(0).integers(0, 2, (5000, 3)).astype(np.uint8)
    assert data_fingerprint(rows) == data_fingerprint(rows.copy())
    assert data_fingerprint(rows) != data_fingerprint(rows[:-1])
    assert data_fingerprint(rows) != data_fingerprint(1 - rows)
    assert data_fingerprint((rows, rows[:, :1])) != data_fingerprint((rows, 1 - rows[:, :1]))
    few = rows[:100].copy()
    few[57, 1] ^= 1
    assert data_fingerprint(few) != data_fingerprint(rows[:100])
