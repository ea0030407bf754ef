"""Which sampler suits a model: exact draws where it can have them, clusters where they pay."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.layout import CONTINUOUS, Variables
from undirected.core.numerics import HARD
from undirected.core.potentials import Potentials, clamp
from undirected.core.protocols import Kernel, Lowerable
from undirected.inference import Elimination
from undirected.inference.elimination import state_levels
from undirected.inference.networks.orders import eliminate, neighbours
from undirected.sampling import Alternating, Gibbs, SwendsenWang
from undirected.sampling.lead_in import forbids
from undirected.tasks.choose import check_model, kernel_for
from undirected.tasks.enumerated import is_enumerable
from undirected.tasks.enumerated_coupled import enumerated
from undirected.tasks.rows import evidence_units

MOST_WORK = 22.0
"""Log2 of the entries of all cliques up to which draws are made from a junction tree."""
MOST_COUPLINGS = 200_000
"""Couplings of a model that are looked at: beyond them nothing here would be affordable."""
STRONG = 1e3
"""A log-potential that is a constraint; couplings are weaker."""


class Sampler(NamedTuple):
    """How a model is sampled, and why so.

    Args:
        kernel: how chains move; None where there are none.
        why: the reason, for people.
        draw: where draws are exact: takes their number and a key, gives states of all units.

    Example:
        >>> import undirected as un
        >>> un.choose_sampler(un.Ising.create(3)).kernel is None
        True
    """

    kernel: Kernel | None
    why: str
    draw: Callable[[int, Key[Array, ""]], Array] | None = None


class Couplings(NamedTuple):
    """Pairs of variables, how much each couples at most, and whether its ends rather agree.

    `strength` is the largest |T(a, b) + T(a', b') - T(a, b') - T(a', b)| of a table T of log
    potentials; `sign` is 1 where ends that are equal are never less likely, -1 where two states
    rather differ, and 0 elsewhere.
    """

    ends: Int[np.ndarray, "E 2"]
    strength: Float[np.ndarray, " E"]
    sign: Int[np.ndarray, " E"]


def choose_sampler(model: Any, given: Any = None) -> Sampler:
    """What `un.sample` does with a model: exact draws, or the kernel that its chains move by.

    Draws are exact where hidden units can be enumerated, or where a junction tree of what is not
    given is small. Otherwise chains move by the Gibbs kernel that suits the model. Where couplings
    in pairs are so strong that Gibbs may not mix, and none of them is frustrated, clusters move as
    well.

    Args:
        model: any model that can be sampled.
        given: what is known, as in `un.sample`.

    Returns:
        A `Sampler`: `kernel`, which may be passed on to `un.sample` or `un.run_chains`, and `why`.

    Example:
        >>> import undirected as un
        >>> magnet = un.Potts.standard(un.graph.torus(16, 16), states=3, coupling=1.0)
        >>> un.choose_sampler(magnet).why
        'Gibbs and clusters: couplings are strong, and none is frustrated'
    """
    check_model("sample", model)
    return sampler_for(model, evidence_units("sample", model, given))


def sampler_for(model: Any, row: Float[np.ndarray, " v"]) -> Sampler:
    """`choose_sampler` given one row of visible units with NaN."""
    if is_enumerable(model):

        def enumerate_states(count: int, key: Key[Array, ""]) -> Array:
            rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            return jnp.asarray(enumerated(model).draw(row, count, rng), jnp.float32)

        return Sampler(None, "exact draws: the hidden states can be enumerated", enumerate_states)
    p = _discrete(model)
    if p is None:
        return _plain(kernel_for(model))
    held = clamp(p, jnp.asarray(~np.isnan(row)), jnp.asarray(row))
    work = tree_work(held)
    if work is not None:
        return Sampler(None, f"exact draws: a junction tree of 2^{work:.1f} entries", _tree(held))
    kernel = kernel_for(model)
    found = couplings(p) if isinstance(kernel, Gibbs) else None
    if found is not None:
        return _pairwise(kernel, found, len(Variables.of(p.layout)))
    if forbids(model):
        return Sampler(
            kernel,
            f"{type(kernel).__name__}, from states that the model allows, found by annealing",
        )
    return _plain(kernel)


def _plain(kernel: Kernel) -> Sampler:
    if isinstance(kernel, Gibbs):
        return Sampler(kernel, "Gibbs: it takes any model; look at rhat of un.run_chains")
    return Sampler(kernel, f"{type(kernel).__name__}: whole blocks of the model are drawn at once")


def _pairwise(kernel: Kernel, found: Couplings, variables: int) -> Sampler:
    """Gibbs where it is known to mix, with clusters where it may not and they do."""
    influence = largest_influence(found, variables)
    if influence < 1:
        why = f"Gibbs: couplings are weak, it mixes fast (Dobrushin's number is {influence:.2f})"
        return Sampler(kernel, why)
    if is_unfrustrated(found, variables):
        why = "Gibbs and clusters: couplings are strong, and none is frustrated"
        return Sampler(Alternating(kernel, SwendsenWang(), every=1), why)
    why = (
        "Gibbs: couplings are strong and some are frustrated, so it may not mix; look at rhat of "
        "un.run_chains, and try un.ParallelTempering"
    )
    return Sampler(kernel, why)


def _discrete(model: Any) -> Potentials | None:
    """The potentials of a model of few couplings between discrete variables, else None."""
    if not isinstance(model, Lowerable):
        return None
    p = model.lower()
    if any(block.domain in CONTINUOUS for block in p.layout.blocks):
        return None
    if not all(factor.offers("tables") and factor.offers("scopes") for factor in p.factors):
        return None
    count = sum(len(own) for factor in p.factors for own in factor.scopes(p.layout))
    return p if count <= MOST_COUPLINGS else None


def _tree(held: Potentials) -> Callable[[int, Key[Array, ""]], Array]:
    return lambda count, key: Elimination().sample(held, count, key)


def tree_work(p: Potentials) -> float | None:
    """Log2 of the entries of all cliques of a quickly found junction tree; None if they are many.

    No tree is narrower than half of the mean number of neighbours, which is looked at first.
    """
    sizes = [int((levels > levels.max() - HARD).sum()) for levels in state_levels(p)]
    groups = [own for factor in p.factors for own in factor.scopes(p.layout)]
    scopes = [
        [v for v in scope if v >= 0 and sizes[v] > 1] for own in groups for scope in own.tolist()
    ]
    loose = max(1, sum(size > 1 for size in sizes))
    if sum(len(scope) > 1 for scope in scopes) / loose > MOST_WORK:
        return None
    logs = np.log2(sizes).tolist()
    order = eliminate(neighbours(len(sizes), scopes), logs, "min-weight", most=MOST_WORK)
    return None if order is None else order.cost


def couplings(p: Potentials) -> Couplings | None:
    """The couplings of a model of pairs; None where a factor joins more, or forbids a state."""
    ends, strengths, signs = [np.zeros((0, 2), int)], [np.zeros(0)], [np.zeros(0, int)]
    for factor in p.factors:
        for group in factor.tables(p.layout, 2**20):
            scopes, logs = np.asarray(group.scopes), np.asarray(group.logs, float)
            if scopes.shape[1] == 1:
                continue
            if scopes.shape[1] > 2 or (scopes < 0).any() or logs.min(initial=0.0) < -STRONG:
                return None
            ends.append(scopes)
            strengths.append(_strength(logs))
            signs.append(_sign(logs))
    return Couplings(np.concatenate(ends), np.concatenate(strengths), np.concatenate(signs))


def _strength(logs: Float[np.ndarray, "E q r"]) -> Float[np.ndarray, " E"]:
    """The largest range over a of T(a, b) - T(a, b'), over all b and b'."""
    most = np.zeros(len(logs))
    for shift in range(1, logs.shape[2]):
        change = logs - np.roll(logs, shift, 2)
        most = np.maximum(most, np.ptp(change, 1).max(1))
    return most


def _sign(logs: Float[np.ndarray, "E q r"]) -> Int[np.ndarray, " E"]:
    if logs.shape[1] != logs.shape[2]:
        return np.zeros(len(logs), int)
    same = np.einsum("eaa->ea", logs)
    gain = same[:, :, None] + same[:, None, :] - logs - np.swapaxes(logs, 1, 2)
    agrees = (gain >= -1e-9).all((1, 2))
    differs = (gain <= 1e-9).all((1, 2)) & (logs.shape[1] == 2)
    return np.where(agrees, 1, np.where(differs, -1, 0))


def largest_influence(found: Couplings, variables: int) -> float:
    """Dobrushin's number: the most that all neighbours together can change one variable.

    A neighbour that changes its state moves the distribution of a variable by tanh(K / 4) at most
    in total variation, K the strength of their coupling. Below 1 Gibbs sampling mixes in a number
    of sweeps that grows with the log of the size, whatever the fields are.
    """
    each = np.repeat(np.tanh(found.strength / 4), 2)
    total = np.bincount(found.ends.ravel(), each, minlength=variables)
    return float(total.max(initial=0.0))


def is_unfrustrated(found: Couplings, variables: int) -> bool:
    """Whether some state satisfies every coupling, fields aside: no cycle has an odd number of -1.

    In a graph with two copies of each variable, a coupling of 1 joins like copies and one of -1
    unlike ones; a frustrated cycle leads from one copy of a variable to the other.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if (found.sign == 0).any():
        return False
    i, j = found.ends.T
    other = np.where(found.sign < 0, variables, 0)
    begin = np.concatenate([i, i + variables])
    end = np.concatenate([j + other, j + variables - other])
    size = 2 * variables
    joined = coo_array((np.ones(len(begin)), (begin, end)), shape=(size, size))
    _, label = connected_components(joined, directed=False)
    return not (label[:variables] == label[variables:]).any()
