"""`annealers.py PEER FILE SECONDS TARGET`: ground states by the annealer of another program.

FILE has `edges` and `J` of E = -sum J s s'. Reads are made, each of more sweeps than the last,
until the target is met or so many CPU seconds have gone. Prints the best energy and the seconds.
"""

import json
import sys
import time

import numpy as np


def annealer(peer: str):
    """`(fields, couplings, sweeps, seed) -> lowest energy` of a hundred reads."""
    if peer == "dwave":
        from dwave.samplers import SimulatedAnnealingSampler

        sampler, sweeps = SimulatedAnnealingSampler(), "num_sweeps"
    else:
        import openjij

        sampler, sweeps = openjij.SASampler(), "num_sweeps"

    def read(couplings: dict, count: int, seed: int) -> float:
        how = {"num_reads": 100, "seed": seed, sweeps: count}
        fields = dict.fromkeys({i for pair in couplings for i in pair}, 0.0)
        return float(sampler.sample_ising(fields, couplings, **how).first.energy)

    return read


def main() -> None:
    peer, file, seconds, target = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
    with np.load(file) as found:
        edges, J = found["edges"].tolist(), found["J"].tolist()
    couplings = {(i, j): -float(w) for (i, j), w in zip(edges, J, strict=True)}
    read, best, count, seed = annealer(peer), np.inf, 500, 0
    began = time.process_time()
    while time.process_time() - began < seconds and best > target + 1e-3:
        best = min(best, read(couplings, count, seed))
        count, seed = min(2 * count, 16_000), seed + 1
    print(json.dumps({"energy": best, "seconds": time.process_time() - began}))


if __name__ == "__main__":
    main()
