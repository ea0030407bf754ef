"""The experiments on conditional RBMs: their cases, and runs at the smallest size."""

import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.experiments import runner
from undirected.papers.crbm_bp import _images, words
from undirected.papers.crbm_bp._learners import Task, learn


def test_cases_say_how_images_are_corrupted(key):
    v = jnp.zeros((200, 784)).at[:, 300:500].set(1.0)
    flipped = _images.corruption("noise 20 %")(v, key)
    assert float((flipped != v).mean()) == pytest.approx(0.2, abs=0.01)
    covered = _images.corruption("occluded 12x12")(v, key)
    assert float((covered < v).sum(1).max()) <= 144
    assert not (covered > v).any()
    other = _images.corruption("occluded 12x12", white=0)(1 - v, key)
    assert jnp.array_equal(other, 1 - covered)


def test_an_unknown_method_or_optimiser_is_refused():
    config = _images.SMOKE | {"rates": {"MLE": [0.1]}}
    rows = np.zeros((4, 3), np.uint8), np.zeros((4, 3), np.uint8)
    task = Task(rows, rows, rows, score=lambda p, x, v: {"all": (0.0, 0.0)})
    with pytest.raises(UndirectedError, match="method 'MLE-XX' is unknown"):
        learn(task, "MLE-XX", config, 0)
    with pytest.raises(UndirectedError, match="optimiser 'newton' is none of"):
        learn(task, "MLE-BP", config | {"optimiser": "newton"}, 0)


def wrong_units(answers, x, v):
    return {"all": (float(((answers > 0.5) != v).mean()), 0.0)}


@pytest.mark.slow
def test_models_start_at_the_regression():
    """Without a step of learning the answers are those of the regression."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (60, 5)).astype(np.uint8)
    pair = x, x[:, :3]
    task = Task(pair, pair, pair, score=wrong_units)
    config = _images.SMOKE | {"epochs": 20, "rates": {"LR": [0.5], "MLE": [1e-9]}}
    regression = learn(task, "LR", config, 0)
    again = learn(task, "MLE-BP", config | {"epochs": 1}, 0, regression)
    assert np.abs(again["shown"] - regression["shown"]).max() < 0.01
    alone = learn(task, "MLE-BP", config | {"epochs": 1}, 0)
    assert np.abs(alone["shown"] - regression["shown"]).max() > 0.2


def test_a_model_that_only_gets_worse_is_left_at_its_start():
    """Validation looks at the model before the first step, too."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (60, 5)).astype(np.uint8)
    pair = x, x[:, :3]
    task = Task(pair, pair, pair, score=wrong_units)
    config = _images.SMOKE | {"epochs": 20, "rates": {"LR": [0.5], "CD": [100.0], "MLE": [1e-9]}}
    regression = learn(task, "LR", config, 0)
    assert regression["best"] > 0
    spoilt = learn(task, "CD-1", config | {"epochs": 1}, 0, regression)
    assert spoilt["best"] == 0
    np.testing.assert_allclose(spoilt["shown"], regression["shown"], atol=0.05)


def test_letters_are_counted_where_there_are_any():
    v = np.zeros((1, 3 * words.N_CLASSES), np.uint8)
    v[0, [4, words.N_CLASSES + 7]] = 1  # two letters, then nothing
    answers = np.asarray(v, float)
    assert words._letter_errors(answers, v, v)["letters"][0] == 0
    answers[0, words.N_CLASSES + 9] = 2
    assert words._letter_errors(answers, v, v)["letters"][0] == 50


@pytest.mark.smoke
def test_smoke(tmp_path):
    found = runner.run("crbm-bp/figure4", "smoke", out=tmp_path)
    assert [row.case for row in found.rows] == ["epoch 1"]
    assert 0 <= found.rows[0].ours <= 100


@pytest.mark.data
@pytest.mark.smoke
def test_words_smoke(tmp_path):
    found = runner.run("crbm-bp/words", "smoke", out=tmp_path)
    assert [row.method for row in found.rows] == ["letter by letter", "LR", "MLE-BP"]
    assert all(0 <= row.ours <= 100 for row in found.rows)
