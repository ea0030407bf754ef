import errno
import json
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy

from tests.io.damage import damaged
from tests.io.toy import Toy
from undirected.core.errors import BadFile
from undirected.io import checkpoint, journal
from undirected.io.checkpoint import Checkpoints


def bits(leaf):
    """Type, dtype, shape and bytes of a leaf."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return "key", str(leaf.dtype), leaf.shape, np.asarray(jax.random.key_data(leaf)).tobytes()
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        kind = "jax" if isinstance(leaf, jax.Array) else type(leaf).__name__
        return kind, leaf.dtype, leaf.shape, np.asarray(leaf).tobytes()
    return type(leaf), repr(leaf)


def same(a, b) -> bool:
    leaves_a, structure_a = jax.tree.flatten(a, is_leaf=lambda x: x is None)
    leaves_b, structure_b = jax.tree.flatten(b, is_leaf=lambda x: x is None)
    return structure_a == structure_b and list(map(bits, leaves_a)) == list(map(bits, leaves_b))


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def everything():
    """A tree with every kind of leaf."""
    floats = np.array([0.1, -0.0, np.inf, np.nan, 1e-45], np.float32)
    model = Toy.filled(0.25)
    return {
        "model": model,
        "adam": optax.adam(1e-3).init(eqx.filter(model, eqx.is_inexact_array)),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(1, impl="rbg"), 3),
        "old_key": jax.random.PRNGKey(3),
        "float32": jnp.asarray(floats),
        "bfloat16": jnp.asarray(floats, jnp.bfloat16),
        "float16": jnp.asarray(floats[:3], jnp.float16),
        "float8": jnp.ones(3, jnp.float8_e4m3fn),
        "int4": jnp.asarray(np.array([-8, 7]), jnp.int4),
        "uint8": jnp.asarray(np.array([0, 255], np.uint8)),
        "bool": jnp.asarray(np.array([True, False])),
        "complex": jnp.asarray(np.array([1 + 2j], np.complex64)),
        "scalar": jnp.asarray(np.int32(5)),
        "empty": jnp.zeros((0, 3)),
        "numpy": {"f8": np.array([0.1, 2.0]), "u8": np.arange(3, dtype=np.uint64)},
        "turned": np.arange(6.0).reshape(2, 3).T,
        "strided": np.arange(10)[::3],
        "complex128": np.array([1j]),
        "number": np.float32(0.1),
        "python": (True, 12345678901234567890123, 0.1, float("nan"), -0.0, "NaN", 'a "b"\n', None),
        "nothing": None,
        "function": jnp.tanh,
        "nested": [(), {}, [None, {"a.b": 1, "a": {"b": 2}}]],
    }


def test_every_kind_of_leaf_comes_back_bit_for_bit(tmp_path):
    tree = everything()
    checkpoints = Checkpoints(tmp_path / "new" / "folder")
    assert checkpoints.latest(tree) is None
    checkpoints.save(12, tree, {"epoch": np.int64(3), "best": float("inf"), "note": "x"})
    step, loaded, meta = checkpoints.latest(tree)
    assert step == 12
    assert meta == {"epoch": 3, "best": float("inf"), "note": "x"}
    assert same(tree, loaded)
    assert names(checkpoints.folder) == ["step-00000012.safetensors"]
    loaded["turned"][0, 0] = 5  # numpy arrays stay writable
    draw = jax.random.normal(loaded["keys"][1], (3,))
    assert draw.tolist() == jax.random.normal(tree["keys"][1], (3,)).tolist()


def test_a_bare_array_is_a_tree(tmp_path):
    Checkpoints(tmp_path).save(0, jnp.arange(3))
    assert same(Checkpoints(tmp_path).latest(jnp.zeros(3, jnp.int32))[1], jnp.arange(3))


def test_shapes_are_enough_to_restore_into(tmp_path):
    def start(key):
        return {"model": Toy.filled(3), "key": key, "count": jnp.zeros((), jnp.int32)}

    tree = start(jax.random.key(5))
    Checkpoints(tmp_path).save(1, tree)
    like = eqx.filter_eval_shape(start, jax.random.key(0))
    assert same(Checkpoints(tmp_path).latest(like)[1], tree)


def test_big_endian_arrays_keep_their_values(tmp_path):
    Checkpoints(tmp_path).save(1, {"x": np.array([1.5, 2.5], ">f4")})
    loaded = Checkpoints(tmp_path).latest({"x": np.zeros(2, np.float32)})[1]["x"]
    assert loaded.tolist() == [1.5, 2.5]


def test_a_checkpoint_is_a_safetensors_file(tmp_path):
    path = Checkpoints(tmp_path).save(1, {"x": np.arange(3.0)})
    assert safetensors.numpy.load_file(path)["['x']"].tolist() == [0, 1, 2]


def test_a_number_may_start_as_python_and_become_an_array(tmp_path):
    Checkpoints(tmp_path).save(1, {"n": jnp.asarray(np.int32(4)), "best": 0.5})
    loaded = Checkpoints(tmp_path).latest({"n": 0, "best": 0})[1]
    assert isinstance(loaded["n"], jax.Array)
    assert loaded["n"] == 4
    assert loaded["best"] == 0.5


def test_float64_is_not_narrowed_silently(tmp_path):
    with jax.enable_x64(True):
        tree = {"x": jnp.asarray(np.array([0.1]))}
        Checkpoints(tmp_path).save(1, tree)
        assert same(Checkpoints(tmp_path).latest(tree)[1], tree)
    with pytest.raises(BadFile, match=r"\['x'\]' is float64 .* wanted float32"):
        Checkpoints(tmp_path).latest({"x": jnp.zeros(1)})
    with pytest.raises(BadFile, match="jax_enable_x64"):
        Checkpoints(tmp_path).latest({"x": np.zeros(1)})


@pytest.mark.slow
def test_cuts_and_turned_bits_fall_back_to_the_previous(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    like = {"x": jnp.zeros(2), "key": jax.random.key(0), "n": 0}
    old = {"x": jnp.asarray(np.array([1.0, 2.0], np.float32)), "key": jax.random.key(1), "n": 1}
    checkpoints.save(1, old, {"who": "old"})
    path = checkpoints.save(2, like, {"who": "new"})
    for what, data in damaged(path.read_bytes()):
        path.write_bytes(data)
        with pytest.warns(
            RuntimeWarning, match=r"step-00000002.safetensors: the file is truncated"
        ):
            step, tree, meta = checkpoints.latest(like)
        assert (step, meta, same(tree, old)) == (1, {"who": "old"}, True), what


def test_without_the_checksum_turned_bits_would_load_as_other_values(tmp_path, monkeypatch):
    """The damage of the test above is real: it is the checksum that catches it."""

    class Blind:
        def __init__(self, data=b""):
            pass

        def update(self, data):
            pass

        def hexdigest(self):
            return "0" * 64

    monkeypatch.setattr(checkpoint.hashlib, "sha256", Blind)
    tree = {"x": np.arange(100.0)}
    path = Checkpoints(tmp_path).save(1, tree)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert not same(Checkpoints(tmp_path).latest(tree)[1], tree)


def test_all_bad_names_them_all(tmp_path):
    checkpoints, tree = Checkpoints(tmp_path), {"x": np.zeros(3)}
    for step in (1, 2):
        path = checkpoints.save(step, tree)
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFile, match=r"no checkpoint can be read: .*00002.*damaged.*; .*00001"):
        checkpoints.latest(tree)


def test_a_renamed_file_is_bad(tmp_path):
    path = Checkpoints(tmp_path).save(1, {"x": np.zeros(3)})
    path.rename(tmp_path / "step-00000009.safetensors")
    with pytest.raises(BadFile, match="holds step 1; it was renamed"):
        Checkpoints(tmp_path).latest({"x": np.zeros(3)})


def test_another_format_version_is_not_passed_over(tmp_path, monkeypatch):
    tree = {"x": np.zeros(3)}
    Checkpoints(tmp_path).save(1, tree)
    monkeypatch.setattr(checkpoint, "VERSION", 3)
    Checkpoints(tmp_path).save(2, tree)
    monkeypatch.undo()
    with pytest.raises(BadFile, match="checkpoint format 3, but this library reads up to 2"):
        Checkpoints(tmp_path).latest(tree)


def test_version_1_kept_the_history_in_meta(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 1)
    Checkpoints(tmp_path).save(1, {"x": np.zeros(3)}, {"history": [{"loss": 0.5}]})
    monkeypatch.undo()
    assert Checkpoints(tmp_path).latest({"x": np.zeros(3)})[2] == {"history": [{"loss": 0.5}]}


def rows_of(count: int) -> list[dict]:
    return [{"step": k, "loss": k / 3, "worst": float("inf")} for k in range(count)]


def test_a_history_is_written_once_and_goes_on_where_the_checkpoint_was(tmp_path, monkeypatch):
    written = []
    kept = journal.to_json
    monkeypatch.setattr(journal, "to_json", lambda row: written.append(row["step"]) or kept(row))
    tree, first = {"x": np.zeros(3)}, Checkpoints(tmp_path)
    for count in (2, 2, 5):
        first.save(count, tree, {"who": count}, rows_of(count))
    assert written == [0, 1, 2, 3, 4]
    (tmp_path / "step-00000005.safetensors").unlink()  # as if a kill had come before it
    again = Checkpoints(tmp_path)
    assert again.latest(tree)[2] == {"who": 2, "history": rows_of(2)}
    changed = [*rows_of(2), {"step": 2, "loss": -1.0}]
    again.save(3, tree, {}, changed)
    assert written == [0, 1, 2, 3, 4, 2]
    assert Checkpoints(tmp_path).latest(tree)[2] == {"history": changed}
    again.save(9, tree, {}, rows_of(1))  # another run
    assert Checkpoints(tmp_path).latest(tree)[2] == {"history": rows_of(1)}


@pytest.mark.parametrize("harm", ["cut", "turned", "removed"])
def test_a_damaged_history_is_noticed(tmp_path, harm):
    tree, path = {"x": np.zeros(3)}, tmp_path / "history.jsonl"
    Checkpoints(tmp_path).save(1, tree, {}, rows_of(2))
    data = path.read_bytes()
    path.write_bytes(data[:-2] if harm == "cut" else data.replace(b"0.33", b"0.34"))
    if harm == "removed":
        path.unlink()
    with pytest.raises(BadFile, match=r"no checkpoint can be read: .*history.jsonl"):
        Checkpoints(tmp_path).latest(tree)


def test_a_file_is_laid_out_as_safetensors_lays_it_out(tmp_path):
    """Every array begins at a multiple of its size, nothing lies between them, all come back."""
    tree = {"a": np.ones(3, np.uint8), "b": np.arange(5.0), "c": np.ones((), bool), "d": []}
    tree |= {"e": np.zeros((0, 2), np.float32), "f": np.ones((2, 1), np.float16)}
    path = Checkpoints(tmp_path).save(1, tree)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0 and header.pop("__metadata__")
    at = 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert begin == at and begin % tree[name[2]].itemsize == 0
        at = end
    assert 8 + size + at == len(data)
    for name, array in safetensors.numpy.load_file(path).items():
        assert array.dtype == tree[name[2]].dtype and array.tolist() == tree[name[2]].tolist()


def test_other_files_are_ignored(tmp_path):
    checkpoints, tree = Checkpoints(tmp_path), {"x": np.zeros(3)}
    checkpoints.save(1, tree)
    for name in (".step-00000002.safetensors.1a2b3c4d.tmp", "step-x.safetensors", "notes.txt"):
        (tmp_path / name).write_text("x")
    assert checkpoints.latest(tree)[0] == 1
    checkpoints.save(2, tree)  # and what a crash left is swept away
    kept = ["notes.txt", "step-00000001.safetensors", "step-00000002.safetensors"]
    assert names(tmp_path) == [*kept, "step-x.safetensors"]


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (
            {"a": np.zeros((2, 3)), "b": 1},
            r"'\['a'\]' is float64 \(2,\) .* wanted float64 \(2, 3\)",
        ),
        ({"a": np.zeros(2, np.float32), "b": 1}, r"float64 \(2,\) in the file; wanted float32"),
        ({"a": np.zeros(2), "c": 1}, r"'\['c'\]' is missing from the file"),
        ({"a": np.zeros(2)}, r"the file has '\['b'\]'"),
        ({"a": np.zeros(2), "b": None}, r"'\['b'\]' is a Python int in the file; wanted none"),
        ({"a": None, "b": 1}, r"'\['a'\]' is float64 \(2,\) in the file; wanted none"),
        ({"a": jax.random.key(0), "b": 1}, r"wanted key<fry> \(\)"),
        ({"a": np.zeros(2), "b": "x"}, r"a Python int in the file; wanted a Python str"),
        ([np.zeros(2), 1], r"'\[0\]' is missing"),
    ],
)
def test_the_first_difference_is_named(tmp_path, like, message):
    Checkpoints(tmp_path).save(1, {"a": np.zeros(2), "b": 1})
    with pytest.raises(BadFile, match=message):
        Checkpoints(tmp_path).latest(like)


def test_leaves_that_cannot_be_saved_are_named(tmp_path):
    for leaf in (object(), np.array([object()]), np.array(["a"]), 1j):
        with pytest.raises(TypeError, match=r"'\['bad'\]' is a.* cannot be saved"):
            Checkpoints(tmp_path).save(1, {"bad": leaf})
    assert not list(tmp_path.iterdir())


def test_the_newest_good_ones_are_kept(tmp_path):
    checkpoints, tree = Checkpoints(tmp_path, keep=2), {"x": np.zeros(3)}
    for step in (1, 2, 3):
        path = checkpoints.save(step, tree)
    assert names(tmp_path) == ["step-00000002.safetensors", "step-00000003.safetensors"]
    path.write_bytes(b"damaged")
    checkpoints.save(4, tree)
    assert names(tmp_path) == [f"step-0000000{step}.safetensors" for step in (2, 3, 4)]
    checkpoints.save(5, tree)
    assert names(tmp_path) == [f"step-0000000{step}.safetensors" for step in (4, 5)]


def test_what_was_just_saved_stays_beside_a_later_step(tmp_path):
    checkpoints, tree = Checkpoints(tmp_path, keep=1), {"x": np.zeros(3)}
    checkpoints.save(10, tree)
    checkpoints.save(3, tree)
    assert names(tmp_path) == ["step-00000003.safetensors", "step-00000010.safetensors"]


def test_a_full_disk_leaves_the_earlier_ones(tmp_path, monkeypatch):
    checkpoints, tree = Checkpoints(tmp_path, keep=1), {"x": np.zeros(3)}
    checkpoints.save(1, tree)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def half(path, parts):
        with open(path, "wb") as file:
            file.write(parts[0])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(checkpoint, "_write_parts", half)
    with pytest.raises(OSError, match=r"not written .*No space left.*earlier.*intact") as caught:
        checkpoints.save(2, tree)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="keep is 0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match="step is -1"):
        Checkpoints(tmp_path).save(-1, {})


def test_what_was_written_here_is_not_read_again_unless_it_was_touched(tmp_path, monkeypatch):
    from undirected.io import checkpoint

    read = []
    monkeypatch.setattr(checkpoint, "_is_good", lambda path, step: bool(read.append(step)) or True)
    store = checkpoint.Checkpoints(tmp_path)
    for step in (1, 2, 3):
        store.save(step, {"a": np.zeros(3)})
    assert read == [] and len(list(tmp_path.glob("step-*"))) == 2
    (tmp_path / "step-00000003.safetensors").write_bytes(b"damaged")
    store.save(4, {"a": np.zeros(3)})
    assert read == [3]
