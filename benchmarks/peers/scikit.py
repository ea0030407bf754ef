"""scikit-learn: BernoulliRBM in float32."""

import numpy as np
import sklearn
from sklearn.neural_network import BernoulliRBM

VERSION = f"scikit-learn {sklearn.__version__}, numpy {np.__version__}"


def _model(given, **options):
    w = given["w"]
    model = BernoulliRBM(w.shape[1], random_state=0, **options)
    model.components_ = np.asarray(w.T, np.float32, order="F")
    model.intercept_visible_, model.intercept_hidden_ = given["b"].copy(), given["c"].copy()
    model.random_state_ = np.random.RandomState(0)
    return model


def block_gibbs(given):
    model = _model(given)

    def run():
        v, rng = given["start"], model.random_state_
        for _ in range(int(given["sweeps"])):
            h = model._sample_hiddens(v, rng).astype(np.float32)
            v = model._sample_visibles(h, rng).astype(np.float32)
        return {"samples": v}

    return run


def pcd_epoch(given):
    data, size = given["data"], int(given["batch"])

    def run():
        model = _model(given, learning_rate=float(given["rate"]), batch_size=size)
        model.h_samples_ = np.zeros((size, model.n_components), np.float32)
        rng = model.random_state_
        for rows in np.split(rng.permutation(len(data)), len(data) // size):
            model._fit(data[rows], rng)
        found = {"w": model.components_.T, "b": model.intercept_visible_}
        return {**found, "c": model.intercept_hidden_}

    return run
