"""The clock of engines that have to be done by a deadline, which is a time of `time.monotonic`."""

import time


class OutOfTime(Exception):
    """The deadline passed before the answer was complete."""


def check_time(deadline: float) -> None:
    """Raises OutOfTime after the deadline. A look takes less than a microsecond."""
    if time.monotonic() > deadline:
        raise OutOfTime
