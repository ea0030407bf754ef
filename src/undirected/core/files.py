"""Writing files so that a reader never sees half of one."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError, kind_told


def path_of(caller: str, got: Any) -> Path:
    """A path as one; all else is refused."""
    if not isinstance(got, str | os.PathLike):
        raise UndirectedError(f"{caller}: got {kind_told(got)}; pass the path of a file or folder")
    return Path(got)


def check_place(path: Path) -> None:
    """Refuse a path that cannot become a file, before any work is done for it."""
    path = Path(path).resolve()
    if path.is_dir():
        raise IsADirectoryError(f"{path}: this is a folder; name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{path}: its folder cannot be made ({error.strerror or error})") from error
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path}: its folder may not be written to; choose another")


def check_folder(path: Path) -> None:
    """Make a folder, or refuse a path that cannot be one."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "this is a file" if Path(path).is_file() else error.strerror or error
        raise OSError(f"{path}: the folder cannot be made ({why}); choose another") from error


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder for one process; the lock goes with the process, however it ends.

    `what` names the work that another process is then doing there.
    """
    try:
        import fcntl
    except ImportError:  # Windows has another way to lock; a folder is not held there
        yield
        return
    folder = Path(folder)
    check_folder(folder)
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UndirectedError(
                f"{folder}: another process is {what} there now; wait for it, or choose another "
                "folder"
            ) from error
        yield


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it becomes `path`, on failure it is removed.

    The body writes and closes the temporary file. What it wrote is on disk before the name changes,
    so after a crash or on a full disk `path` holds the old content or the new, never half. The
    temporary name ends in `.tmp`: hand writers that add their own suffix (`np.savez`) an open file.
    """
    path = Path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # A full disk is told without a name, or with the temporary one.
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where the system allows it (Windows does not)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
