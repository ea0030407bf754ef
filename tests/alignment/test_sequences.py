"""FASTA files: what is read from them, and what is said of those that are wrong."""

import bz2
import gzip
import lzma

import numpy as np
import pytest

import undirected as un
from undirected.alignment.sequences import is_fasta
from undirected.core.errors import BadFile, UndirectedError

FAMILY = ">one/1-4 first\nAC\n-U\n\n>two\r\nGCAU\r\n"


def written(tmp_path, text, name="family.fasta"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_lines_are_joined_and_names_kept(tmp_path):
    found = un.read_fasta(written(tmp_path, FAMILY))
    assert found.sequences == ["AC-U", "GCAU"] and found.names == ("one/1-4 first", "two")
    assert found.letters == "-ACGU" and (found.n_positions, found.n_states, len(found)) == (4, 5, 2)
    np.testing.assert_array_equal(found.states, [[1, 2, 0, 4], [3, 2, 1, 4]])


@pytest.mark.parametrize("packer", [gzip, bz2, lzma], ids=["gz", "bz2", "xz"])
def test_packed_files_are_known_by_their_first_bytes(tmp_path, packer):
    path = written(tmp_path, packer.compress(FAMILY.encode()), "family.packed")
    assert un.read_fasta(path).sequences == ["AC-U", "GCAU"] and is_fasta(path)


@pytest.mark.parametrize("packer", [bytes, gzip.compress], ids=["plain", "gz"])
def test_a_byte_order_mark_is_no_letter(tmp_path, packer):
    path = written(tmp_path, packer(b"\xef\xbb\xbf" + FAMILY.encode()))
    assert is_fasta(path) and un.read_fasta(path).names == ("one/1-4 first", "two")


def test_inserts_and_their_dots_are_dropped_but_dots_alone_are_gaps(tmp_path):
    inserts = un.read_fasta(written(tmp_path, ">a\nMK..-L\n>b\nMKwyFL\n"))
    assert inserts.sequences == ["MK-L", "MKFL"]
    alone = un.read_fasta(written(tmp_path, ">a\nMK.L\n>b\nMKFL\n"))
    assert alone.sequences == ["MK-L", "MKFL"]


def test_comments_are_passed_over(tmp_path):
    """A3M files of today begin with a line of numbers, as ColabFold writes them."""
    path = written(tmp_path, "#4\t1\n;made by hand\n>a\nMK-L\n# here\n>b\nMKaFL\n", "family")
    assert is_fasta(path) and un.read_fasta(path).sequences == ["MK-L", "MKFL"]


BLOCKS = """# STOCKHOLM 1.0
#=GF ID   Few

a/1-5          MK..-
#=GR a/1-5 SS  HH..X
b              MKwyF
#=GC RF        xx..x

a/1-5          LV
b              LI
//
"""


def test_blocks_of_the_stockholm_form_are_joined(tmp_path):
    path = written(tmp_path, gzip.compress(BLOCKS.encode()), "family.gz")
    found = un.read_fasta(path)
    assert is_fasta(path) and found.names == ("a/1-5", "b")
    assert found.sequences == ["MK-LV", "MKFLI"]
    with pytest.raises(BadFile, match="a second alignment begins at line 15"):
        un.read_fasta(written(tmp_path, BLOCKS + "\n" + BLOCKS.split("\n", 1)[1]))
    with pytest.raises(BadFile, match="line 10, sequence 'b' has the letter 'X'"):
        un.read_fasta(written(tmp_path, BLOCKS.replace("b              LI", "b LX")))


@pytest.mark.parametrize(
    ("letters", "wanted"),
    [("ACGT", "-ACGT"), ("ACGU", "-ACGU"), ("ACG", "-ACGU"), ("ACGW", "-ACDEFGHIKLMNPQRSTVWY")],
)
def test_the_alphabet_is_found_by_its_letters(letters, wanted):
    assert un.Alignment.of([letters, letters]).letters == wanted


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (["ACGU", "ACRN"], "-ACGU"),
        (["ACGT", "ACGN"], "-ACGT"),
        (["ACGT", "ACGR"], "-ACDEFGHIKLMNPQRSTVWY"),
        (["ACGA", "ACGN"], "-ACDEFGHIKLMNPQRSTVWY"),
        (["MKLU", "MKLV"], "-ACDEFGHIKLMNPQRSTVWY"),
    ],
)
def test_letters_for_any_base_leave_rna_and_dna_what_they_are(rows, wanted):
    """By the letters of a protein every U would have been one that is not known."""
    found = un.Alignment.of(rows, unknown="gap")
    assert found.letters == wanted
    if wanted == "-ACGU":
        assert found.sequences == ["ACGU", "AC--"]
        with pytest.raises(BadFile, match="letter 'R', which is not one of -ACGU"):
            un.Alignment.of(rows)


