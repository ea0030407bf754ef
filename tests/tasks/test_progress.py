"""Verbs that run chains tell how far they are, and change nothing by it."""

import numpy as np

import undirected as un


def counted(told):
    done, total = zip(*told, strict=True)
    assert len(set(total)) == 1 and list(done) == sorted(done)
    return done[-1], total[0]


def test_samples_are_the_same_with_progress_and_counted_through():
    model, told = un.RBM.create(4, 2, seed=0, scale=1.0), []
    plain = un.sample(model, 5, sweeps=30, kernel=un.BlockGibbs(), seed=1)
    options = {"sweeps": 30, "seed": 1, "progress": lambda *now: told.append(now)}
    found = un.sample(model, 5, kernel=un.BlockGibbs(), **options)
    np.testing.assert_array_equal(found, plain)
    assert counted(told) == (150, 150) and len(told) > 2
    told.clear()
    un.sample(model, 5, **options)
    assert told == [(150, 150)], "exact draws have no sweeps, and are done at once"


def test_evaluation_counts_the_steps_of_log_z_and_of_rows_with_holes():
    model, told = un.RBM.create(4, 2, seed=0, scale=1.0), []
    rows = np.array([[0, 1, 1, np.nan], [1, 1, 0, 0]], np.float32)
    options = {"method": "ais", "chains": 4, "betas": 40, "seed": 0, "entries": False}
    plain = un.evaluate(model, rows, **options)
    found = un.evaluate(model, rows, progress=lambda *now: told.append(now), **options)
    assert found.log_likelihood.mean == plain.log_likelihood.mean
    wanted = 2 * 4 * 40 + 1 * 20 * 4  # log Z from both sides, and one row of 20 chains
    assert counted(told) == (wanted, wanted)
    told.clear()
    un.evaluate(model, rows[1:], progress=lambda *now: told.append(now), **options)
    assert counted(told) == (2 * 4 * 40, 2 * 4 * 40)
