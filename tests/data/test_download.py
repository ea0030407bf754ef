import dataclasses
from pathlib import Path

import pytest

from undirected.core.errors import BadFile, DataNotFound
from undirected.data.download import fetch

CONTENT = bytes(range(256)) * 1000


def test_downloaded_once(site, cache_folder: Path, no_data_folder: None) -> None:
    sources = (site.publish("a.bin", CONTENT), site.publish("b.bin", b"b"))
    for _ in range(2):
        a, b = fetch("set.npz", sources)
        assert (a.read_bytes(), b.read_bytes()) == (CONTENT, b"b")
    assert site.requests == ["/a.bin", "/b.bin"]
    assert sorted(path.name for path in (cache_folder / "downloads").iterdir()) == [
        "a.bin",
        "b.bin",
    ]


def test_progress_is_shown_on_a_terminal_only(
    site, no_data_folder: None, monkeypatch, capfd
) -> None:
    fetch("set.npz", (site.publish("quiet.bin", CONTENT),))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    monkeypatch.setenv("TERM", "xterm")
    fetch("set.npz", (site.publish("loud.bin", CONTENT),))
    out, err = capfd.readouterr()
    assert out == ""
    assert "loud.bin" in err


def test_the_next_mirror_is_tried(site, unreachable, no_data_folder: None) -> None:
    good = site.publish("a.bin", CONTENT)
    dead = unreachable("a.bin").urls[0]
    source = dataclasses.replace(good, urls=(dead, site.url + "gone.bin", *good.urls))
    (path,) = fetch("set.npz", (source,))
    assert path.read_bytes() == CONTENT
    assert site.requests == ["/gone.bin", "/a.bin"]


def test_offline_says_what_to_do(unreachable, cache_folder: Path, no_data_folder: None) -> None:
    sources = (unreachable("a.bin"), unreachable("b.bin"))
    with pytest.raises(DataNotFound) as raised:
        fetch("set.npz", sources)
    message = str(raised.value)
    for part in ("set.npz", "25 MB", "UNDIRECTED_DATA (not set)", str(cache_folder)):
        assert part in message
    for source in sources:
        assert f"{source.urls[0]} as {source.file}" in message
    assert isinstance(raised.value, FileNotFoundError)
    assert list((cache_folder / "downloads").iterdir()) == []


def test_a_mistyped_folder_is_pointed_out(unreachable, monkeypatch) -> None:
    monkeypatch.setenv("UNDIRECTED_DATA", "/no/where")
    with pytest.raises(DataNotFound, match="/no/where: no such folder"):
        fetch("set.npz", (unreachable("a.bin"),))


@pytest.mark.parametrize("checksum", [True, False])
def test_a_cut_transfer_is_not_kept(
    site, cache_folder: Path, no_data_folder: None, checksum: bool
) -> None:
    source = site.publish("a.bin", CONTENT, cut=10_000, checksum=checksum)
    with pytest.raises(DataNotFound, match=r"a\.bin"):
        fetch("set.npz", (source,))
    assert list((cache_folder / "downloads").iterdir()) == []
    (path,) = fetch("set.npz", (site.publish("a.bin", CONTENT),))
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_not_kept(site, cache_folder: Path, no_data_folder: None) -> None:
    source = site.publish("a.bin", CONTENT)
    site.publish("a.bin", b"<html>please log in</html>")
    with pytest.raises(DataNotFound, match="does not match the known hash"):
        fetch("set.npz", (source,))
    assert list((cache_folder / "downloads").iterdir()) == []


def test_a_copy_in_the_data_folder_is_used(site, data_folder: Path) -> None:
    source = site.publish("a.bin", CONTENT)
    (data_folder / "a.bin").write_bytes(CONTENT)
    assert fetch("set.npz", (source,)) == [data_folder / "a.bin"]
    assert site.requests == []


def test_a_wrong_copy_in_the_data_folder_is_named_and_left_alone(site, data_folder: Path) -> None:
    source = site.publish("a.bin", CONTENT)
    (data_folder / "a.bin").write_bytes(b"something else")
    with pytest.raises(BadFile, match=r"data/a\.bin is not the published file"):
        fetch("set.npz", (source,))
    assert (data_folder / "a.bin").read_bytes() == b"something else"
