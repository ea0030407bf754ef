"""What one accelerator holds, and what 64 would move in a step: arithmetic, nothing measured."""

from dataclasses import dataclass

DEVICES, MEMORY = 64, 141e9
"""An NVIDIA H200 has 141 GB."""
LINK, NETWORK = 450e9, 50e9
"""Bytes a second each way: NVLink inside of a machine of 8, and one 400 Gbit/s port a device."""
FLOAT = 4


@dataclass(frozen=True)
class Case:
    """A dense model, as many rows and chains, and what a sweep has to send around if it is split.

    Args:
        name: of the model.
        parameters: numbers that are learned.
        stored: numbers that the products use; a symmetric matrix is stored whole.
        sent: bytes for each row or chain that all devices of a split model exchange in a sweep.
        state: bytes of the state of one chain.
        chains: rows and chains of a step.
    """

    name: str
    parameters: float
    stored: float
    sent: float
    state: float
    chains: int

    @property
    def weights(self) -> float:
        return FLOAT * self.stored


def rbm(side: float, chains: int) -> Case:
    """Weights split by hidden units: fields of visible units are summed, and the sums sent back."""
    return Case(
        f"RBM of {side:,.0f} × {side:,.0f}", side**2, side**2, 2 * FLOAT * side, 2 * side, chains
    )


def potts(sites: float, states: float, chains: int) -> Case:
    """Couplings split by sites: the device of a site draws it and tells the others, in a byte."""
    pairs = sites * (sites - 1) / 2 * states**2
    name = f"Potts model of {sites:,.0f} sites × {states:.0f} states"
    return Case(name, pairs, (sites * states) ** 2, sites, sites, chains)


CASES = rbm(1e5, 8192), potts(1e4, 21, 8192)


def all_reduce(size: float, devices: int) -> float:
    """Bytes that each device of a ring sends to sum an array that all of them have."""
    return 2 * size * (devices - 1) / devices


def one_device(case: Case) -> list[str]:
    """Weights with a gradient (SGD), with momentum, with Adam; and the largest side that fits."""
    lines = []
    for name, copies in (("SGD", 2), ("momentum", 3), ("Adam", 4)):
        size = copies * case.weights + case.chains * case.state
        fits = "fits" if size <= MEMORY else "does not fit"
        side = (MEMORY / (copies * case.weights)) ** 0.5
        lines.append(f"| {case.name} | {name} | {size / 1e9:,.0f} | {fits} | {side:.2f} |")
    return lines


def many_devices(case: Case) -> list[str]:
    """Rows split and weights everywhere, against weights split too."""
    copied = all_reduce(case.weights, DEVICES)
    gathered = case.chains * case.sent * (DEVICES - 1) / DEVICES
    held = 4 * case.weights / DEVICES
    ways = (
        ("rows split, weights on every device", 4 * case.weights, copied),
        ("weights split", held + case.chains * case.state, gathered),
    )
    return [
        f"| {case.name} | {way} | {size / 1e9:,.1f} | {moved / 1e9:,.2f} | "
        f"{1e3 * moved / LINK:,.0f} | {1e3 * moved / NETWORK:,.0f} |"
        for way, size, moved in ways
    ]


def markdown() -> str:
    """The part of the page that is arithmetic."""
    parts = ["## What one H200 holds", "", ONE, ""]
    parts += ["| model | optimiser | GB | of 141 GB | side that would fit |"]
    parts += ["| :-- | :-- | --: | :-- | --: |", *(line for c in CASES for line in one_device(c))]
    parts += ["", f"## A plan for {DEVICES} devices", "", MANY, ""]
    parts += ["| model | plan | GB a device | GB sent a step | ms by NVLink | ms by network |"]
    parts += ["| :-- | :-- | --: | --: | --: | --: |"]
    parts += [line for c in CASES for line in many_devices(c)]
    counts = [
        f"{c.name}: {c.parameters:.3g} parameters, {c.chains:,} rows and chains" for c in CASES
    ]
    return "\n".join([*parts, "", "; ".join(counts) + ".", "", END])


ONE = """\
On paper, in single precision: weights, their gradient, what the optimiser keeps, and the states of
8,192 rows and chains. The Potts model keeps its symmetric matrix whole, since a sweep multiplies by
it. The last column is by what factor the sides of the model may grow."""
MANY = """\
On paper too. Where every device has all weights, a step sums the gradient over the devices: its
bytes do not depend on the rows. Where weights are split by hidden units or sites, the gradient of a
weight stays where the weight is, and a sweep exchanges fields of visible units (RBM, summed) or new
states (Potts, one byte a site) of all rows and chains. GB a device are with Adam; times are bytes
over 450 GB/s (NVLink) and 50 GB/s (a 400 Gbit/s port),
without what can be hidden behind products."""
END = """\
So models of these sizes want their weights split: neither fits a device with Adam, and a step moves
few gigabytes or less, where copied weights would move tens of them. Dense weights between visible
and hidden units (`RBM`, `GaussianRBM`, `MixedRBM`) are split by `un.device_mesh(units=8)`: eight
parts by hidden units, each on an eighth of the devices, over which rows and chains are split as
ever. What the optimiser keeps is split likewise, and XLA adds the sums over units. `fit`,
`run_chains`, `ais` and `query` give the answers of one device up to the order of sums, and a model
that `fit` returns stays split where one process has all devices. The Potts model is not split.
"""
