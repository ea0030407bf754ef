"""The explorer served on this machine: the page asks, the engine answers.

For models and networks that are too large for a page. Only 127.0.0.1 is listened on, and a
question counts only with the token of the address, from the page's own origin, to the machine's own
name. Nothing but the page and answers is given: no path of a request is ever opened, and nothing of
it is run.
"""

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain, Layout
from undirected.core.potentials import Status, lowered
from undirected.explorer.page import Explorer
from undirected.explorer.payload import harmonium_outline
from undirected.explorer.serve_network import (
    NETWORK_METHODS,
    BadQuestion,
    NetworkEngine,
    network_page,
)
from undirected.explorer.views import Subject, payload_of, subject_of
from undirected.tasks.query import answer_rows
from undirected.tasks.rows import has_columns

MOST_BYTES = 2**20
"""Length of a question."""
METHODS = ("bp", "mf", "gibbs")
"""For models with one layer of hidden units."""

Answer = Callable[[str, list[Any]], dict[str, Any]]


class Engine:
    """Answers of a model given values of its visible variables, None where one is not known."""

    def __init__(self, model: Any):
        self.model, self.layout = model, lowered("explore", model).layout
        self._one_at_a_time = threading.Lock()

    def __call__(self, method: str, visible: list[Any]) -> dict[str, Any]:
        units = unit_row(self.layout, visible)
        rows = self.model.to_table(units[None]) if has_columns(self.model) else units[None]
        with self._one_at_a_time:
            found = answer_rows(self.model, rows, method=method, seed=0)
        mean = np.asarray(found.values[0], float)
        variance = mean * (1 - mean)
        if found.std is not None:
            lines = self.layout.is_continuous[: len(mean)]
            variance = np.where(lines, np.asarray(found.std[0], float) ** 2, variance)
        settled = int(found.status[0]) == Status.CONVERGED
        return {"mean": mean.tolist(), "variance": variance.tolist(), "settled": settled}


def unit_row(layout: Layout, visible: list[Any]) -> np.ndarray:
    """A row over the visible units from values of the visible variables; refused where wrong."""
    blocks = [block for block in layout.blocks if block.visible]
    count = sum(block.variables for block in blocks)
    if len(visible) != count:
        raise BadQuestion(f"{len(visible)} values; wanted {count}")
    row, at = np.full(layout.n_visible, np.nan, np.float32), 0
    for block in blocks:
        for first in range(block.start, block.stop, block.width):
            value = visible[at]
            at += 1
            if value is None:
                continue
            row[first : first + block.width] = _units(block.domain, block.states, value, at - 1)
    return row


def _units(domain: Domain, states: int, value: Any, place: int) -> Any:
    """The units of one known variable."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e6:
        raise BadQuestion(f"value {place} is {value!r:.40}; wanted a number, or null")
    if domain is Domain.REAL or (domain is Domain.NONNEGATIVE and value >= 0):
        return value
    if domain is Domain.NONNEGATIVE or value != int(value) or not 0 <= value < states:
        raise BadQuestion(f"value {place} is {value}; wanted a state from 0 to {states - 1}")
    return value if domain is Domain.BINARY else np.arange(states) == int(value)


class Served:
    """A server of one model's page.

    Args:
        model: a model, a `TableModel`, a model folder or a network's `.uai` file.
        rows: a table whose rows can be loaded on the page.
        image: rows and columns of pixels.
        port: to listen on; 0 takes a free one.
    """

    def __init__(
        self, model: Any, rows: Any = None, image: tuple[int, int] | None = None, port: int = 0
    ):
        subject = subject_of(model, image)
        payload, self.methods, self.engine = _asked(subject, rows)
        self.token = secrets.token_urlsafe(24)
        self.page = Explorer(payload).render(connect="'self'")
        self.http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self.http.daemon_threads = True

    @property
    def port(self) -> int:
        return self.http.server_address[1]

    @property
    def address(self) -> str:
        """Where the page is, with its token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def run(self) -> None:
        """Answer until `stop`, or until the user interrupts."""
        try:
            self.http.serve_forever(poll_interval=0.1)
        finally:
            self.http.server_close()

    def stop(self) -> None:
        """Make `run` return."""
        self.http.shutdown()


