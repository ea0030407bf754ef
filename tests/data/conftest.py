"""No test of this room touches the user's cache or leaves this machine."""

import hashlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from undirected.data import cache, download
from undirected.data.download import Source


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the real one is out of reach."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(cache, "cache_folder", lambda: folder)
    monkeypatch.setattr(download, "cache_folder", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def no_outside_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this machine answers: every other host is refused before a socket is opened."""
    retrieve = download._retrieve

    def guarded(url: str, source: Source) -> Path:
        if not url.startswith("http://127.0.0.1:"):
            from requests import ConnectionError

            raise ConnectionError(f"tests do not reach {url}")
        return retrieve(url, source)

    monkeypatch.setattr(download, "_retrieve", guarded)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that UNDIRECTED_DATA names."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    return folder


@pytest.fixture
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE, raising=False)


class Site:
    """A web server on the loopback address: `publish` puts a file there and gives its Source."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self.requests: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                if self.path not in site.files:
                    self.send_error(404)
                    return
                body, claimed = site.files[self.path]
                self.send_response(200)
                self.send_header("Content-Length", str(claimed))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def publish(self, file: str, content: bytes, *, cut: int = 0, checksum: bool = True) -> Source:
        """Serve a file; `cut` bytes of it never arrive."""
        self.files[f"/{file}"] = (content[: len(content) - cut], len(content))
        md5 = f"md5:{hashlib.md5(content).hexdigest()}" if checksum else None
        return Source(file, (self.url + file,), len(content) / 1e6, md5)


@pytest.fixture
def site():
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


@pytest.fixture
def unreachable(site: Site) -> Callable[[str], Source]:
    """Make a Source whose only mirror is a loopback port nobody listens on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return lambda file: Source(file, (f"http://127.0.0.1:{port}/{file}",), 12.3, "md5:" + "0" * 32)
