"""Published files: taken from UNDIRECTED_DATA when they lie there, downloaded otherwise.

Downloads stay in the cache under `downloads/`, so an interrupted set goes on where it stopped; the
folder may be deleted at any time.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undirected.core.errors import BadFile, DataNotFound
from undirected.data.cache import VARIABLE, cache_folder, data_folder

TIMEOUT = 30.0


@dataclass(frozen=True)
class Source:
    """A published file: the name it is kept under, its mirrors, size and checksum (`md5:...`)."""

    file: str
    urls: tuple[str, ...]
    megabytes: float
    checksum: str | None = None


def fetch(archive: str, sources: tuple[Source, ...]) -> list[Path]:
    """Return the published files an archive is made of, downloading those that are not here."""
    return [_local(source) or _download(archive, source, sources) for source in sources]


def _local(source: Source) -> Path | None:
    """Return the copy the user put into UNDIRECTED_DATA, if there is one; it must be sound."""
    folder = data_folder()
    if folder is None or not (folder / source.file).is_file():
        return None
    path = folder / source.file
    if source.checksum is not None:
        _verify(path, source)
    return path


def _verify(path: Path, source: Source) -> None:
    import pooch

    if not pooch.hashes.hash_matches(path, source.checksum):
        raise BadFile(
            f"{path} is not the published file (checksum {source.checksum}); "
            f"replace it with {source.urls[0]}"
        )


def _download(archive: str, source: Source, sources: tuple[Source, ...]) -> Path:
    """Try the mirrors in turn; a file already downloaded and sound is not downloaded again."""
    from requests import RequestException

    failures = []
    for url in source.urls:
        try:
            return _retrieve(url, source)
        except (RequestException, ValueError) as error:  # no answer, or not the published file
            failures.append(f"{url}: {textwrap.shorten(str(error), 400)}")
    raise DataNotFound(_not_found(archive, failures, sources))


def _retrieve(url: str, source: Source) -> Path:
    """Download one file; it gets its name only when complete and of the right checksum."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # the bar says the same
    folder = cache_folder() / "downloads"
    with _Bar(source.file) as bar:
        options: dict[str, Any] = {"progressbar": bar, "chunk_size": 1 << 16, "timeout": TIMEOUT}
        downloader: Any = pooch.HTTPDownloader(**options)
        path = pooch.retrieve(url, source.checksum, source.file, folder, downloader=downloader)
    return Path(path)


def _not_found(archive: str, failures: list[str], sources: tuple[Source, ...]) -> str:
    size = sum(source.megabytes for source in sources)
    return "\n".join(
        [
            f"{archive} is neither in {VARIABLE} ({_folder_state()}) nor in the cache "
            f"({cache_folder()}), and it could not be made from its published files:",
            *(f"  {failure}" for failure in failures),
            f"Connect to the network and try again, or save these files (about {size:.0f} MB) "
            f"in a folder and set {VARIABLE} to it:",
            *(f"  {source.urls[0]} as {source.file}" for source in sources),
        ]
    )


def _folder_state() -> str:
    folder = data_folder()
    if folder is None:
        return "not set"
    return str(folder) if folder.is_dir() else f"{folder}: no such folder"


class _Bar:
    """A bar on a terminal's standard error, with the members pooch calls."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        self._progress = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._progress.add_task(name, total=None)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    @property
    def total(self) -> float | None:
        return self._progress.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()
