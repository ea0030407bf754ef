"""Learning inside an experiment."""

from functools import wraps
from typing import Any

from undirected import learning


@wraps(learning.fit)
def fit(*args: Any, **kwargs: Any) -> learning.FitResult:
    """As `learning.fit`, but Ctrl-C ends the experiment: a half-learned model is not a result."""
    result = learning.fit(*args, **kwargs)
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result
