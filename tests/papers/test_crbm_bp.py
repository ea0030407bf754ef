"""The experiments on conditional RBMs: their cases, and runs at the smallest size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.experiments import record as records
from undirected.experiments import runner, stages
from undirected.papers.crbm_bp import _choice, _images, _learners, words
from undirected.papers.crbm_bp._choice import choose
from undirected.papers.crbm_bp._learners import Setting, Task, learn, learn_together


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
    config, setting = _images.SMOKE, Setting(0.1, 0.0, "random")
    rows = np.zeros((4, 3), np.uint8), np.zeros((4, 3), np.uint8)
    task = Task(rows, rows, rows, score=lambda p, x, v: {"all": (0.0, 0.0)})
    with pytest.raises(UndirectedError, match="method 'MLE-XX' is unknown"):
        learn(task, "MLE-XX", config, 0, setting)
    with pytest.raises(UndirectedError, match="optimiser 'newton' is none of"):
        learn(task, "MLE-BP", config | {"optimiser": "newton"}, 0, setting)


def wrong_units(answers, x, v):
    return {"all": (float(((answers > 0.5) != v).mean()), 0.0)}


@pytest.mark.slow
def test_models_start_at_the_regression():
    """Without a step of learning the answers are those of the regression."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (60, 5)).astype(np.uint8)
    pair = x, x[:, :3]
    task = Task(pair, pair, pair, score=wrong_units)
    config = _images.SMOKE | {"epochs": 20}
    regression = learn(task, "LR", config, 0, Setting(0.5, 0.0, "random"))
    still, config = Setting(1e-9, 0.0, "regression"), config | {"epochs": 1}
    again = learn(task, "MLE-BP", config, 0, still, regression)
    assert np.abs(again["shown"] - regression["shown"]).max() < 0.01
    alone = learn(task, "MLE-BP", config, 0, Setting(1e-9, 0.0, "random"), regression)
    assert np.abs(alone["shown"] - regression["shown"]).max() > 0.2


