"""One program on many devices: the same answers as on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.core.mesh import check_mesh, gather, on_mesh, place, place_chains, place_rows
from undirected.learning import fit

ROOT = Path(__file__).parents[2]


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
    mesh = check_mesh("test", un.device_mesh(1))
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


def test_what_is_no_mesh_is_refused():
    with pytest.raises(UndirectedError, match="mesh is a int; pass un.device_mesh"):
        check_mesh("fit", 8)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UndirectedError, match="1000 devices are asked for, JAX sees"):
        un.device_mesh(1000)


def test_a_solver_in_numpy_is_not_split_over_devices():
    model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
    sampler = un.PerturbAndMap(un.LinearProgram(), samples=2)
    with pytest.raises(UndirectedError, match="LinearProgram runs in NumPy"):
        sampler.draw(model, jax.random.key(0), un.device_mesh(1))


@pytest.fixture(scope="module")
def on_eight_devices():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    made = subprocess.run(
        [sys.executable, "-m", "tests.mesh_program"],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1])


@pytest.mark.slow
def test_eight_devices_answer_as_one(on_eight_devices):
    assert on_eight_devices["devices"] == 8
    for name, difference in on_eight_devices["sampling"].items():
        assert difference == 0 or (name == "query" and difference < 1e-6), name


@pytest.mark.slow
def test_eight_devices_learn_as_one(on_eight_devices):
    found = on_eight_devices["learning"]
    assert len(found) == 8
    for name, difference in found.items():  # sums over rows have another order on 8 devices
        assert difference == 0 if name.startswith("chains") else difference < 1e-6, name


@pytest.mark.slow
def test_a_step_divides_its_rows_and_reduces_its_gradient_once(on_eight_devices):
    shapes, reduced = on_eight_devices["shapes"], on_eight_devices["reduced"]
    # 24 rows are 3 and 16 chains 2 a device; nothing is computed for all rows.
    assert "f32[3,8]" in shapes and "f32[2,24]" in shapes
    assert not {"f32[24,8]", "f32[24,16]", "f32[24,24]"} & set(shapes)
    gradients = [shapes for shapes in reduced if "f32[8,16]" in shapes]
    assert len(gradients) == 1 and "f32[16]" in gradients[0] and "f32[8]" in gradients[0]
    # Beside it go the rows of the batch as bytes, and whether one of them has holes.
    others = [shapes for shapes in reduced if shapes not in gradients]
    assert sorted({shape for shapes in others for shape in shapes}) == ["pred[]", "u8[24,16]"]
