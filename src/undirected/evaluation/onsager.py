"""The exact log partition function of the Ising model on a square torus."""

import numpy as np

from undirected.core.errors import UndirectedError, check_counts


def torus_log_z(rows: int, cols: int, coupling: float) -> float:
    """log Z of the Ising model without fields on a torus, -E = J sum s s' (Kaufman 1949).

    Args:
        rows: of the lattice, at least 3.
        cols: likewise.
        coupling: J over the temperature; 0.4407 is critical. Below 0 (an antiferromagnet) both
            sides must be even.

    Returns:
        log Z in nats, to about 12 digits, for any size.

    Example:
        >>> import jax.numpy as jnp
        >>> import undirected as un
        >>> grid = un.graph.torus(4, 4)
        >>> model = un.Ising.from_spins(jnp.full(32, 0.3), jnp.zeros(16), grid)
        >>> abs(un.torus_log_z(4, 4, 0.3) - float(un.Exact()(model).log_z)) < 1e-4
        True
    """
    check_counts("torus_log_z", 3, rows=rows, cols=cols)
    if not np.isfinite(coupling):
        raise UndirectedError(f"torus_log_z: the coupling is {coupling}; pass a finite number")
    if coupling < 0 and (rows % 2 or cols % 2):
        raise UndirectedError(
            f"torus_log_z: {rows} x {cols} and a coupling of {coupling}: odd rings are frustrated, "
            "which the formula does not allow; pass even sides, or ask un.log_partition"
        )
    if not coupling:
        return float(rows * cols * np.log(2))
    coupling = abs(coupling)  # turning every other spin over leaves Z as it is
    wave = np.pi * np.arange(2 * rows) / rows
    # cosh(gamma) = cosh(2 J) coth(2 J) - cos(wave), both sides times exp(-2 J): nothing overflows.
    least = np.exp(-2 * coupling)
    scaled = 0.5 * (1 + least**2) / np.tanh(2 * coupling) - least * np.cos(wave)
    scaled = np.maximum(scaled, least)
    gamma = 2 * coupling + np.log(scaled + np.sqrt(scaled - least) * np.sqrt(scaled + least))
    # That of the longest wave changes its sign at the critical coupling.
    gamma[0] = 2 * coupling + np.log(np.tanh(coupling))
    logs, signs = [], []
    for part in (gamma[1::2], gamma[0::2]):
        half = 0.5 * cols * np.abs(part)
        logs.append((half + np.log1p(np.exp(-2 * half))).sum())
        signs.append(1.0)
        with np.errstate(divide="ignore"):
            logs.append((half + np.log(-np.expm1(-2 * half))).sum())
        signs.append(np.prod(np.sign(part)))
    top = max(logs)
    total = sum(sign * np.exp(log - top) for sign, log in zip(signs, logs, strict=True))
    edge = 0.5 * rows * cols * (2 * coupling + np.log(-np.expm1(-4 * coupling)))
    return float(edge + top + np.log(total) - np.log(2))