@pytest.mark.slow
def test_a_model_that_only_gets_worse_is_left_at_its_start():
    """Validation looks at the model before the first step, too."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (60, 5)).astype(np.uint8)
    pair = x, x[:, :3]
    task = Task(pair, pair, pair, score=wrong_units)
    config = _images.SMOKE | {"epochs": 20}
    regression = learn(task, "LR", config, 0, Setting(0.5, 0.0, "random"))
    assert regression["best"] > 0
    wild = Setting(100.0, 0.0, "regression")
    spoilt = learn(task, "CD-1", config | {"epochs": 1}, 0, wild, regression)
    assert spoilt["best"] == 0
    np.testing.assert_allclose(spoilt["shown"], regression["shown"], atol=0.05)


METHODS = ["LR", "CD-1", "CD-PercLoss", "MLE-MF", "MLE-BP", "LSSVM", "MSSVM", "MLE-BP+"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_seeds_learned_side_by_side_are_as_if_alone(method):
    """Same validation errors, answers and shares of settled instances, with other rows each."""
    tasks = []
    for seed in (3, 5):
        rng = np.random.default_rng(seed)
        v = (rng.random((70, 6)) < rng.random(6)).astype(np.uint8)
        pair = v ^ (rng.random(v.shape) < 0.2).astype(np.uint8), v
        tasks.append(Task(pair, pair, pair, wrong_units, _images.corruption("noise 20 %")))
    config = _images.SMOKE | {"epochs": 4, "batch": 10, "validate_epochs": 2}
    setting = Setting(0.2, 0.001, "random")
    both = learn_together(tasks, method, config, (3, 5), setting, [None, None])
    assert not np.array_equal(both[0]["shown"], both[1]["shown"])
    for task, seed, found in zip(tasks, (3, 5), both, strict=True):
        alone = learn(task, method, config, seed, setting)
        for name in alone:
            np.testing.assert_allclose(found[name], alone[name], atol=1e-4, err_msg=name)


def test_settings_are_chosen_by_a_walk_on_validation(monkeypatch):
    """From the middle along decays, then rates, then starts, and past equals."""
    asked = []

    def train(tasks, method, config, seeds, setting, regressions, epochs):
        asked.append(setting)
        bowl = (setting.decay - 0.02) ** 2 + max(setting.rate, 0.03) - 0.01 * (setting.rate < 0.003)
        return [_learners.Run(bowl + (setting.start == "random"), None)]

    monkeypatch.setattr(_choice, "train", train)
    rows = np.zeros((4, 3), np.uint8), np.zeros((4, 3), np.uint8)
    task = Task(rows, rows, rows, score=wrong_units)
    found = choose(task, "MLE-BP", _images.FULL, 0)
    assert (found["decay"], found["rate"], found["start"]) == (0.02, 0.002, "regression")
    assert len(found["tried"]) == len(asked) == len(set(asked)) < 30
    asked.clear()
    assert choose(task, "MLE-BP", _images.SMOKE, 0)["tried"] == []
    assert not asked


def test_weights_decay_and_biases_do_not():
    """One step of one row with a loss of nothing: what moves is the decay of the matrices."""
    model = _learners._start(
        Task(*[(np.ones((4, 3)), np.ones((4, 2)))] * 3, score=wrong_units),
        "MLE-BP",
        _images.SMOKE,
        0,
        None,
    )
    learner = _learners._Learner("MLE-BP", 4, 3)
    batch = jnp.ones((4, 3)), jnp.ones((4, 2))

    def value(model, decay):
        numbers = (jnp.asarray(a, jnp.float32) for a in (0.1, decay, 8, 0))
        tuned = _learners._Tuned(model, *numbers)
        return learner(tuned, batch, jnp.asarray(0), jax.random.key(0))[0]

    pulled = jax.tree.map(jnp.subtract, jax.grad(value)(model, 0.5), jax.grad(value)(model, 0.0))
    for moved, leaf in zip(jax.tree.leaves(pulled), jax.tree.leaves(model), strict=True):
        want = 0.1 * 0.5 * leaf if leaf.ndim > 1 else 0 * leaf
        np.testing.assert_allclose(moved, want, atol=1e-6)
    assert any(abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(pulled))


def test_letters_are_counted_where_there_are_any():
    v = np.zeros((1, 3 * words.N_CLASSES), np.uint8)
    v[0, [4, words.N_CLASSES + 7]] = 1  # two letters, then nothing
    answers = np.asarray(v, float)
    assert words._letter_errors(answers, v, v)["letters"][0] == 0
    answers[0, words.N_CLASSES + 9] = 2
    assert words._letter_errors(answers, v, v)["letters"][0] == 50


@pytest.mark.smoke
def test_one_case_of_a_table_can_be_run_alone(tmp_path):
    chosen = 'cases=["MNIST, noise 20 %"]', 'methods=["LR"]'
    found = runner.run("crbm-bp/table1", "smoke", out=tmp_path, overrides=chosen)
    assert {row.case for row in found.rows} == {"MNIST, noise 20 %"}
    with pytest.raises(UndirectedError, match="no case noise 30 %; pass some of MNIST, noise 10"):
        runner.run(
            "crbm-bp/table1", "smoke", out=tmp_path / "2", overrides=['cases=["noise 30 %"]']
        )


@pytest.mark.smoke
def test_cases_that_are_run_apart_make_one_record(tmp_path):
    """Rows, notes and seconds of both; other seeds or a case again are refused."""
    first, second = "MNIST, noise 10 %", "MNIST, noise 20 %"

    def run(case, **more):
        how = [f'cases=["{case}"]', 'methods=["LR", "MLE-BP"]']
        return runner.run("crbm-bp/table1", "smoke", out=tmp_path, overrides=how, **more)

    one, two = run(first), run(second)
    found = records.read(tmp_path / "crbm-bp" / "table1-smoke.json")
    assert found.rows == (*one.rows, *two.rows)
    assert found.config == one.config | {"cases": [first, second]}
    assert found.seconds == pytest.approx(one.seconds + two.seconds)
    assert [line["name"] for line in found.curves[0]["series"]] == [first, second]
    assert len(found.images) == 2 and set(two.notes) <= set(found.notes)
    with pytest.raises(UndirectedError, match="another config"):
        run(first)
    with pytest.raises(UndirectedError, match="another config or of another seed"):
        run("MNIST, noise 10 %", seed=1)
    assert records.read(tmp_path / "crbm-bp" / "table1-smoke.json") == found


def test_sheets_of_methods_run_apart_bear_their_names(tmp_path):
    clean = np.zeros((3, 784), np.uint8)
    shown = {"shown": clean.astype(float)}
    context = stages.Context("crbm-bp/table1", tmp_path, print)

    def file(*methods):
        found = dict.fromkeys(methods, shown)
        return _images.picture("noise 10 %", (clean, clean), found, context)["file"]

    alone = [file("MLE-BP"), file("MLE-BP+"), file("LR"), file("LR", "MLE-BP")]
    assert len(set(alone)) == 4 and alone[-1] == "noise-10.png"
    assert all((context.out / name).is_file() for name in alone)


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
