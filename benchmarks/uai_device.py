"""`python -m benchmarks.uai_device --out DIR`: exact answers with tables of up to 2^30 entries.

Cliques that are too large for a processor's time go to the accelerator. Log Z of square grids of
binary variables with random tables, swept along rows and along columns, which must agree; log Z and
all marginals of UAI 2014 problems whose best order found needs tables of 2^26 to 2^30 entries,
against their references. Writes DIR/uai-device-full.json after each part; `--quick` is a small run
for any machine, which compares with NumPy.
"""

import argparse
import time
from dataclasses import dataclass, field
from math import log2
from pathlib import Path

import numpy as np

from benchmarks.saving import make_record, save
from benchmarks.uai import score
from benchmarks.uai.run import problems, unpack
from undirected.experiments import record as records
from undirected.experiments.record import Row
from undirected.inference.networks.cliques import CliqueTree, clique_tree
from undirected.inference.networks.device_tree import HOST, DeviceTree
from undirected.inference.networks.junction_tree import JunctionTree
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import Order, find_order, join, neighbours
from undirected.inference.networks.simplify import simplify
from undirected.io.uai import read_evidence, read_uai

GRIDS, QUICK_GRIDS = (25, 27, 29), (8, 12)
PROBLEMS = (
    *("ObjectDetection_16", "ObjectDetection_28", "ObjectDetection_29", "ObjectDetection_30"),
    *("ObjectDetection_31", "ObjectDetection_35", "ObjectDetection_39", "ObjectDetection_43"),
    *("ObjectDetection_53", "ObjectDetection_54", "ObjectDetection_58", "ObjectDetection_72"),
    *("linkage_13", "linkage_14"),
)
"""Problems whose best order found needs tables of 2^26 to 2^30 entries."""
QUICK_PROBLEMS = ("Segmentation_13",)
SEARCH = 4.0
"""Seconds to look for an order."""


@dataclass
class Run:
    """What is found, as it is found."""

    out: Path
    profile: str
    config: dict[str, object]
    began: float = field(default_factory=time.perf_counter)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, case: str, method: str, metric: str, value: float) -> None:
        self.rows.append(Row(case, method, metric, value, better="lower"))
        print(f"{case} | {method} | {metric}: {value:.9g}", flush=True)

    def save(self) -> None:
        seconds, title = time.perf_counter() - self.began, "Exact answers on a device"
        own = self.profile, self.config, seconds, self.rows, title, self.notes
        save(make_record("uai-device", *own), self.out / f"uai-device-{self.profile}.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.uai_device", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    parser.add_argument("--problems", type=Path, default=Path("build/uai2014"))
    parser.add_argument("--no-grids", action="store_true")
    parser.add_argument("--no-problems", action="store_true")
    given = parser.parse_args()
    sides, names = (QUICK_GRIDS, QUICK_PROBLEMS) if given.quick else (GRIDS, PROBLEMS)
    config = {"sides of grids": list(sides), "seconds for an order": SEARCH, "only": given.only}
    run = Run(given.out, "quick" if given.quick else "full", config)
    print(records.device(), records.versions(), flush=True)
    for side in () if given.no_grids else sides:
        grid(run, side, given.quick)
        run.save()
    if not given.no_problems:
        for model in problems(unpack(given.problems), "mar", given.only):
            if model.stem in names:
                problem(run, model)
                run.save()


def grid(run: Run, side: int, quick: bool) -> None:
    """Log Z of a square grid, swept both ways; the second sweep uses programs already compiled."""
    host = 2**6 if quick else HOST
    network, case = random_grid(side), f"grid {side} x {side}"
    ways = {
        "rows": [range(side * side)],
        "columns": [range(v, side * side, side) for v in range(side)],
    }
    found = []
    for way, parts in ways.items():
        order = played(network, [v for part in parts for v in part])
        plan = clique_tree(network.cardinalities, network.scopes, order, sums=False)
        start = time.perf_counter()
        found.append(DeviceTree(network, plan, keep=False, host=host).collect())
        run.add(case, f"by {way}", "seconds", time.perf_counter() - start)
        run.add(case, f"by {way}", "log Z", found[-1])
        run.add(case, f"by {way}", "log2 of the entries of the largest table", order.width)
    run.add(case, "both ways", "relative difference of log Z", abs(found[1] / found[0] - 1))
    if quick:
        plan = tree_of(network)
        wanted = JunctionTree(network, plan, keep=False).collect()
        run.add(case, "NumPy", "relative difference of log Z", abs(found[0] / wanted - 1))


def random_grid(side: int, seed: int = 0) -> Network:
    """Binary variables in a square with normal log weights on edges and fields."""
    rng, n = np.random.default_rng(seed), side * side
    scopes = [(v, v + 1) for v in range(n) if (v + 1) % side]
    scopes += [(v, v + side) for v in range(n - side)]
    tables = [*rng.normal(size=(len(scopes), 2, 2)), *rng.normal(size=(n, 2))]
    return Network((2,) * n, (*scopes, *((v,) for v in range(n))), tuple(tables))


def played(network: Network, variables: list[int]) -> Order:
    """The order that eliminates variables as they are listed."""
    near = neighbours(len(network.cardinalities), network.scopes)
    cliques = [(v, *join(near, v)) for v in variables]
    sizes = np.array(network.cardinalities, float)
    entries = [float(sizes[list(clique)].prod()) for clique in cliques]
    return Order(cliques, log2(max(entries)), log2(sum(entries)), "sweep")


def tree_of(network: Network) -> CliqueTree:
    order = find_order(network.cardinalities, network.scopes)
    assert order is not None
    return clique_tree(network.cardinalities, network.scopes, order)


def problem(run: Run, model: Path) -> None:
    """Log Z and marginals of a problem, twice: the programs of the second time are compiled."""
    whole = read_uai(model)
    with np.errstate(divide="ignore"):
        logs = tuple(np.log(table) for table in whole.tables)
    given = read_evidence(Path(f"{model}.evid"), whole)
    small = simplify(Network(whole.cardinalities, whole.scopes, logs), given)
    network = small.network
    start = time.perf_counter()
    until = time.monotonic() + SEARCH
    order = find_order(network.cardinalities, network.scopes, until, 0, 10**6, good=0.0)
    assert order is not None
    case = model.stem
    run.add(case, "order", "seconds", time.perf_counter() - start)
    run.add(case, "order", "log2 of the entries of the largest table", order.width)
    plan = clique_tree(network.cardinalities, network.scopes, order, sums=False)
    log_z, tables = 0.0, []
    for turn in ("with compilation", "compiled"):
        start = time.perf_counter()
        tree = DeviceTree(network, plan)
        log_z = tree.collect()
        tables = tree.distribute([(v,) for v in range(len(network.cardinalities))])
        run.add(case, turn, "seconds", time.perf_counter() - start)
    check(run, case, model, log_z, small.marginals(tables))


def check(run: Run, case: str, model: Path, log_z: float, tables: list[np.ndarray]) -> None:
    """Differences from the references."""
    reference = score.read_partition(Path(f"{model}.PR"))
    run.add(case, "reference", "relative difference of log Z", abs(log_z / reference - 1))
    wanted = score.read_marginals(Path(f"{model}.MAR"))
    apart = max(float(np.abs(a - b).max()) for a, b in zip(tables, wanted, strict=True))
    run.add(case, "reference", "largest difference of a probability", apart)


if __name__ == "__main__":
    main()
