"""Block Gibbs on an RBM, chequerboard Gibbs on Ising tori, annealed importance sampling."""

import numpy as np

from benchmarks.checks import same_moments, within_error
from benchmarks.harness import OURS, Arrays, Case, Entry

PRODUCTS = "its matrix products alone"
V, H = 784, 500


def cases(quick: bool) -> list[Case]:
    found = [_block_gibbs(100), _block_gibbs(1000)]
    found += [] if quick else [_block_gibbs(10_000)]
    found += [_torus(25, 32, 20), _torus(256, 32, 20), _torus(256, 1, 100)]
    found += [] if quick else [_torus(2048, 1, 20)]
    return [*found, _ais(200, 100) if quick else _ais(1000, 1000)]


def _random_rbm(scale: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    given = {
        "w": rng.normal(scale=scale, size=(V, H)),
        "b": rng.normal(size=V),
        "c": rng.normal(size=H),
    }
    return {name: a.astype(np.float32) for name, a in given.items()}


def _block_gibbs(chains: int) -> Case:
    sweeps = {100: 50, 1000: 20}.get(chains, 5)

    def inputs() -> Arrays:
        start = (np.random.default_rng(1).random((chains, V)) < 0.5).astype(np.float32)
        sizes = {"chains": np.asarray(chains), "sweeps": np.asarray(sweeps)}
        return {**_random_rbm(0.05), "start": start, **sizes}

    entries = [
        Entry(OURS, "ours", "block_gibbs"),
        Entry(PRODUCTS, "ours", "block_gibbs_products", agrees=False),
        Entry("rbms", "rbms", "block_gibbs", "torch"),
        Entry("scikit-learn", "scikit", "block_gibbs", "scikit"),
    ]
    goals = {"rbms": 2.0, "scikit-learn": 2.0} if chains < 10_000 else {}
    if chains == 100:
        entries.append(Entry("thrml", "thrml", "block_gibbs", "thrml"))
        goals["thrml"] = 40.0
    name = f"block Gibbs, RBM {V}×{H}, {chains:,} chains, one sweep"
    return Case(name, inputs, tuple(entries), same_moments, sweeps, goals, {PRODUCTS: 1.5})


def _torus(side: int, chains: int, sweeps: int) -> Case:
    def inputs() -> Arrays:
        sizes = {"side": side, "chains": chains, "sweeps": sweeps, "coupling": 0.3}
        return {name: np.asarray(value) for name, value in sizes.items()}

    entries = (
        Entry(OURS, "ours", "torus"),
        Entry("thrml", "thrml", "torus", "thrml"),
        Entry("NumPy", "plain", "torus", agrees=side % 2 == 0),
    )
    goals = {"thrml": 20.0} if side >= 256 else {}
    name = f"Ising torus {side}×{side}, {chains} chains, one sweep"
    return Case(name, inputs, entries, same_moments, sweeps, goals)


def _ais(chains: int, betas: int) -> Case:
    def inputs() -> Arrays:
        sizes = {"chains": np.asarray(chains), "betas": np.asarray(betas)}
        return {**_random_rbm(0.01), **sizes}

    entries = (Entry(OURS, "ours", "ais"), Entry("rbms", "rbms", "ais", "torch"))
    name = f"annealed importance sampling, RBM {V}×{H}, {chains:,} chains, {betas:,} betas"
    return Case(name, inputs, entries, within_error)
