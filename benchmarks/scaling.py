"""How time and memory grow with the size of the problem; slopes on logarithmic scales."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from undirected.core.potentials import batch_axes, shift
from undirected.experiments.record import curve, read
from undirected.inference import SumProduct
from undirected.models import RBM
from undirected.papers.crbm_bp.speed import random_rbm
from undirected.sampling import BlockGibbs

Point = tuple[Callable, tuple]
REPEATS = 5


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Curves of seconds and bytes, and notes with their slopes."""
    few = slice(0, 3) if quick else slice(None)
    grids: dict[str, tuple[Sequence[int], Callable[[int], Point]]] = {
        "visible units": ((500, 1000, 2000, 4000, 8000)[few], lambda V: _sum_product(V, 500, 10)),
        "hidden units": ((250, 500, 1000, 2000, 4000)[few], lambda H: _sum_product(1000, H, 10)),
        "iterations": ((5, 10, 20, 40, 80)[few], lambda T: _sum_product(1000, 500, T)),
        "batch": ((4, 8, 16, 32, 64)[few], lambda B: _sum_product(500, 200, 10, B)),
        "chains": ((250, 500, 1000, 2000, 4000)[few], _block_gibbs),
    }
    seconds, sizes, notes = {}, {}, []
    for name, (values, make) in grids.items():
        found = [_cost(*make(value)) for value in values]
        x = [math.log10(value) for value in values]
        seconds[name] = x, [math.log10(s) for s, _ in found]
        sizes[name] = x, [math.log10(size) for _, size in found]
        slopes = [np.polyfit(x[-3:], line[1][-3:], 1)[0] for line in (seconds[name], sizes[name])]
        notes.append(
            f"Growth with {name}, from {values[-3]:,} to {values[-1]:,}: time as its power "
            f"{slopes[0]:.2f}, memory as its power {slopes[1]:.2f}."
        )
    largest = _bytes_per_message()
    room = (16 * 2**30) / largest
    notes.append(
        f"Growth of memory: belief propagation takes {largest:.0f} bytes per message beside the "
        f"weights: 16 GiB end at {room / 1e6:,.0f} million messages, a model of "
        f"{math.isqrt(int(room)):,} units a side."
    )
    labels = "log10 of the size", "log10 of seconds"
    curves = [
        curve("Time", *labels, seconds),
        curve("Memory of the compiled program", labels[0], "log10 of bytes", sizes),
    ]
    return curves, notes


def measured(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The same out of a record; nothing where there is none."""
    if not file.is_file():
        return [], []
    record = read(file)
    return list(record.curves), [note for note in record.notes if note.startswith("Growth")]


def _sum_product(V: int, H: int, iterations: int, batch: int = 0) -> Point:
    w, b, c = (jnp.asarray(a) for a in random_rbm(V, H, 0))
    p, infer = RBM(w, b, c).lower(), SumProduct(iterations, None)
    if not batch:
        return jax.jit(lambda p: infer(p).unary), (p,)
    p = shift(p, jax.random.normal(jax.random.key(0), (batch, V + H)))
    each = jax.vmap(lambda q: infer(q).unary, in_axes=(batch_axes(p),))
    return jax.jit(each), (p,)


def _block_gibbs(chains: int) -> Point:
    model, kernel = RBM.create(784, 500, jax.random.key(0), scale=0.1), BlockGibbs(5)
    state = kernel.init(model, jnp.zeros((chains, 1284)), jax.random.key(1))
    free = jnp.ones(1284, bool)
    step = jax.jit(lambda m, s, key: kernel.step(m, s, free, key)[0].x)
    return step, (model, state, jax.random.key(2))


def _cost(function: Callable, inputs: tuple) -> tuple[float, float]:
    """Median seconds, and bytes of arguments, results and what lies between."""
    compiled = function.lower(*inputs).compile()
    found = compiled.memory_analysis()
    size = found.temp_size_in_bytes + found.output_size_in_bytes + found.argument_size_in_bytes
    jax.block_until_ready(function(*inputs))
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*inputs))
        times.append(time.perf_counter() - began)
    return median(times), float(size)


def _bytes_per_message() -> float:
    V, H = 1024, 512
    function, inputs = _sum_product(V, H, 10)
    found = function.lower(*inputs).compile().memory_analysis()
    return (found.temp_size_in_bytes + found.output_size_in_bytes) / (V * H)
