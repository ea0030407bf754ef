"""Names of models and methods, checked before anything is read."""

from difflib import get_close_matches

from undirected.core.errors import UndirectedError

MODELS = ("mixture-rbm", "rbm", "ising", "mixed", "deep", "semi-restricted", "gaussian")
MODELS += ("nonnegative", "potts", "conditional")
METHODS = ("pcd", "cd", "pl", "bp", "exact", "query-training")

QUERY_METHODS = ("bp", "mf", "gibbs", "exact", "map")
EVALUATE_METHODS = ("exact", "ais")


def check_choices(model: str, method: str) -> None:
    """Refuse unknown names of a model or a method, with the nearest one that there is."""
    check_choice("fit: model", model, MODELS)
    check_choice("fit: method", method, METHODS)


def check_choice(what: str, got: object, known: tuple[str, ...]) -> None:
    """Refuse a name that is not known; "auto" always is."""
    if got in (None, "auto", *known):
        return
    near = get_close_matches(str(got), known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UndirectedError(f"{what} '{got}' is unknown; {hint}pass one of {', '.join(known)}")
