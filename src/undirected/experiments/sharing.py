"""Pieces of work that several processes share over a folder, each done by one of them.

A piece is held by a file that only one process can make, and that its holder touches while it
works. A holder that touches it no more is gone, and another takes its place. Processes may be on
several machines, as long as they see the same folder: ages are told by the clock of its file
system. Where two hold a piece all the same, both write the same result: time is lost, nothing else.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

BEAT, PATIENCE = 5.0, 60.0
"""Seconds between two touches of a file that is held, and without one after which it is free."""


LOOK = 0.5
"""Seconds between two looks at what another process is doing."""


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Wait until no other process is at a file, and keep the others away while the body runs."""
    claims = Claims(path.parent)
    while True:
        with claims.hold(f".{path.name}") as mine:
            if mine:
                yield
                return
        time.sleep(LOOK)


class Claims:
    """The pieces of work in a folder that are held, and by whom.

    Args:
        folder: which all processes see.
        patience: seconds without a sign of life after which a holder counts as gone; one on
            this machine whose process has ended does at once.
        beat: seconds between two signs of life.
    """

    def __init__(self, folder: Path, patience: float = PATIENCE, beat: float = BEAT):
        self._folder = folder
        self._patience, self._beat = patience, beat
        self._me = {"host": socket.gethostname(), "process": os.getpid(), "id": uuid.uuid4().hex}
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Whether a piece is ours while the body runs: false where another process holds it."""
        path = self._path(name)
        if not self._take(path):
            yield False
            return
        over = threading.Event()
        beating = threading.Thread(target=self._touch, args=(path, over), daemon=True)
        beating.start()
        try:
            yield True
        finally:
            over.set()
            beating.join()
            if self._holder(path) == self._me:
                path.unlink(missing_ok=True)

    def held_by_another(self, name: str) -> bool:
        """Whether a process that is alive, and not this one, holds a piece."""
        path = self._path(name)
        holder = self._holder(path)
        return holder not in (None, self._me) and not self._gone(path, holder or {})

    @property
    def shared(self) -> bool:
        """Whether another process that is alive holds any piece of the folder."""
        names = [file.name.removesuffix(".held") for file in self._folder.glob("*.held")]
        return any(self.held_by_another(name) for name in names)

    def hold_any(self) -> AbstractContextManager[bool]:
        """Hold a piece of one's own: a sign, for `shared`, that one is here."""
        return self.hold(str(self._me["id"]))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.held"

    def _take(self, path: Path) -> bool:
        holder = self._holder(path)
        if holder is not None:
            if not self._gone(path, holder):
                return False
            self._bury(path, holder)
        return self._make(path)

    def _make(self, path: Path) -> bool:
        """Make the file, unless another does. One without content yet is alive, as any new one."""
        try:
            with path.open("x", encoding="utf-8") as file:
                json.dump(self._me, file)
        except FileExistsError:
            return False
        return True

    def _bury(self, path: Path, holder: dict) -> None:
        """Remove the file of a holder that is gone; one that came in its place is left alone."""
        grave = path.with_name(f".{path.name}.{self._me['id']}.gone")
        try:
            os.rename(path, grave)
        except FileNotFoundError:
            return
        if self._holder(grave) != holder:
            with suppress(OSError):  # a third one was quicker, or the file system has no links
                os.link(grave, path)
        grave.unlink()

    def _touch(self, path: Path, over: threading.Event) -> None:
        while not over.wait(self._beat):
            try:
                if self._holder(path) == self._me:
                    os.utime(path)
            except OSError:  # a folder that cannot be seen for a while
                continue

    def _gone(self, path: Path, holder: dict) -> bool:
        if holder.get("host") == self._me["host"] and not _runs(holder.get("process")):
            return True
        try:
            return self._now() - path.stat().st_mtime > self._patience
        except FileNotFoundError:
            return True

    def _now(self) -> float:
        """The time by the clock of the file system, which may not be this machine's."""
        probe = self._folder / f".{self._me['id']}.now"
        probe.write_bytes(b"")
        now = probe.stat().st_mtime
        probe.unlink()
        return now

    @staticmethod
    def _holder(path: Path) -> dict | None:
        """Who holds a piece; nobody where there is no file, an unknown one where it is damaged."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _runs(process: object) -> bool:
    """Whether a process of this machine has not ended."""
    if not isinstance(process, int) or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True
