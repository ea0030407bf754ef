"""What a model file can hold: every model of the library, users' own, files of version 1."""

import dataclasses
import enum
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from tests.io.damage import mutated, seal
from tests.io.saved import ALL, FIRST, cast, nonnegative, ramp, rbm
from tests.io.toy import Toy
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.graph import Graph, torus
from undirected.core.layout import Block, Labels, Layout
from undirected.inference import QueryNetwork
from undirected.io import classes, structure
from undirected.io.model_files import load_model, save_model
from undirected.io.model_record import describe_model
from undirected.models import REGISTRY, FactorGraph, ModelPath

VERSION1 = Path(__file__).parent / "version1"
HALF = {
    "bfloat16": lambda: cast(rbm(), jnp.bfloat16),
    "float16": lambda: cast(ALL["grid"](), jnp.float16),
    "float8": lambda: cast(rbm(), jnp.float8_e4m3fn),
}
# Mutations of `damage.mutated` after which a file describes another model, and a right one.
RIGHT = re.compile(
    r"sides becomes None|/excess becomes|/factors/tuple/\d+ is (removed|doubled)"
    r"|/labels becomes None|/labels/fields/(names|states)/\S+ (becomes|is negated)"
)


class Colour(enum.Enum):
    RED = 1
    NAN = "NaN"


@dataclasses.dataclass(frozen=True)
class Notes:
    colour: Colour
    words: tuple[str, ...]
    limit: float = 1.0


@dataclasses.dataclass
class Loose:
    value: int


class Mine(eqx.Module):
    """Every kind of value that a field may have."""

    layers: list[Toy]
    table: dict[str, Array]
    numbers: dict[int, tuple[float, ...]]
    number: np.float64
    key: Array
    nothing: Array | None
    notes: Notes = eqx.field(static=True)
    name: str = eqx.field(static=True)


class Box(eqx.Module):
    """A field of any kind."""

    value: Any


class Before(eqx.Module):
    wires: Array
    size: int = eqx.field(static=True)


class After(eqx.Module):
    """`Before` under another name, with another name of a field and one field more."""

    incidence: Array
    size: int = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True, default=("new",))


def identical(a: Any, b: Any) -> bool:
    """The same structure, static parts, kinds of leaves, dtypes and bits."""

    def bits(x: Any) -> Any:
        if not isinstance(x, jax.Array | np.ndarray | np.generic):
            return repr(x)
        data = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        kind = "jax" if isinstance(x, jax.Array) else type(x)
        return kind, str(x.dtype), x.shape, np.asarray(data).tobytes()

    (one, structure_one), (two, structure_two) = jax.tree.flatten(a), jax.tree.flatten(b)
    return structure_one == structure_two and [*map(bits, one)] == [*map(bits, two)]


