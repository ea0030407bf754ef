"""The errors a user can meet: each message says what was got, what was wanted, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import Any


class UndirectedError(ValueError):
    """The base of the library's own errors, a `ValueError`.

    Each message says what was got, what was wanted, and what to do.

    Example:
        >>> import undirected as un
        >>> try:
        ...     un.Ising.create("ten")
        ... except un.UndirectedError as error:
        ...     print(str(error)[:24])
        Ising.create: got 'ten';
    """


class UnsupportedFactor(UndirectedError):
    """An algorithm met a factor group or a kind of variable it cannot handle."""


class TooLarge(UndirectedError):
    """An exact answer would take more memory than is allowed; an approximate one may be asked."""


class NotFinite(UndirectedError):
    """A quantity became NaN or infinite."""


class BadFile(UndirectedError):
    """A file is corrupt, truncated, of an unknown version or of the wrong shape."""


class DataNotFound(FileNotFoundError):
    """A data set is neither in the data folder nor in the cache and could not be downloaded."""


def check_options(caller: str, got: Iterable[str], known: Iterable[str]) -> None:
    """Refuse settings that are none, with the nearest that there is or all of them."""
    known = sorted(known)
    for name in sorted(set(got) - set(known)):
        near = get_close_matches(name, known, 1) or [k for k in known if name in SHORT.get(k, ())]
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise UndirectedError(f"{caller}: no setting is called {name!r}; {hint}")


SHORT = {"learning_rate": ("lr",), "batch": ("batch_size",), "hidden": ("n_hidden",)}
"""What settings are called elsewhere."""


def check_offers(caller: str, what: str, value: Any, such_as: str, *methods: str) -> None:
    """Refuse what lacks a method, and a class where one of its instances is wanted."""
    if isinstance(value, type) or not all(hasattr(value, method) for method in methods):
        raise UndirectedError(f"{caller}: {what} is {value!r:.60}; pass one such as {such_as}")


def shape_of(caller: str, name: str, value: Any, axes: int | None = None) -> tuple[int, ...]:
    """The shape of an array of real numbers; all else and other numbers of axes are refused."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        raise UndirectedError(
            f"{caller}: {name} is {value!r:.40}; pass an array, such as jnp.asarray({name}, float)"
        )
    if getattr(value.dtype, "kind", "f") in "biuOSU":
        raise UndirectedError(
            f"{caller}: {name} holds {value.dtype}, which cannot be learned or tempered; pass "
            f"jnp.asarray({name}, float)"
        )
    if axes is not None and len(shape) != axes:
        raise UndirectedError(f"{caller}: {name} has shape {shape}; it must be {axes}-dimensional")
    return shape


def check_counts(caller: str, least: int = 1, /, **counts: Any) -> list[int]:
    """Refuse numbers that are not whole, or are below the least. Those of NumPy become Python's,
    which compiled functions take for sizes.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise UndirectedError(
                f"{caller}: {name} is {value!r:.40}; pass a whole number from {least}"
            )
    return [int(value) for value in counts.values()]


def kind_told(got: Any) -> str:
    """What something is, for an error about its kind."""
    return f"the class {got.__name__}" if isinstance(got, type) else f"a {type(got).__name__}"


def instead_of(verb: str, got: Any, wanted: str) -> str:
    """What to do where `got` is no model; what holds one has it inside, or has the verb itself."""
    inside = next((n for n in ("model", "model_", "rbm_", "potts") if hasattr(got, n)), None)
    if isinstance(got, type) or inside is None:
        return f"pass {wanted}"
    own = f"call its own method {verb}, or " if callable(getattr(got, verb, None)) else ""
    return f"{own}pass the model that it holds as its `{inside}`"
