import gzip
import lzma

import numpy as np
import pytest

from undirected.core.errors import BadFile
from undirected.io.uai import UaiModel, read_evidence, read_evidence_sets, read_uai, write_uai

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


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_compressed_files(tmp_path, pack):
    path = tmp_path / "model.uai.packed"
    path.write_bytes(pack(EXAMPLE.encode()))
    assert read_uai(path).tables[0].tolist() == [[4, 2], [1, 3]]
    path.write_bytes(pack(b"1 2 0"))
    assert read_evidence(path) == {2: 0}
    for damaged in (pack(EXAMPLE.encode())[:-9], pack(EXAMPLE.encode())[:20] + bytes(40)):
        path.write_bytes(damaged)
        with pytest.raises(BadFile, match="packed: the compressed file is damaged or cut off"):
            read_uai(path)


def test_a_table_of_very_many_variables_is_refused_in_few_words(tmp_path):
    path = tmp_path / "wide.uai"
    scope = " ".join(map(str, range(2000)))
    path.write_text(f"MARKOV\n2000\n{'2 ' * 2000}\n1\n2000 {scope}\n8\n1 1 1 1 1 1 1 1")
    with pytest.raises(BadFile, match=r"scope 0 joins 2,000 variables; .* cannot be held") as found:
        read_uai(path)
    assert len(str(found.value)) < 250
    path.write_text(f"MARKOV\n64\n{'9 ' * 64}\n1\n64 {' '.join(map(str, range(64)))}\n8\n1")
    with pytest.raises(BadFile, match=r"8 entries; .* more than 10\^18 \(64 variables\)"):
        read_uai(path)
    path.write_text(f"MARKOV\n3\n2 2 2\n1\n40 {'1 ' * 40}\n8\n1")
    with pytest.raises(BadFile, match=r"variable twice: \(1, 1, 1, 1, 1, 1, 1, 1, \.\.\.\)"):
        read_uai(path)


NETWORK = UaiModel((2, 2, 3), (), ())


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("0", [{}]),
        ("0\n", [{}]),
        ("2 0 1 2 2", [{0: 1, 2: 2}]),
        ("2\n0 1\n2 2\n", [{0: 1, 2: 2}]),
        ("1\n2 0 1 2 2", [{0: 1, 2: 2}]),
        ("1\n0", [{}]),
        ("2\n1 0 1\n2 1 0 2 1\n", [{0: 1}, {1: 0, 2: 1}]),
        ("3 1 0 1 0 1 2 2", [{0: 1}, {}, {2: 2}]),
        ("2 1 0 2 0", [{1: 0, 2: 0}]),  # one set {1: 0, 2: 0} rather than {0: 2} and nothing
    ],
)
def test_evidence_of_both_generations(tmp_path, text, sets):
    path = tmp_path / "a.uai.evid"
    path.write_text(text)
    assert list(read_evidence_sets(path, NETWORK)) == sets
    if len(sets) == 1:
        assert read_evidence(path) == sets[0]
    else:
        with pytest.raises(BadFile, match=f"holds {len(sets)} sets of evidence; wanted one"):
            read_evidence(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file ends where the number of observed variables"),
        ("x", "line 1: 'x' should be a number of the evidence, a whole number"),
        ("1\n0 1.0", "line 2: '1.0' should be"),
        ("1 -1 0", "'-1' should be"),
        ("2 0 1 2", "1 numbers follow where set 1 has 1 observed variables; wanted 2 pairs"),
        ("3", "the file ends before set 0; wanted 3 pairs .*, or 3 sets"),
        ("1\n2 0 1", "line 2: 2 numbers follow where set 0 has 2 observed variables"),
        ("1\n1 0 1\n5", "line 3: 5 comes after the last pair"),
        ("1 3 0", "variable 3 is observed; variables are 0 to 2"),
        ("1 2 3", "variable 2 has no state 3; pass one of 0 to 2"),
        ("2 1 0 1 1", "variable 1 is observed twice"),
        ("1 99999999999999999999 0", "should be a number of the evidence"),
    ],
)
def test_what_is_wrong_with_evidence_is_named(tmp_path, text, message):
    path = tmp_path / "bad.evid"
    path.write_text(text)
    with pytest.raises(BadFile, match=f"bad.evid.*{message}"):
        read_evidence_sets(path, NETWORK)


def test_evidence_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_evidence(tmp_path / "none.evid")
