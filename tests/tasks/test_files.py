"""Networks as UAI files with their names beside them."""

import numpy as np
import pytest

import undirected as un
from undirected.core.errors import BadFile

WORDS = {"sky": ["clear", "grey", "dark"], "rain": ["no", "yes"], "n": 3}
TABLES = {
    "rain": [8, 2],
    ("rain", "sky"): [[6, 3, 1], [1, 3, 6]],
    ("sky", "n"): [[1, 2, 3], [4, 0, 6], [7, 8, 9]],
}


def weights():
    """The product of the tables over (sky, rain, n)."""
    rain, pair, last = (np.array(table, float) for table in TABLES.values())
    return pair.T[:, :, None] * rain[None, :, None] * last[:, None, :]


def test_names_are_kept_beside_the_file(tmp_path):
    net = un.markov_network(WORDS, TABLES)
    un.write_network(tmp_path / "w.uai", net)
    back = un.read_network(tmp_path / "w.uai")
    assert set(back.layout.names) == {"sky", "rain", "n"}
    joint = weights()
    found = un.query(back, given={"sky": "dark"})
    assert found["rain"]["yes"] == pytest.approx(joint[2, 1].sum() / joint[2].sum(), abs=1e-5)
    assert found["n"][1] == pytest.approx(joint[2, :, 1].sum() / joint[2].sum(), abs=1e-5)
    assert un.log_partition(back).value == pytest.approx(np.log(joint.sum()), abs=1e-4)


def test_models_of_pairs_are_written_too(tmp_path):
    model = un.Ising.from_spins([0.5, -0.25], [0.1, 0.0, 0.3], un.graph.chain(3))
    un.write_network(tmp_path / "i.uai", model)
    assert not (tmp_path / "i.uai.names.json").exists()
    back = un.read_network(tmp_path / "i.uai")
    assert un.log_partition(back).value == pytest.approx(un.log_partition(model).value, abs=1e-5)


def test_names_of_another_network_are_refused(tmp_path):
    un.write_network(tmp_path / "w.uai", un.markov_network(WORDS, TABLES))
    names = tmp_path / "w.uai.names.json"
    for text in ("{", "[]", '{"names": ["a"], "states": [null]}', '{"names": 3, "states": 4}'):
        names.write_text(text)
        with pytest.raises(BadFile, match=r"w\.uai\.names\.json"):
            un.read_network(tmp_path / "w.uai")


def test_names_and_words_come_back_as_they_were(tmp_path):
    words = {
        (0, 0): [("a", 1), ("b", 2)],
        (0, (1, "x")): ["NaN", "Infinity", 2.5],
        "NaN": [True, False],
        1.5: ["only"],
        "last": 3,
    }
    table = np.arange(1.0, 13.0).reshape(2, 3, 2)
    scope = ((0, 0), (0, (1, "x")), "NaN")
    net = un.markov_network(words, [(scope, table)])
    un.write_network(tmp_path / "t.uai", net)
    un.save(tmp_path / "t", net)
    for back in (un.read_network(tmp_path / "t.uai"), un.load(tmp_path / "t")):
        assert back.layout == net.layout
        found = un.query(back, given={(0, 0): ("b", 2)})
        wanted = table[1].sum(1) / table[1].sum()
        assert found[0, (1, "x")]["Infinity"] == pytest.approx(wanted[1], abs=1e-5)


def test_names_that_no_file_holds_are_told(tmp_path):
    net = un.markov_network({frozenset("a"): 2}, {})
    with pytest.raises(un.UndirectedError, match="a frozenset names a variable"):
        un.write_network(tmp_path / "t.uai", net)
    assert not (tmp_path / "t.uai").exists()


@pytest.mark.parametrize("weight", [1e-3, 1e3])
def test_products_beyond_the_range_of_numbers_are_written(tmp_path, weight):
    pairs = [((i, i + 1), [[weight, weight], [weight, 2 * weight]]) for i in range(400)]
    net = un.markov_network([2] * 401, pairs)
    un.write_network(tmp_path / "t.uai", net)
    back = un.read_network(tmp_path / "t.uai")
    value = un.solve(net, "pr").log_z
    assert un.solve(back, "pr").log_z == pytest.approx(value, rel=1e-6)
    assert un.query(back, given={1: 1})[0] == pytest.approx(un.query(net, given={1: 1})[0])


def test_names_of_a_network_before_are_removed(tmp_path):
    un.write_network(tmp_path / "t.uai", un.markov_network({"a": ["x", "y"]}, {"a": [1, 3]}))
    un.write_network(tmp_path / "t.uai", un.Ising.create(1))
    assert un.query(un.read_network(tmp_path / "t.uai")) == {0: {0: 0.5, 1: 0.5}}


def test_evidence_is_written(tmp_path):
    net = un.markov_network(WORDS, TABLES)
    un.write_network(tmp_path / "t.uai", un.observe(net.lower(), {"sky": "dark"}))
    assert un.solve(tmp_path / "t.uai", "pr").log_z == pytest.approx(np.log(weights()[2].sum()))
    found = un.query(un.read_network(tmp_path / "t.uai"))
    assert found["sky"]["dark"] == 1 and found["n"] == un.query(net, given={"sky": "dark"})["n"]
    many = un.shift(net.lower(), np.zeros((2, net.layout.n)))
    with pytest.raises(un.UndirectedError, match="got \\(2,\\) instances; pass a model or one"):
        un.write_network(tmp_path / "t.uai", many)


def test_what_is_no_path_is_told(tmp_path):
    net = un.markov_network(WORDS, TABLES)
    for path in (None, net):
        with pytest.raises(un.UndirectedError, match=f"read_network: got a {type(path).__name__}"):
            un.read_network(path)
    with pytest.raises(un.UndirectedError, match="path is a FactorGraph; pass the path first"):
        un.write_network(net, tmp_path / "t.uai")
