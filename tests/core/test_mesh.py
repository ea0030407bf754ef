"""One program on many devices: the same answers as on one."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import undirected as un
from tests.launch import launch
from undirected.core.errors import UndirectedError
from undirected.core.mesh import (
    by_units,
    check_mesh,
    gather,
    on_mesh,
    place,
    place_chains,
    place_rows,
    split_chains,
    use_mesh,
)
from undirected.learning import fit


@pytest.mark.slow
def test_a_mesh_of_one_device_changes_no_bit_of_a_fit():
    rows = (np.random.default_rng(0).random((20, 6)) < 0.5).astype(np.float32)
    batches, model = un.Batches(rows, 8), un.RBM.create(6, 3, seed=0)
    objective = un.Persistent(un.BlockGibbs(), chains=4)
    one, mesh = (
        fit(model, objective, optax.sgd(0.1), batches, jax.random.key(0), steps=3, mesh=where)
        for where in (None, un.device_mesh(1))
    )
    for a, b in zip(
        jax.tree.leaves((one.model, one.carry)),
        jax.tree.leaves((mesh.model, mesh.carry)),
        strict=True,
    ):
        assert (np.asarray(a) == np.asarray(b)).all()
    assert one.history == mesh.history


def test_arrays_go_to_a_mesh_and_come_back():
    mesh = check_mesh("test", un.device_mesh(1), None)
    tree = {
        "rows": np.arange(6.0, dtype=np.float32).reshape(3, 2),
        "key": jax.random.key(1),
        "n": 2,
    }
    for put in (place, place_chains):
        back = gather(mesh, put(mesh, tree))
        assert (np.asarray(back["rows"]) == tree["rows"]).all()
        assert (jax.random.key_data(back["key"]) == jax.random.key_data(tree["key"])).all()
        assert back["n"] == 2
    assert np.asarray(place_rows(mesh, tree["rows"])).shape == (3, 2)
    assert not on_mesh()


@pytest.mark.parametrize("count", [5, 6, 8])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_filled_up_with_the_last_one(monkeypatch, count, axis):
    """Put together from the parts of four devices, which this process does not have."""

    def put_together(shape, sharding, part):
        found = np.full(shape, np.nan, np.float32)
        for first in range(0, shape[axis], shape[axis] // 4):
            at = [slice(None)] * len(shape)
            at[axis] = slice(first, first + shape[axis] // 4)
            found[tuple(at)] = part(tuple(at))
        return found

    monkeypatch.setattr(jax, "make_array_from_callback", put_together)
    rows = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    wanted = np.concatenate([rows, rows[[-1] * (8 - count)]])
    mesh: Any = jax.sharding.AbstractMesh((4,), ("rows",))
    found = place_rows(mesh, rows if axis == 0 else rows.T, axis)
    assert (np.asarray(found) == (wanted if axis == 0 else wanted.T)).all()


def test_the_arrays_of_chains_are_split_and_the_rest_is_left_to_xla():
    state = {"x": np.zeros((400, 3)), "weights": np.zeros((5, 2)), "step": np.zeros(())}
    with use_mesh(un.device_mesh(1)):
        program = jax.make_jaxpr(split_chains)(state)
    split = [e for e in program.eqns if e.primitive.name == "sharding_constraint"]
    assert [e.outvars[0].aval.shape for e in split] == [(400, 3)]


def test_what_is_no_mesh_is_refused():
    with pytest.raises(UndirectedError, match="mesh is a int; pass un.device_mesh"):
        check_mesh("fit", 8, None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UndirectedError, match="1000 devices are asked for, JAX sees"):
        un.device_mesh(1000)


def test_a_solver_in_numpy_is_not_split_over_devices():
    model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
    sampler = un.PerturbAndMap(un.LinearProgram(), samples=2)
    with pytest.raises(UndirectedError, match="LinearProgram runs in NumPy"):
        sampler.draw(model, jax.random.key(0), un.device_mesh(1))


def eight_devices(folder: Path, *arguments: str) -> Path:
    """The folder with answers of one device, of a mesh of 8, and what a step compiles to."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    ((code, told),) = launch(1, "tests.mesh_program", str(folder), *arguments, XLA_FLAGS=flags)
    assert code == 0, told
    return folder


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return eight_devices(tmp_path_factory.mktemp("eight"))


@pytest.fixture(scope="module")
def split_weights(tmp_path_factory):
    """The same where weights are split into two parts, and rows into four."""
    return eight_devices(tmp_path_factory.mktemp("units"), "units")


def check_answers(folder: Path, expected: Path, units: bool = False) -> None:
    """Draws are the same bits; sums over rows have another order on several devices.

    So have sums over hidden units where weights are split: those are the log weights of AIS.
    """
    one = np.load(expected / "one.npz")
    for path in folder.glob("process-*.npz"):
        found = np.load(path)
        assert {name.split("/")[0] for name in found} >= (BY_UNITS if units else QUESTIONS)
        for name in found:
            difference = np.abs(found[name].astype(float) - one[name].astype(float)).max()
            exact = not name.startswith(LEARNED) and "query" not in name
            within = 1e-6
            if units and name in ("ais/1", "reverse ais/1"):
                exact, within = False, 1e-6 * np.abs(one[name]).max()
            assert difference == 0 if exact else difference < within, (path.name, name)


