"""`python -m benchmarks`: time the inner loops beside plain references; answers must agree.

Each case runs ours and the references in turn, several times over, and prints medians and ratios.
Compilation is timed apart. `--out FILE` keeps the numbers as JSON.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from undirected.experiments.crbm_bp.speed import (
    interleaved,
    medians,
    paper_equations,
    random_rbm,
    timed,
)
from undirected.inference import SumProduct
from undirected.models import RBM
from undirected.sampling import BlockGibbs


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = [case(arguments.repeats) for case in (belief_propagation, block_gibbs)]
    for result in results:
        show(result)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def belief_propagation(repeats: int) -> dict:
    """Ten iterations of sum-product on a random RBM, against crbm-bp's equations in NumPy."""
    V, H, T = 1000, 500, 10
    weights, b, c = random_rbm(V, H, 0)
    potentials = RBM(jnp.asarray(weights), jnp.asarray(b), jnp.asarray(c)).lower()
    infer = jax.jit(lambda p: SumProduct(T, None)(p).unary)
    compile_seconds, unary = timed(lambda: infer(potentials).block_until_ready())
    plain = paper_equations(weights, b, c, T)
    assert np.allclose(unary, plain, atol=1e-4), np.abs(unary - plain).max()
    return compare(
        f"sum-product, RBM {V}x{H}, {T} iterations",
        compile_seconds,
        {
            "ours": lambda: infer(potentials).block_until_ready(),
            "the paper's equations, NumPy": lambda: paper_equations(weights, b, c, T),
        },
        repeats,
    )


def block_gibbs(repeats: int) -> dict:
    """Sweeps of many chains, against scikit-learn and against the two matrix products alone."""
    from sklearn.neural_network import BernoulliRBM

    V, H, chains, sweeps = 784, 500, 1000, 5
    model = RBM.create(V, H, jax.random.key(0), scale=0.1)
    kernel, free = BlockGibbs(sweeps), jnp.ones(V + H, bool)
    state = kernel.init(model, jnp.zeros((chains, V + H)), jax.random.key(1))
    step = jax.jit(lambda s, key: kernel.step(model, s, free, key)[0].x)
    compile_seconds, ours = timed(lambda: step(state, jax.random.key(2)).block_until_ready())

    peer = BernoulliRBM(H, random_state=0)
    peer.components_ = np.asarray(model.weights.T)
    peer.intercept_hidden_ = np.zeros(H, np.float32)
    peer.intercept_visible_ = np.zeros(V, np.float32)
    peer.random_state_ = np.random.RandomState(0)

    def peer_sweeps():
        v = np.zeros((chains, V), np.float32)
        for _ in range(sweeps):
            v = peer._sample_visibles(
                peer._sample_hiddens(v, peer.random_state_), peer.random_state_
            ).astype(np.float32)
        return v

    means = np.asarray(ours[:, :V]).mean(0), peer_sweeps().mean(0)
    spread = np.sqrt(0.5 / chains)
    assert np.abs(means[0] - means[1]).max() < 6 * spread, "the samplers disagree"
    products = jax.jit(lambda v, w: ((v @ w) @ w.T).sum())
    v = jnp.ones((chains, V))
    products(v, model.weights).block_until_ready()

    def both_products():
        for _ in range(sweeps):
            products(v, model.weights).block_until_ready()

    return compare(
        f"block Gibbs, RBM {V}x{H}, {chains} chains, {sweeps} sweeps",
        compile_seconds,
        {
            "ours": lambda: step(state, jax.random.key(2)).block_until_ready(),
            "scikit-learn": peer_sweeps,
            "its two matrix products alone": both_products,
        },
        repeats,
    )


def compare(
    case: str, compile_seconds: float, runs: dict[str, Callable[[], object]], repeats: int
) -> dict:
    """Medians of interleaved repetitions."""
    times = interleaved(runs, repeats)
    seconds = medians(times)
    return {"case": case, "compile_seconds": compile_seconds, "seconds": seconds, "all": times}


def show(result: dict, steps: int = 1) -> None:
    """Print milliseconds, of one of so many steps, and ratios."""
    print(f"\n{result['case']} (compiled in {result['compile_seconds']:.2f} s)")
    for name, seconds in result["seconds"].items():
        ratio = seconds / result["seconds"]["ours"]
        print(f"  {name:32s} {1e3 * seconds / steps:10.2f} ms   {ratio:6.1f} x ours")


if __name__ == "__main__":
    main()
