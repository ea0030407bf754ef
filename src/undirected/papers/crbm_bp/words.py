"""Letters of handwritten words, read together: many outputs that depend on one another."""

from typing import Any

import numpy as np

from undirected import data
from undirected.evaluation.estimate import mean
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp._images import QUICK, learn_all
from undirected.papers.crbm_bp._learners import Scores, Task

TITLE = "Reading handwritten words (OCR, multi-label)"
_FULL = QUICK | {
    "methods": ["LR", "CD-10", "MLE-MF", "MLE-BP"],
    "letters": 8,
    "hidden": 100,
    "folds": 10,
    "epochs": 40,
    "most_iterations": 20,
    "choose_epochs": 40,
    "decays": [0.0],
    "rates": [0.02, 0.1],
    "words": 10_000,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": _FULL
    | {"methods": ["LR", "MLE-BP"], "folds": 1, "epochs": 1, "words": 300, "rates": [0.1]},
    "quick": _FULL | {"folds": 1, "epochs": 20, "rates": [0.1]},
    "full": _FULL,
}
N_CLASSES, N_PIXELS = 26, 128
FLOOR = -6.0
"""Log-probabilities of letters enter the features from here on: 0 there, 1 where certain."""


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Letter errors over the folds: learned on one, validated on the next, tested on all others.

    A logistic regression reads each letter alone; its log-probabilities for all letters of the
    word are the features of the models, which read the word as a whole.
    """
    errors: dict[str, list[float]] = {}
    words = _words(config["letters"], config["words"])
    for fold in range(config["folds"]):
        task = _task(*words, fold)
        alone = _letter_errors(*task.test, task.test[1])
        errors.setdefault("letter by letter", []).append(alone["letters"][0])
        for method, got in learn_all(f"fold {fold}", task, config, seed, context).items():
            errors.setdefault(method, []).append(float(got["letters"][0]))
    rows = []
    for method, values in errors.items():
        case = f"first {config['letters']} letters of a word"
        metric = "letters read wrong (%)"
        rows.append(Row.average(case, method, metric, values, better="lower"))
    return Outcome(rows, notes=["Standard errors are over the folds learned from."])


def _words(letters: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels (words, letters * 128), one-hot letters (words, letters * 26), folds; short: zeros."""
    found = data.ocr_words()
    labels = found.train.y
    assert labels is not None
    length, fold = found.extras["word_length"][:most], found.extras["fold"][:most]
    x = np.zeros((len(length), letters, N_PIXELS), np.uint8)
    v = np.zeros((len(length), letters, N_CLASSES), np.uint8)
    at = 0
    for word, n in enumerate(length.astype(int)):
        used = min(n, letters)
        x[word, :used] = found.train.x[at : at + used]
        v[word, np.arange(used), labels[at : at + used]] = 1
        at += n
    return x.reshape(len(x), -1), v.reshape(len(v), -1), fold


def _task(x: np.ndarray, v: np.ndarray, folds: np.ndarray, fold: int) -> Task:
    train, valid = folds == fold, folds == (fold + 1) % 10
    features = _read_alone(x, v, train)
    pairs = [(features[rows], v[rows]) for rows in (train, valid, ~(train | valid))]
    return Task(*pairs, score=_letter_errors)


def _read_alone(x: np.ndarray, v: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Every letter's log-probability of every class, learned from the letters of some words."""
    from sklearn.linear_model import LogisticRegression

    pixels, letters = x.reshape(-1, N_PIXELS), v.reshape(-1, N_CLASSES)
    there = letters.any(1)
    learned = there & np.repeat(train, len(letters) // len(v))
    model = LogisticRegression(C=0.05, max_iter=500).fit(
        pixels[learned], letters[learned].argmax(1)
    )
    log_p = np.full(letters.shape, FLOOR, np.float32)
    log_p[np.ix_(there, model.classes_)] = model.predict_log_proba(pixels[there])
    return (1 - np.maximum(log_p, FLOOR) / FLOOR).reshape(len(v), -1)


def _letter_errors(answers: np.ndarray, x: np.ndarray, v: np.ndarray) -> Scores:
    """Letters whose most probable class is wrong, in per cent of all letters there are."""
    guess, truth = (a.reshape(len(v), -1, N_CLASSES) for a in (answers, v))
    there = truth.any(-1)
    wrong = (guess.argmax(-1) != truth.argmax(-1))[there]
    found = mean(100.0 * wrong)
    return {"letters": (found.mean, found.stderr)}
