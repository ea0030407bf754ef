"""Markdown tables: golden text."""

from undirected.report import markdown
from undirected.report.tables import Table

from .samples import full_record, row, small_record

FULL = r"""
**error [%] (lower is better)**

| case | CD\|1: ours | CD\|1: paper | CD\|1: difference | PCD: ours | PCD: paper | PCD: difference | \*BP\*: ours |
| :-- | --: | --: | --: | --: | --: | --: | --: |
| digits | 3.50 ± 0.25 | **3.25** | ≈ +0.25 | ★ **2.00** ± 0.10 | 2.5 | -0.50 | 2.25 ± 0.50 |
| faces | n/a | 4.1 | – | 4.25 ± 0.12 | 4.25 | ≈ 0.00 | – |

±: standard error. Each of ours over n = 10. Bold: the better of ours and the paper's. ★: best of ours in its case. ≈: within two standard errors of the paper's number.

**log-likelihood (higher is better)**

| case | PCD: ours | PCD: paper | PCD: difference | CD\|1: ours |
| :-- | --: | --: | --: | --: |
| digits | ★ **-84.33** ± 0.13, n = 5 | -85.2 | +0.87 | -120.12 n = 3 |

±: standard error. Bold: the better of ours and the paper's. ★: best of ours in its case.
"""  # noqa: E501

SMALL = """
**error (lower is better)**

| case | Gibbs | BP |
| :-- | --: | --: |
| toy | ★ 5 | ★ 5 |

★: best of ours in its case.
"""


def test_the_tables_of_a_full_record():
    assert markdown.table(full_record()) == FULL.lstrip("\n")


def test_the_table_of_a_small_record():
    assert markdown.table(small_record()) == SMALL.lstrip("\n")


def test_a_table_made_by_hand():
    made = Table(("who", "what", "number"), [("a_b", "_x_\ny <z>", "-1"), ("c", "", "+2")])
    assert markdown.render(made) == (
        "| who | what | number |\n| :-- | :-- | --: |\n"
        "| a_b | \\_x\\_ y \\<z> | -1 |\n| c |  | +2 |\n"
    )


def test_no_rows_no_table():
    assert markdown.table(full_record(rows=[])) == ""


def test_repeated_rows_are_all_shown():
    rows = [row("a", "m", "e", 1.5), row("a", "m", "e", 2.5), row("a", "k", "e", 3.5)]
    lines = markdown.table(full_record(rows=rows)).splitlines()
    assert lines[4:6] == ["| a | ★ 1.500 | 3.500 |", "| a | 2.500 | – |"]


def test_numbers_far_from_the_others_keep_their_digits():
    values = [0.5, 0.6, 0.7, 0.0000123, 3e-9, 4.5e12, 0.0]
    rows = [row(str(i), "m", "e", value) for i, value in enumerate(values)]
    lines = markdown.table(full_record(rows=rows)).splitlines()
    shown = [line.split("|")[2].strip() for line in lines[4:]]
    assert shown == ["0.5000", "0.6000", "0.7000", "0.000012", "3.00e-09", "4.50e+12", "0.0000"]
