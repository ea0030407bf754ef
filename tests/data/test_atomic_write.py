import errno
from pathlib import Path

import pytest

from undirected.core.files import atomic_write


def write_and_raise(path: Path, error: BaseException) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text("half of the ne")
        raise error


def test_writes_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("hello")
        assert temporary.parent == path.parent
        assert not path.exists()
    assert path.read_text() == "hello"
    assert list(path.parent.iterdir()) == [path]


def test_failure_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write_and_raise(path, OSError(errno.ENOSPC, "disk full"))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_no_temporary(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_raise(tmp_path / "file", KeyboardInterrupt())
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), atomic_write(path):
        pass
    assert path.read_text() == "old"


def test_the_temporary_does_not_match_the_suffix_of_finished_files(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "model.npz") as temporary:
        temporary.write_text("x")
        assert list(tmp_path.glob("*.npz")) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_write(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    plain, written = tmp_path / "plain", tmp_path / "written"
    plain.write_text("x")
    with atomic_write(written) as temporary:
        temporary.write_text("x")
    assert written.stat().st_mode == plain.stat().st_mode


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    with pytest.raises(OSError, match=r"No space left on device: '.*/file\.txt'"):
        write_and_raise(path, OSError(errno.ENOSPC, "No space left on device"))
