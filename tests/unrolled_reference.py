"""Query training written out plainly: log messages, both directions, one loop, no tricks."""

import jax.numpy as jnp
import numpy as np


def message(field, weight):
    """Of the factor exp(w x y) on {0, 1}."""
    return jnp.logaddexp(0.0, field + weight) - jnp.logaddexp(0.0, field)


def spin_message(field, u):
    """f_w of query-training, D.1: log(1 + e^(x + u)) - log(1 + e^(x - u)) - u."""
    return jnp.logaddexp(0.0, field + u) - jnp.logaddexp(0.0, field - u) - u


def parallel_fields(weight, v_fields, h_fields, layers):
    """Fields of both sides of an RBM after parallel sweeps from messages of zero, {0, 1} form."""
    to_v = jnp.zeros((len(v_fields), *weight.shape))
    to_h = to_v
    w = weight[None]
    for _ in range(layers):
        v_cavity = (v_fields + to_v.sum(2))[:, :, None] - to_v
        h_cavity = (h_fields + to_h.sum(1))[:, None, :] - to_h
        to_h, to_v = message(v_cavity, w), message(h_cavity, w)
    return v_fields + to_v.sum(2), h_fields + to_h.sum(1)


def paper_fields(u, c_v, c_h, evidence, layers):
    """The QT-NN of D.1 before the sigmoid; u (V, H) and c are those of the spin form (1)."""
    to_v = jnp.zeros((len(evidence), *u.shape))
    to_h = to_v
    w = u[None]
    for _ in range(layers):
        v_cavity = (evidence + c_v[None] + to_v.sum(2))[:, :, None] - to_v
        h_cavity = (c_h[None] + to_h.sum(1))[:, None, :] - to_h
        to_h, to_v = spin_message(v_cavity, w), spin_message(h_cavity, w)
    return evidence + c_v[None] + to_v.sum(2)


def cross_entropy(p, x, targets):
    """Sum over targets of -x log p - (1 - x) log(1 - p), plain NumPy."""
    asked = np.asarray(targets)
    p, x = np.asarray(p, np.float64)[asked], np.asarray(x, np.float64)[asked]
    return -(x * np.log(p) + (1 - x) * np.log(1 - p)).sum()
