import numpy as np
import pytest

from undirected.core.errors import BadFile
from undirected.io.uai import UaiModel, read_uai, write_uai

EXAMPLE = """MARKOV
3
2 2 3
2
2 0 1
2 1 2

4
 4.0 2.0
 1.0 3.0

6
 1 2 3
 4 5 6e-1
"""


def test_the_last_variable_of_a_scope_varies_fastest(tmp_path):
    path = tmp_path / "model.uai"
    path.write_text(EXAMPLE)
    model = read_uai(path)
    assert model.cardinalities == (2, 2, 3)
    assert model.scopes == ((0, 1), (1, 2))
    assert model.tables[0].tolist() == [[4, 2], [1, 3]]
    assert model.tables[1].tolist() == [[1, 2, 3], [4, 5, 0.6]]
    total = sum(
        model.tables[0][a, b] * model.tables[1][b, c]
        for a in range(2)
        for b in range(2)
        for c in range(3)
    )
    assert total == pytest.approx(5 * 6 + 5 * 9.6)


def test_round_trip_is_exact(tmp_path):
    random = np.random.default_rng(0)
    cardinalities = tuple(random.integers(1, 5, 6).tolist())
    scopes = ((), (3,), (1, 0), (2, 5, 4))
    tables = tuple(random.gamma(0.1, size=[cardinalities[v] for v in scope]) for scope in scopes)
    write_uai(tmp_path / "a.uai", UaiModel(cardinalities, scopes, tables))
    model = read_uai(tmp_path / "a.uai")
    assert model.cardinalities == cardinalities
    assert model.scopes == scopes
    for table, wanted in zip(model.tables, tables, strict=True):
        assert np.array_equal(table, wanted)
        assert table.shape == wanted.shape


def test_white_space_does_not_matter(tmp_path):
    path = tmp_path / "a.uai"
    path.write_bytes(b"\xef\xbb\xbf" + " \r\n".join(EXAMPLE.split()).encode())
    assert read_uai(path).tables[0].tolist() == [[4, 2], [1, 3]]


def test_bayes_tables_are_factors(tmp_path):
    path = tmp_path / "a.uai"
    path.write_text("BAYES 1 2 1 1 0 2 .25 .75")
    assert read_uai(path).tables[0].tolist() == [0.25, 0.75]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file ends where MARKOV should be"),
        ("ISING 3", "starts with 'ISING'; wanted MARKOV or BAYES"),
        ("MARKOV", "the file ends where the number of variables"),
        ("MARKOV\nx", "line 2: 'x' should be the number of variables, a whole number"),
        ("MARKOV\n-1", "'-1' should be the number of variables"),
        ("MARKOV\n1_0", "'1_0' should be the number of variables"),
        ("MARKOV\n9999999999999999999999", "should be the number of variables"),
        ("MARKOV\n2\n2", "the file ends where a number of states"),
        ("MARKOV 1 2.5", "'2.5' should be a number of states"),
        ("MARKOV 1\n0 0", "a variable of 0 states"),
        ("MARKOV 1\n2\n1\n1 1\n2\n1 1", r"scope 0 is \(1,\); variables are 0 to 0"),
        ("MARKOV 2\n2 2\n1\n2 0 0\n4\n1 1 1 1", "scope 0 names a variable twice"),
        ("MARKOV 1\n2\n1\n1 0\n3\n1 1 1", "line 5: table 0 has 3 entries; its scope asks for 2"),
        ("MARKOV 1\n2\n1\n1 0\n2\n1", "line 6: the file ends where an entry of table 0"),
        ("MARKOV 1\n2\n1\n1 0\n2\n1 x", "line 6: 'x' in table 0 is not a number"),
        ("MARKOV 1\n2\n1\n1 0\n2\n1 1_0", "'1_0' in table 0 is not a number"),
        ("MARKOV 1\n2\n1\n1 0\n2\n1 -1", "table 0 has entries that are negative, NaN or infinite"),
        ("MARKOV 1\n2\n1\n1 0\n2\n1 nan", "negative, NaN or infinite"),
        ("MARKOV 1\n2\n1\n1 0\n2\n1 1\n7", "line 7: '7' comes after the last table"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "bad.uai"
    path.write_text(text)
    with pytest.raises(BadFile, match=f"bad.uai.*{message}"):
        read_uai(path)


def test_other_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_uai(tmp_path / "none.uai")
    (tmp_path / "a.uai").write_bytes(b"\xff\xfe")
    with pytest.raises(BadFile, match="not UTF-8"):
        read_uai(tmp_path / "a.uai")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((2,), ((0,),), ()), "1 scopes, but 0 tables"),
        (((2,), ((0,),), (np.ones(3),)), r"table 0 has shape \(3,\); wanted \(2,\)"),
        (((2,), ((-1,),), (np.ones(2),)), "variables are 0 to 0"),
        (((2,), ((0,),), (np.array([1, -1]),)), "negative"),
    ],
)
def test_models_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        UaiModel(*arguments)
