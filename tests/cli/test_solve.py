"""Time that `undirected solve` keeps to write its answer."""

from undirected.cli.solve import closing_time


def test_large_answers_and_busy_machines_get_more_time_to_write() -> None:
    small = closing_time(10, 0.5)
    assert 0.3 <= small < 0.5
    assert closing_time(100_000, 0.5) > small + 1.0
    assert closing_time(10, 10.5) > small + 1.0
