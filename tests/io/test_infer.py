"""What columns hold, found out from their cells."""

import numpy as np
import pytest

import undirected as un
from undirected.core.errors import BadFile
from undirected.io.infer import parse_types

N = 60


def only(cells, **options):
    schema = un.infer_schema({"c": cells, "other": ["a", "b"] * (len(cells) // 2)}, **options)
    return schema["c"] if "c" in schema.names else schema.dropped["c"]


@pytest.mark.parametrize(
    ("cells", "kind", "states"),
    [
        (["0", "1", ""] * 20, "binary", ("0", "1")),
        (["True", "false", "NA", "true"] * 15, "binary", ("false", "True")),
        (["Yes", "no", "null", "yes", "yes", "?"] * 10, "binary", ("no", "yes")),
        (["+1", "-1", "1", "1"] * 15, "binary", ("-1", "1")),
        (["1.0", "0.0"] * 30, "binary", ("0", "1")),
        (["male", "female"] * 30, "binary", ("female", "male")),
        (["red", "green", "blue"] * 20, "category", ("blue", "green", "red")),
        (["1", "2", "10", "2"] * 15, "category", ("1", "2", "10")),
        (["1", "2", "3+", "2"] * 15, "category", ("1", "2", "3+")),
        ([1, 2, 3, 4] * 15, "category", ("1", "2", "3", "4")),
        ([True, False] * 30, "binary", ("false", "true")),
        (["02139", "90210", "02139"] * 20, "binary", ("02139", "90210")),
        ([20240115, 20240116, 20240117] * 20, "category", ("20240115", "20240116", "20240117")),
        (["105845656512745123", "7", "8"] * 20, "category", ("7", "8", "105845656512745123")),
        (["105845656512745123", "105845656512745124"] * 20, "binary", None),
    ],
)
def test_states(cells, kind, states):
    column = only(cells)
    assert (column.kind, column.states) == (kind, states or tuple(cells[:2]))
    assert np.isfinite(column.encode(cells)).sum() == len(cells) - column.missing


@pytest.mark.parametrize(
    ("cells", "kind", "decimals"),
    [
        ([str(20 + i % 50) for i in range(N)], "real", 0),
        ([f"{i / 7:.2f}" for i in range(N)], "real", 2),
        (["-1.5e-1", "2", "", "7"] * 15, "real", 2),
        ([str(max(0, i - 20) * 10) for i in range(N)], "nonnegative", 0),
        (np.arange(N) % 20 / 4, "nonnegative", 2),
        (1234567.89 + 1000.01 * np.arange(N), "real", 2),
        (1e-10 * np.arange(1, N + 1), "real", 10),
        (np.float32(0.1) * np.arange(2, N, dtype=np.float32), "real", 1),
        (1e-9 * np.sin(np.arange(N)), "real", 13),
        (1 + 1e-9 * np.sin(np.arange(N)), "real", 12),
        (25e-12 * np.arange(2, N), "real", 12),
        ([f"{i}.5e-15" for i in range(N)], "real", 16),
    ],
)
def test_numbers(cells, kind, decimals):
    column = only(cells)
    assert (column.kind, column.decimals) == (kind, decimals)
    values = column.encode(cells).astype(float)
    seen = values[~np.isnan(values)]
    moment = np.mean(seen**2)
    assert moment == pytest.approx(1, abs=1e-5)
    if kind == "real":
        assert seen.mean() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["x"] * N, "every cell is x"),
        ([3.5] * N, "every cell is 3.5"),
        ([20240115] * N, "every cell is 20240115"),
        ([True] * N, "every cell is true"),
        ([""] * N, "every cell is missing"),
        ([f"p{i}" for i in range(N)], "as an id has"),
        ([str(i) for i in range(N)], "as an id has"),
        ([str(10**22 + 2 * i) for i in range(N)], "as an id has"),
        (2**53 + 3 * np.arange(N), "as an id has"),
        ([f"2020-01-{i % 28 + 1:02}" for i in range(N)], "dates or times"),
        ([f"{i % 28 + 1}.3.21" for i in range(N)], "dates or times"),
        (["2020-01-01 10:00:00", "2021-01-01 10:00:00"] * 30, "dates or times"),
        ([f"the answer {i % 30} has rather many words in it" for i in range(N)], "free text"),
        ([f"{i}.50 €" for i in range(N)], "write plain numbers"),
        ([f"({i % 40}.5)" for i in range(N)], "write plain numbers"),
        ([f"\u2212{i % 40}.5" for i in range(N)], "write plain numbers"),
        ([f"{i % 40 + 1}'000" for i in range(N)], "write plain numbers"),
        ([f"w{i % 300}" for i in range(900)], "300 different words"),
    ],
)
def test_columns_that_are_left_out(cells, why):
    assert why in only(cells)
    if why == "dates or times":
        return  # the user may have them as states
    kind = "category" if "300" in why else "binary"
    with pytest.raises(BadFile, match="the column 'c'"):
        only(cells, types={"c": kind})