def test_an_alphabet_of_ones_own():
    assert un.Alignment.of(["HP-", "PPH"], "-HP").states.tolist() == [[1, 2, 0], [2, 2, 1]]
    for alphabet in ("aa", None):
        with pytest.raises(UndirectedError, match=f"alphabet '{alphabet}' is unknown; pass auto, "):
            un.Alignment.of(["AA"], alphabet)


def test_unknown_letters_become_gaps_or_leave():
    rows = ["MKX", "MKL"]
    assert un.Alignment.of(rows, unknown="gap").sequences == ["MK-", "MKL"]
    found = un.Alignment.of(rows, unknown="drop", names=["a", "b"])
    assert found.sequences == ["MKL"] and found.names == ("b",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">a\nMKL\n>b\nMKLL\n", r"line 3, sequence 'b' has 4 aligned letters.*'a' has 3; align"),
        (">a\nMKL\n>b\nMK\nX\n", r"line 5, sequence 'b' has the letter 'X'.*unknown='gap'"),
        (">a\nMKL\n>b\nM\tL\n", r"line 4, sequence 'b' has the letter '\\t'"),
        (">a\nMKL\n>b\nMKÄ\n", r"line 4, sequence 'b' has the letter 'Ä'"),
        (">a\nMKL\n>b\n\n", r"line 3, sequence 'b' has no aligned letters"),
        (">a\nmkl\n>b\nmkl\n", r"no aligned letters; lower-case letters are inserts"),
        ("MKL\n>b\nMKL\n", r"line 1 is 'MKL' before any name"),
        ("", "no sequences"),
        (b"\xff\xfe\x00", "cannot be read as text"),
        (gzip.compress(b">a\nMKL\n", mtime=0)[:-6], "cannot be read as text"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_name(tmp_path, text, message):
    with pytest.raises(BadFile, match=message):
        un.read_fasta(written(tmp_path, text))


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        un.read_fasta(tmp_path / "none.fasta")
    with pytest.raises(IsADirectoryError, match="this is a folder; name a FASTA file"):
        un.read_fasta(tmp_path)
    assert not is_fasta(tmp_path / "none.fasta")
    assert not is_fasta(written(tmp_path, "a,b\n1,0\n"))


@pytest.mark.parametrize("name", ["out.fasta", "out.fasta.gz"])
def test_what_is_written_is_read_again(tmp_path, name):
    family = un.Alignment.of(["MK-L", "MKFL"], names=["a b", "c"])
    un.write_fasta(tmp_path / name, family)
    again = un.read_fasta(tmp_path / name)
    assert again.sequences == family.sequences and again.names == family.names


def test_states_and_names_must_suit():
    with pytest.raises(UndirectedError, match="1 names; pass"):
        un.Alignment(np.zeros((2, 3), np.uint8), "-AC", ("a",))
    with pytest.raises(UndirectedError, match="state 3 with an alphabet of 3"):
        un.Alignment(np.full((1, 3), 3, np.uint8), "-AC", ("a",))


@pytest.mark.parametrize(
    "states",
    [[[0, 1]], np.array([[0.0, 1.0]]), np.array([[0, -1]]), np.array([[True, False]])],
    ids=["list", "real", "negative", "truth"],
)
def test_states_are_whole_numbers_from_0(states):
    with pytest.raises(UndirectedError, match="Alignment: .*pass an array of whole numbers"):
        un.Alignment(states, "-AC", ("a",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ACGU",), "got the text 'ACGU'; pass a list of sequences"),
        (([1, 2],), "sequence 1 is 1; pass texts"),
        ((["AC", "AG"], "rna", ["a"]), "1 names for 2 sequences; pass one for each"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(arguments, message):
    with pytest.raises(UndirectedError, match=f"Alignment.of: {message}"):
        un.Alignment.of(*arguments)


def test_what_is_no_alignment_is_not_written(tmp_path):
    with pytest.raises(UndirectedError, match="write_fasta: got a str; pass an Alignment"):
        un.write_fasta(tmp_path / "out.fasta", "ACGU")


def test_packed_files_with_wrong_bytes_are_refused(tmp_path):
    """Some damage is found by zlib, some by gzip, and some leaves what is no sequence."""
    rng = np.random.default_rng(0)
    letters = "".join(rng.choice(list("ACDEFGHIKL"), 400))
    good = bytearray(gzip.compress(f">a\n{letters}\n>b\n{letters}\n".encode(), mtime=0))
    for at in range(10, len(good) - 8):
        bad = good.copy()
        bad[at] ^= 0xFF
        path = written(tmp_path, bytes(bad), "family.fasta.gz")
        assert is_fasta(path) in (True, False)
        with pytest.raises(UndirectedError):
            un.read_fasta(path)
