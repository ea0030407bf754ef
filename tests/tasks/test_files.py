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
