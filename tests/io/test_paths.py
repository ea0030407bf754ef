"""What is no path is refused where files are read."""

import pytest

import undirected as un


@pytest.mark.parametrize("read", [un.load, un.load_table, un.read_table, un.read_fasta])
def test_what_is_no_path(read):
    with pytest.raises(un.UndirectedError, match=r"got a NoneType; pass the path of a file"):
        read(None)