def test_a_slip_among_numbers_is_named(tmp_path):
    lines = [f"{20 + i % 40};x{i % 3}" for i in range(N)]
    lines[11] = "3o;x1"
    (tmp_path / "t.csv").write_text("age;k\n" + "\n".join(lines) + "\n")
    with pytest.raises(BadFile, match=r"line 13, column 1 \(age\): '3o' is not a number, as the"):
        un.infer_schema(tmp_path / "t.csv")
    with pytest.raises(BadFile, match=r"line 13, .* '3o' is not a number; mend"):
        un.infer_schema(tmp_path / "t.csv", types={"age": "real"})
    schema = un.infer_schema(tmp_path / "t.csv", types={"age": "category"})
    assert "3o" in schema["age"].states


def test_the_user_is_obeyed():
    table = {"id": list(range(N)), "n": [1, 2, 3] * 20, "label": [f"w{i}" for i in range(N)]}
    schema = un.infer_schema(table, types={"id": "real", "n": "nonnegative"}, label="label")
    assert [c.kind for c in schema] == ["real", "nonnegative", "category"]
    assert schema.label == "label"
    schema = un.infer_schema(table, types={"id": "real"}, columns=["id", "n"], drop=["n"])
    assert schema.names == ["id"] and schema.dropped == {"n": "as asked", "label": "as asked"}
    with pytest.raises(BadFile, match="no column is left"):
        un.infer_schema({"a": [1] * N})
    with pytest.raises(BadFile, match="-2 is below 0"):
        un.infer_schema({"a": [1, -2, 3.5]}, types={"a": "nonnegative"})


def test_types_as_text():
    assert parse_types("age=real, a=b=category,") == {"age": "real", "a=b": "category"}
    assert parse_types(None) == {}
    for wrong, message in (("age", "is not a column and its kind"), ("age=reel", "mean real")):
        with pytest.raises(un.UndirectedError, match=message):
            parse_types(wrong)


def test_declared_categories_keep_their_order():
    pandas = pytest.importorskip("pandas")
    sizes = pandas.Categorical(["s", "l", None] * 4, categories=["s", "m", "l"])
    column = un.infer_schema(pandas.DataFrame({"size": sizes}))["size"]
    assert (column.states, column.missing) == (("s", "m", "l"), 4)


def test_very_small_numbers_come_back_as_they_are():
    """Metres of atoms: none of their digits are among the first nine after the point."""
    metres = 1e-10 * (1.5 + 0.01 * (np.arange(N) * 7 % 40))
    for cells in (metres, [f"{x:.3e}" for x in metres]):
        column = only(cells)
        decoded = column.decode(column.encode(cells).astype(float))
        written = [float(column.text(x)) for x in decoded]
        np.testing.assert_allclose(written, metres, rtol=1e-6)