def check_round_trip(folder: Path, model: eqx.Module, **options: Any) -> Any:
    save_model(folder / "a", model, {"note": 1})
    loaded = load_model(folder / "a", **options)
    assert type(loaded) is type(model)
    assert identical(model, loaded)
    save_model(folder / "b", loaded, {"note": 1})
    for name in ("model.json", "model.safetensors"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()
    return loaded


def edit(folder: Path, change: Any) -> None:
    """Apply a function to the record of a folder and seal it again."""
    record = json.loads((folder / "model.json").read_text())
    change(record)
    seal(folder, record)


@pytest.mark.parametrize("name", [*ALL, *HALF])
def test_every_model_comes_back_to_the_bit(tmp_path, name):
    model = (ALL | HALF)[name]()
    loaded = check_round_trip(tmp_path, model)
    assert eqx.tree_equal(model, loaded, typematch=True)


def test_every_registered_model_is_among_them():
    assert set(REGISTRY) <= {type(make()).__name__ for make in ALL.values()}


def test_float64_comes_back(tmp_path, x64):
    check_round_trip(tmp_path, cast(rbm(), jnp.float64))


def test_a_nonnegative_model_on_a_torus_keeps_its_sides(tmp_path):
    save_model(tmp_path, nonnegative(torus(3, 3)))
    assert load_model(tmp_path).graph.sides == (3, 3)


def test_modules_of_other_rooms_come_back(tmp_path):
    network = QueryNetwork(rbm(), layers=3)
    assert identical(check_round_trip(tmp_path, network).model, rbm())


def test_the_file_names_the_class_and_where_it_stands(tmp_path):
    save_model(tmp_path, rbm(label_states=2))
    record = describe_model(tmp_path)
    assert record["class"] == "RBM"
    found = record["model"]
    assert (found["class"], found["module"]) == ("RBM", "undirected.models.rbm")
    assert found["fields"]["label_states"] == 2
    array = {"array": "weights", "kind": "jax", "dtype": "float32", "shape": [4, 3]}
    assert found["fields"]["weights"] == array
    assert [block["name"] for block in record["layout"]] == ["visible", "label", "hidden"]


def test_own_classes_with_fields_of_every_kind(tmp_path):
    model = Mine(
        layers=[Toy.filled(1), Toy.filled(2, name="NaN")],
        table={"b": ramp(2), "a": ramp(3)},
        numbers={3: (1.0, float("inf")), -1: (-0.0, float("nan")), 2: ()},
        number=np.float64(0.1),
        key=jax.random.split(jax.random.key(3), 2),
        nothing=None,
        notes=Notes(Colour.NAN, ("Infinity", "α"), float("-inf")),
        name="-Infinity",
    )
    own = [Mine, Notes, Colour, Toy]
    loaded = check_round_trip(tmp_path, model, classes=own)
    assert type(loaded.number) is np.float64 and loaded.notes == model.notes
    assert identical(model, load_model(tmp_path / "a", {c.__name__: c for c in own}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (jnp.tanh, "'value' is a .*, which cannot be saved; keep to arrays"),
        ((1, {"a": {1, 2}}), r"'value\[1\]\['a'\]' is a set, which cannot be saved"),
        (Loose(3), "'value' is a Loose, which cannot be saved"),
        (jnp.asarray([1.0, jnp.nan]), "the array 'value' has 1 NaN or infinite entries"),
        (jax.tree.map(lambda a: a[None], rbm()), r"RBM: visible_bias has shape \(1, 4\)"),
        (Notes(Colour.RED, (1,)), r"the field 'words' of Notes is \(1,\); wanted tuple\[str"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, value, message):
    with pytest.raises(UndirectedError, match=f"save_model: this Box cannot be saved: .*{message}"):
        save_model(tmp_path, Box(value))
    assert not list(tmp_path.iterdir())


def test_an_unknown_class_says_what_to_do(tmp_path):
    save_model(tmp_path, Toy.filled(1))
    wanted = (
        r"unknown class 'Toy' of the module tests.io.toy; .*load_model\(folder, classes=\[Toy\]"
    )
    with pytest.raises(BadFile, match=wanted):
        load_model(tmp_path)
    with pytest.raises(UndirectedError, match=r"'Loose' in `classes` is .*frozen dataclasses"):
        load_model(tmp_path, classes=[Toy, Loose])


def test_a_class_of_the_library_is_not_taken_for_one_of_the_same_name(tmp_path):
    class RBM(eqx.Module):
        weights: Float[Array, " n"]

    check_round_trip(tmp_path, RBM(ramp(3)), classes=[RBM])
    with pytest.raises(BadFile, match="unknown class 'RBM' of the module tests"):
        load_model(tmp_path / "a")
    save_model(tmp_path / "c", rbm())
    assert identical(load_model(tmp_path / "c", classes=[RBM]), rbm())


def test_names_of_classes_are_unique():
    """A file finds a class by its short name, so two of the library may not share one."""
    found = classes.library_classes()
    for room in classes.ROOMS:
        for name, module in list(sys.modules.items()):
            if name.startswith(f"undirected.{room}."):
                for item in vars(module).values():
                    if classes.is_saveable(item) and item.__module__.startswith("undirected."):
                        assert found[item.__name__] is item
    assert {"RBM", "Layout", "Block", "Domain", "Graph"} <= set(found)


@pytest.mark.parametrize("make", [ALL["grid"], ALL["groups"]])
def test_classes_may_move_to_other_modules(tmp_path, make):
    save_model(tmp_path, make())

    def move(record):
        text = json.dumps(record["model"])
        record["model"] = json.loads(re.sub(r"undirected\.\w+\.\w+", "undirected.old.place", text))

    edit(tmp_path, move)
    assert identical(load_model(tmp_path), make())


def test_classes_and_fields_of_the_library_may_be_renamed(tmp_path, monkeypatch):
    monkeypatch.setattr(Before, "__module__", "undirected.models.before")
    known = classes.library_classes()
    monkeypatch.setattr(classes, "library_classes", lambda: known | {"After": After})
    save_model(tmp_path, Before(ramp(3), 3))
    with pytest.raises(BadFile, match="undirected.models.before has no class 'Before'.*older"):
        load_model(tmp_path)
    monkeypatch.setitem(classes.ALIASES, "Before", "After")
    with pytest.raises(BadFile, match="the field 'incidence' of After is missing"):
        load_model(tmp_path)
    monkeypatch.setitem(classes.ALIASES, "Before.wires", "incidence")
    with pytest.raises(BadFile, match="the field 'names' of After is missing"):
        load_model(tmp_path)
    monkeypatch.setattr(structure, "ADDED", frozenset({"After.names"}))
    assert identical(load_model(tmp_path), After(ramp(3), 3, ("new",)))


@pytest.mark.parametrize("name", FIRST)
def test_files_of_version_1_are_read(name):
    loaded = load_model(VERSION1 / name)
    assert identical(loaded, FIRST[name]())
    assert describe_model(VERSION1 / name)["extra"] == {"note": name}


def test_files_of_version_1_with_own_classes_are_read():
    assert identical(load_model(VERSION1 / "toy", {"Toy": Toy}), Toy.filled(2, name="mine"))
    with pytest.raises(BadFile, match=r"unknown class 'Toy'; .*classes=\[Toy\]"):
        load_model(VERSION1 / "toy")


GROUP = ("factors", "tuple", 0)


def change(*path: str | int, to: Any):
    """A function that sets one part of the description of a model."""

    def apply(record: dict[str, Any]) -> None:
        *places, last = path
        node = record["model"]["fields"]
        for place in places:
            node = node[place]
        node[last] = to

    return apply


@pytest.mark.parametrize(
    ("name", "forge", "message"),
    [
        ("label", change("label_states", to=2.0), "field 'label_states' of RBM is 2.0; wanted int"),
        ("label", change("label_states", to=True), "field 'label_states' of RBM is True"),
        ("label", change("label_states", to=9), "RBM: label_states is 9"),
        ("label", change("weights", to=1.0), "field 'weights' of RBM is 1.0; wanted Float"),
        ("label", change("weights", to={"tuple": 3}), "'tuple' of 'weights' is 3; wanted a list"),
        ("label", change("weights", "shape", to=[-4, -3]), r"has the shape \[-4, -3\]"),
        ("label", change("weights", "shape", to=[3, 4]), r"\(4, 3\), but described as .*\(3, 4\)"),
        ("label", change("weights", "shape", to=[10**12] * 2), "but described as"),
        ("label", change("weights", "dtype", to="float64"), "but described as float64"),
        ("label", change("weights", "dtype", to="object"), "does not describe a RBM"),
        ("label", change("weights", "kind", to="pickle"), "'kind': 'pickle'.*, which no array is"),
        ("label", change("weights", "array", to="visible_bias"), "which no array is"),
        ("label", change("more", to=1), "the field 'more' of RBM is not one of its fields"),
        ("torus", change("graph", "fields", "sides", to={"tuple": [3, 5]}), "Graph: 12 units"),
        ("torus", change("graph", "fields", "n", to=13), "Graph: 13 units"),
        ("torus", change("graph", to=None), "Ising: weights are"),
        ("query", change("temperature", to="other"), "is 'other'; wanted"),
        ("grid_mrf", change("shape", to={"tuple": [-4, 5]}), "GridMRF: shape"),
        ("grid_mrf", change("shape", to={"tuple": [4, 5, 6]}), r"wanted tuple\[int, int\]"),
        ("convolutional_or", change(*GROUP, "fields", "images", to=-1), "Or: -1 images"),
        ("convolutional_or", change(*GROUP, to=7), "the field 'factors' of FactorGraph is"),
        ("groups", change(*GROUP, "fields", "states", to={"tuple": [2, -3]}), "Tables: a weight"),
    ],
)
def test_forged_fields_are_refused(tmp_path, name, forge, message):
    save_model(tmp_path, (ALL | {"query": lambda: QueryNetwork(rbm())})[name]())
    edit(tmp_path, forge)
    with pytest.raises(BadFile, match=f"^{re.escape(str(tmp_path))}.*{message}"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("undirected.models.rbm", "softplus"),
        ("undirected.models.rbm", "eqx"),
        ("undirected.io.checkpoint", "Checkpoints"),
        ("undirected.__main__", "RBM"),
        ("undirected.core.files.os", "system"),
        ("undirected.nowhere", "Nothing"),
        ("undirected..models", "Nothing"),
        ("undirected.inference.unrolled", "RBM.create"),
        ("this", "RBM"),
    ],
)
def test_nothing_but_classes_that_can_be_saved_is_imported(tmp_path, module, name):
    save_model(tmp_path, rbm())
    edit(tmp_path, lambda record: record["model"].update(module=module, **{"class": name}))
    before = set(sys.modules)
    with pytest.raises(BadFile, match=re.escape(str(tmp_path))):
        load_model(tmp_path)
    assert {"this", "undirected.__main__"} & (set(sys.modules) - before) == set()


def test_an_enum_is_not_a_module_nor_a_module_an_enum(tmp_path):
    save_model(tmp_path, ALL["no_groups"]())
    where = ("layout", "fields", "blocks", "tuple", 0, "fields", "domain")
    for node, message in {
        "Block": "'BINARY', which Block does not have",
        "Domain": "'OTHER', which Domain does not have",
    }.items():
        forged = {"enum": node, "module": "undirected.core.layout", "member": "BINARY"}
        forged["member"] = "OTHER" if node == "Domain" else "BINARY"
        edit(tmp_path, change(*where, to=forged))
        with pytest.raises(BadFile, match=message):
            load_model(tmp_path)
    forged = {"class": "Domain", "module": "undirected.core.layout", "fields": {}}
    edit(tmp_path, change(*where, to=forged))
    with pytest.raises(BadFile, match="is of class Domain, which has no fields"):
        load_model(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parameters_that_are_not_finite_are_refused(tmp_path, monkeypatch, bad, dtype):
    model = cast(ModelPath(rbm(), rbm()), dtype)
    model = eqx.tree_at(lambda m: m.target.weights, model, replace_fn=lambda w: w.at[1, 2].set(bad))
    with pytest.raises(UndirectedError, match="'target.weights' has 1 NaN or infinite entries"):
        save_model(tmp_path, model)
    with monkeypatch.context() as careless:
        careless.setattr(structure, "_check_finite", lambda value, path: None)
        save_model(tmp_path, model)
    with pytest.raises(BadFile, match="the array 'target.weights' has 1 NaN or infinite entries"):
        load_model(tmp_path)


def test_nesting_too_deep_is_refused(tmp_path):
    save_model(tmp_path, Box(None))
    deep: Any = None
    for _ in range(900):
        deep = [deep]
    edit(tmp_path, change("value", to=deep))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)  # from Python 3.12 on a level takes one frame, before it two
    try:
        with pytest.raises(BadFile):
            load_model(tmp_path, classes=[Box])
    finally:
        sys.setrecursionlimit(limit)


def fuzz(folder: Path, times: int) -> list[str]:
    """Mutations, of one model after the other, after which a file loads as another model."""
    random, silent = np.random.default_rng(0), []
    models = {name: make() for name, make in ALL.items()}
    records = {}
    for name, model in models.items():
        save_model(folder / name, model, {"names": ["a"], "best": 1.5})
        records[name] = json.loads((folder / name / "model.json").read_text())
    for turn in range(times):
        name = list(ALL)[turn % len(ALL)]
        what, record = mutated(records[name], random)
        seal(folder / name, record)
        try:
            loaded = load_model(folder / name)
        except BadFile:
            continue
        if not identical(loaded, models[name]) and not RIGHT.search(what):
            silent.append(f"{name}: {what}")
    return silent


@pytest.mark.slow
def test_records_changed_at_random_are_refused_or_load_as_the_same_model(tmp_path):
    assert fuzz(tmp_path, 1000) == []


@pytest.mark.slow
def test_without_the_checks_of_kinds_some_would_load_as_another_model(tmp_path, monkeypatch):
    """The changes of the test above matter: it is the checks that notice them."""
    monkeypatch.setattr(structure, "_check_kinds", lambda kind, values: None)
    assert fuzz(tmp_path, 1000)


def test_old_files_changed_at_random_end_in_one_error(tmp_path):
    random = np.random.default_rng(0)
    for name in ("groups", "torus"):
        shutil.copytree(VERSION1 / name, tmp_path / name)
        record = json.loads((tmp_path / name / "model.json").read_text())
        refused = 0
        for _ in range(100):
            seal(tmp_path / name, mutated(record, random)[1])
            try:
                load_model(tmp_path / name)
            except BadFile:
                refused += 1
        assert refused > 20


def test_layouts_and_graphs_check_themselves():
    with pytest.raises(UndirectedError, match="block 'a' has variables of 1 states"):
        Layout((Block("a", 0, 3, states=1),))
    with pytest.raises(UndirectedError, match="1 names, 2 lists of states and an order of 2 for 2"):
        Layout((Block("a", 0, 2),), Labels(("x",), (None, None), (0, 1)))
    with pytest.raises(UndirectedError, match=r"the product of the sides of a torus is 4"):
        Graph(jnp.zeros((2, 2), int), None, jnp.zeros((1, 4), int), 4, (2, 3))
    group = ALL["groups"]().factors[7]
    with pytest.raises(UndirectedError, match=r"Bilinear: a group on blocks 0 and 2"):
        FactorGraph.create(ALL["no_groups"]().layout, [group])