PCD = "pcd", "pcd, chains that 8 does not divide"
LEARNED = *PCD, "streamed pcd", "two-phase bp", "query training", "pseudo-likelihood", "max-margin"
SAMPLED = "chains", "ais", "reverse ais", "query", "query in numpy"
CHAINS = {f"chains of {name}" for name in PCD}
QUESTIONS = {*LEARNED, *SAMPLED, *CHAINS}
BY_UNITS = {*PCD, "pseudo-likelihood", "chains", "ais", "reverse ais", "query", *CHAINS}


@pytest.mark.slow
def test_eight_devices_answer_and_learn_as_one(one_device):
    check_answers(one_device, one_device)
    assert {"samples/0", "perturbed maxima/0"} <= set(np.load(one_device / "process-0.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_several_processes_answer_and_learn_as_one(one_device, count, tmp_path):
    for code, told in launch(count, "tests.mesh_program", str(tmp_path)):
        assert code == 0, told
    assert len(list(tmp_path.glob("process-*.npz"))) == count
    check_answers(tmp_path, one_device)


@pytest.mark.slow
def test_two_processes_share_split_weights(split_weights, tmp_path):
    for code, told in launch(2, "tests.mesh_program", str(tmp_path), "units"):
        assert code == 0, told
    assert len(list(tmp_path.glob("process-*.npz"))) == 2
    check_answers(tmp_path, split_weights, units=True)


@pytest.mark.slow
def test_split_weights_answer_and_learn_as_on_one_device(split_weights):
    check_answers(split_weights, split_weights, units=True)


def test_a_wrong_answer_is_found(tmp_path):
    """Of learning more than 1e-6, of draws a single bit, of any process."""
    one = {f"{name}/0": np.ones(2) for name in QUESTIONS}
    np.savez(tmp_path / "one.npz", **one)
    np.savez(tmp_path / "process-0.npz", **one)
    np.savez(tmp_path / "process-1.npz", **one | {"pcd/0": np.ones(2) + 5e-7})
    check_answers(tmp_path, tmp_path)
    for name in ("pcd/0", "chains of pcd/0", "ais/0", "query/0"):
        off = 5e-7 if name in ("chains of pcd/0", "ais/0") else 2e-6
        np.savez(tmp_path / "process-1.npz", **one | {name: np.ones(2) + off})
        with pytest.raises(AssertionError, match=name):
            check_answers(tmp_path, tmp_path)


@pytest.mark.slow
def test_a_step_divides_its_rows_and_reduces_its_gradient_once(one_device):
    step = json.loads((one_device / "step.json").read_text())
    shapes, reduced = step["shapes"], step["reduced"]
    # 24 rows are 3 and 16 chains 2 a device; nothing is computed for all rows.
    assert "f32[3,20]" in shapes and "f32[2,36]" in shapes
    assert not {"f32[24,20]", "f32[24,16]", "f32[24,36]"} & set(shapes)
    gradients = [shapes for shapes in reduced if "f32[20,16]" in shapes]
    assert len(gradients) == 1 and "f32[16]" in gradients[0] and "f32[20]" in gradients[0]
    # Beside it go the rows of the batch as bytes, and whether one of them has holes.
    others = [shapes for shapes in reduced if shapes not in gradients]
    assert sorted({shape for shapes in others for shape in shapes}) == ["pred[]", "u8[24,16]"]


@pytest.mark.slow
def test_a_step_with_split_weights_has_half_of_them_on_a_device(split_weights):
    step = json.loads((split_weights / "step.json").read_text())
    shapes, reduced = set(step["shapes"]), step["reduced"]
    # 20 hidden units are 10 a device, 24 rows are 6 and 16 chains 4; nothing has the whole matrix.
    assert {"f32[16,10]", "f32[6,36]", "f32[4,36]"} <= shapes
    assert not {"f32[16,20]", "f32[20,16]", "f32[24,16]", "f32[24,36]"} & shapes
    assert len([sums for sums in reduced if {"f32[16,10]", "f32[10,16]"} & set(sums)]) == 1


def test_weights_that_cannot_be_split_are_refused():
    devices = np.array(jax.devices() * 2)[:2].reshape(1, 2)
    mesh = jax.sharding.Mesh(devices, ("rows", "units"))
    with pytest.raises(UndirectedError, match="fit: 7 hidden units cannot be split into 2 equal"):
        check_mesh("fit", mesh, un.RBM.create(4, 7, seed=0))
    with pytest.raises(UndirectedError, match="Ising has no dense weights"):
        un.run_chains(un.Gibbs(), un.Ising.create(4), chains=2, samples=1, seed=0, mesh=mesh)
    with pytest.raises(UndirectedError, match="units is 3; it must divide the 1 devices"):
        un.device_mesh(1, units=3)


def test_an_optimiser_keeps_its_numbers_where_the_weights_are():
    """Momenta have the class of the model, and so the names of what is split."""
    memory = optax.adam(0.1).init(un.RBM.create(4, 2, seed=0))
    found = []
    by_units(lambda a, by: found.append((a.shape, by)), memory)
    assert (
        sorted(found)
        == [((), False), *[((2,), True)] * 2, *[((4,), False)] * 2] + [((4, 2), True)] * 2
    )
