"""What the user sees: messages on stderr, results on stdout, a bar on a terminal."""

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape

from undirected.core.errors import UndirectedError

# Names come from the user: `:train:` in one is no emoji, and a number in it no thing to colour.
note = Console(stderr=True, highlight=False, emoji=False)
out = Console(highlight=False, emoji=False)


class Interrupted(UndirectedError):
    """Work that the user stopped by Ctrl-C; the message says how to go on with it."""


def be_silent() -> None:
    """Say nothing but errors: another process of the same run speaks for all."""
    note.quiet = out.quiet = True


def say(text: str) -> None:
    """A line for the user."""
    note.print(escape(text), soft_wrap=True)


def complain(text: str) -> None:
    """An error for the user."""
    note.quiet = False
    note.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def result(summary: dict[str, Any], as_json: bool, lines: Sequence[Any] | None = None) -> None:
    """The outcome of a command: one JSON object, or readable lines and what else Rich can print."""
    if as_json and not out.quiet:
        out.file.write(json_text(summary) + "\n")  # to nowhere where standard output is closed
        return
    for line in lines if lines is not None else [f"{k}: {v}" for k, v in summary.items()]:
        if isinstance(line, str):
            out.print(escape(line), soft_wrap=True)
        else:
            out.print(line)


def json_text(summary: dict[str, Any]) -> str:
    """One JSON object, with null for numbers that JSON does not have."""
    try:
        return json.dumps(summary, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(summary), default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    """The value with null for numbers that JSON does not have: NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def score_in_words(score: str) -> str:
    """The name of a score as a reader has it."""
    words = score.replace("_", " ").replace("held out", "held-out")
    return words.replace("log likelihood", "log-likelihood").replace("pseudo log", "pseudo-log")


class Bar:
    """A progress bar with rate and time left on a terminal, a line every few seconds elsewhere.

    Args:
        title: what is done.
        unit: what is counted.
        told: whether there are lines where there is no terminal.
    """

    def __init__(self, title: str, unit: str = "steps", told: bool = True):
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
        )

        self.title, self.unit, self.told = title, unit, told
        self._said = time.monotonic()
        self._first: tuple[float, float] | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[detail]}"),
            console=note,
            disable=not note.is_terminal,
        )
        self._task = self._progress.add_task(title, total=None, rate="", left="", detail="")

    def update(self, done: float, total: float, rate: float = 0.0, detail: str = "") -> None:
        """Show how far the work is."""
        speed = f"{rate:{',.0f' if rate >= 10 else '.2g'}} {self.unit}/s" if rate else ""
        left = self._left(done, total)
        self._progress.update(
            self._task, completed=done, total=total, rate=speed, left=left, detail=detail
        )
        due = time.monotonic() - self._said > 5 or done >= total > 0
        if due and self.told and not note.is_terminal:
            self._said = time.monotonic()
            parts = [f"{self.title}: {done:,.0f} of {total:,.0f} {self.unit}", speed, detail, left]
            say(", ".join(part for part in parts if part))

    def _left(self, done: float, total: float) -> str:
        """The time that is left, by the speed since the first part was done.

        The first part is not counted, because it waits for programs to be compiled.
        """
        now = time.monotonic()
        if self._first is None and done > 0:
            self._first = now, done
        began, before = self._first or (now, 0.0)
        if not before < done < total:
            return ""
        seconds = round((total - done) * (now - began) / (done - before))
        return f"{seconds} s left" if seconds < 120 else f"{seconds // 60} min left"

    @property
    def teller(self) -> Any:
        """`update` where anyone sees it, else None: who is not asked need not stop to tell."""
        return self.update if note.is_terminal or self.told else None

    @contextmanager
    def running(self) -> Iterator["Bar"]:
        """Show the bar while the block runs."""
        with self._progress:
            yield self
