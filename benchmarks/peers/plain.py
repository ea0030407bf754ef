"""The equations written down in NumPy, as a reader of the papers would."""

import numpy as np

VERSION = f"numpy {np.__version__}"


def sum_product(given):
    """Conditional RBMs by belief propagation, equations 13, 14, 16 and 17 as printed."""
    w, b, c = given["w"], given["b"], given["c"]
    shifts = given.get("shifts")

    def run():
        if shifts is None:
            return {"beliefs": _beliefs(w, b, c, int(given["iterations"]))}
        cases = [(b + s[: len(b)], c + s[len(b) :]) for s in shifts]
        return {
            "beliefs": np.stack([_beliefs(w, *case, int(given["iterations"])) for case in cases])
        }

    return run


def _beliefs(w, b, c, iterations):
    to_visible = np.full(w.shape, 0.5, w.dtype)
    strength = np.exp(w)
    tau_v, tau_h = _sigmoid(b), _sigmoid(c)
    for _ in range(iterations):
        on, off = (1 - to_visible) * tau_v[:, None], to_visible * (1 - tau_v)[:, None]
        to_hidden = _sigmoid(np.log((strength * on + off) / (on + off)))
        tau_h = _sigmoid(c + np.log(to_hidden / (1 - to_hidden)).sum(0))
        on, off = (1 - to_hidden) * tau_h, to_hidden * (1 - tau_h)
        to_visible = _sigmoid(np.log((strength * on + off) / (on + off)))
        tau_v = _sigmoid(b + np.log(to_visible / (1 - to_visible)).sum(1))
    return np.concatenate([tau_v, tau_h])


def _sigmoid(a):
    return 1 / (1 + np.exp(-a))


def torus(given):
    """Chequerboard Gibbs with whole-array arithmetic."""
    side, chains = int(given["side"]), int(given["chains"])
    rng = np.random.default_rng(0)
    even = np.add.outer(np.arange(side), np.arange(side)) % 2 == 0
    coupling = np.float32(given["coupling"])

    def run():
        s = np.where(rng.random((chains, side, side), np.float32) < 0.5, 1, -1).astype(np.int8)
        for _ in range(int(given["sweeps"])):
            for mask in (even, ~even):
                near = sum(np.roll(s, shift, axis) for shift in (1, -1) for axis in (1, 2))
                p = _sigmoid(2 * coupling * near.astype(np.float32))
                drawn = np.where(rng.random(s.shape, np.float32) < p, 1, -1).astype(np.int8)
                s = np.where(mask, drawn, s)
        return {"samples": lambda: (s == np.roll(s, 1, 1)).mean((0, 2))[:, None]}

    return run


def susceptibility(given):
    """TAP means and linear response (nonnegative Boltzmann machines, 6-9 and 11-14), dense."""
    rows, cols = (int(n) for n in given["sides"])
    n, b = rows * cols, given["b"].astype(np.float64)
    site = np.arange(n).reshape(rows, cols)
    right = np.stack([site[:, :-1].ravel(), site[:, 1:].ravel()], 1)
    down = np.stack([site[:-1].ravel(), site[1:].ravel()], 1)
    edges = np.concatenate([right, down])
    J = np.zeros((n, n))
    J[edges[:, 0], edges[:, 1]] = J[edges[:, 1], edges[:, 0]] = given["w"]

    def run():
        m, change = _sigmoid(b), 1.0
        while change > 1e-8:
            var = m * (1 - m)
            s = J**2 @ var
            new = _sigmoid(b + J @ m - s * (m - 0.5))
            change = np.abs(new - m).max()
            m = 0.5 * (m + new)
        var = m * (1 - m)
        s, third = J**2 @ var, var * (1 - 2 * m)
        spread, eye = var * (1 - 2 * m) ** 2, np.eye(n)
        slope = np.linalg.solve(eye - 0.5 * spread[:, None] * J**2, np.diag(third))
        A = np.diag(var) + 0.5 * third[:, None] * (J**2 @ slope)
        M = np.linalg.solve(eye - A @ (J - np.diag(s)), A)
        return {"covariance": 0.5 * (M + M.T)}

    return run


def pcd_products(given):
    """The five matrix products of every update of an epoch, by the BLAS of NumPy."""
    data, w = given["data"], given["w"]
    rows = data.reshape(-1, int(given["batch"]), data.shape[1])
    small = np.float32(1e-6)

    def run():
        weights, chain = w.copy(), rows[0] @ w
        for v in rows:
            visible = small * (chain @ weights.T)
            chain = small * (visible @ weights)
            weights += small * (v.T @ (v @ weights) - visible.T @ chain)
        return {"nothing": weights[:1]}

    return run
