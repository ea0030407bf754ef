"""Estimators in scikit-learn's pipelines: features against the formula in NumPy."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import undirected as un
from undirected.sklearn import RBMFeatures


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return x / 16, y


def test_features_are_the_probabilities_of_the_hidden_units(digits):
    x = digits[0][:100]
    features = RBMFeatures(n_hidden=5, epochs=1, batch_size=50)
    found = features.fit_transform(x)
    rbm = features.rbm_
    fields = x @ np.asarray(rbm.weights, float) + np.asarray(rbm.hidden_bias, float)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-fields)), rtol=1e-4)
    assert features.get_feature_names_out()[0] == "rbmfeatures0"
    with pytest.raises(ValueError, match="values from 0 to 16"):
        features.transform(16 * x)


@pytest.mark.slow
def test_a_classifier_on_features_beats_one_on_an_untrained_rbm(digits):
    x, y = digits
    scores = []
    for epochs in (10, 0.001):  # a thousandth of a pass is one step
        steps = make_pipeline(RBMFeatures(epochs=epochs), LogisticRegression(max_iter=300))
        scores.append(steps.fit(x[:1200], y[:1200]).score(x[1200:], y[1200:]))
    assert scores[0] > 0.78 and scores[0] > scores[1] + 0.1


def test_fit_takes_grey_rows_and_refuses_others(digits):
    model = un.RBM.create(64, 4, seed=0)
    assert un.fit(model, digits[0][:50], steps=2).model.n_hidden == 4
    with pytest.raises(un.UndirectedError, match="wanted a number from 0 to 1"):
        un.fit(model, 16 * digits[0][:50], steps=2)