def _asked(subject: Subject, rows: Any) -> tuple[dict[str, Any], tuple[str, ...], Answer]:
    """What the page of a model is told, the methods it may ask for, and what answers."""
    p = lowered("explore", subject.model)
    outline = harmonium_outline(p)
    if outline is not None:
        payload = payload_of(subject, rows=rows, body={**outline, "methods": list(METHODS)})
        return payload, METHODS, Engine(subject.model)
    if p.layout.is_continuous.any():
        raise UndirectedError(
            f"explore: --serve answers models with one layer of hidden units, and networks of "
            f"discrete variables, not a {type(subject.model).__name__}; use un.query"
        )
    return network_page(subject, p), NETWORK_METHODS, NetworkEngine(p)


def check_request(
    headers: Mapping[str, str] | Message, port: int, *, question: bool
) -> tuple[int, str] | None:
    """Why a request is refused, as a status and a sentence; None where it is not.

    The host guards against names that are made to point here, the origin against other pages.
    """
    names = f"127.0.0.1:{port}", f"localhost:{port}"
    if headers.get("Host") not in names:
        return 403, "This server answers to 127.0.0.1 only."
    origin = headers.get("Origin")
    if question and origin not in [f"http://{name}" for name in names]:
        return 403, "Questions are taken from the page of this server only."
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return 403, "Other pages may not ask here."
    return None


def read_question(body: bytes, methods: tuple[str, ...] = METHODS) -> tuple[str, list[Any]]:
    """Method and values of a question; refused where it is not one."""
    try:
        found = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadQuestion(f"not JSON: {error!s:.100}") from error
    if not isinstance(found, dict) or set(found) != {"method", "visible"}:
        raise BadQuestion("wanted an object with method and visible")
    if found["method"] not in methods or not isinstance(found["visible"], list):
        raise BadQuestion(f"wanted one of {', '.join(methods)}, and a list of values")
    return found["method"], found["visible"]


def _handler(served: "Served") -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """GET / with the token gives the page, POST /answer with it an answer; nothing else."""

        server_version, sys_version = "undirected", ""
        timeout = 30

        def do_GET(self) -> None:
            refused = check_request(self.headers, served.port, question=False)
            asked = urlsplit(self.path)
            token = parse_qs(asked.query).get("token", [""])[0]
            if refused:
                self._send(refused[0], refused[1])
            elif asked.path != "/":
                self._send(404, "There is nothing here.")
            elif not _same(token, served.token):
                self._send(403, "The token of the address is missing or wrong.")
            else:
                self._send(200, served.page, "text/html")

        def do_POST(self) -> None:
            refused = check_request(self.headers, served.port, question=True)
            length = self.headers.get("Content-Length", "")
            if refused:
                self._send(refused[0], refused[1])
            elif self.path != "/answer":
                self._send(404, "There is nothing here.")
            elif not _same(self.headers.get("X-Token", ""), served.token):
                self._send(403, "The token is missing or wrong.")
            elif not (length.isascii() and length.isdecimal() and len(length) < 10):
                self._send(411, "The length of a question must be told.")
            elif int(length) > MOST_BYTES:
                self._send(413, f"A question has up to {MOST_BYTES} bytes.")
            else:
                self._answer(self.rfile.read(int(length)))

        def _answer(self, body: bytes) -> None:
            try:
                answer = served.engine(*read_question(body, served.methods))
            except (BadQuestion, UndirectedError) as error:
                self._send(400, str(error))
            else:
                self._send(200, json.dumps(answer, allow_nan=False), "application/json")

        def _send(self, status: int, text: str, kind: str = "text/plain") -> None:
            data = text.encode("utf-8")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed below the command line."""

    return Handler


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8"))
