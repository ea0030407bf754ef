"""Work that tells how far it is."""

from undirected.core.progress import part_of, shares


def test_parts_of_unequal_length_count_through():
    told = []
    first, second = shares(lambda *now: told.append(now), 10, 30)
    first(1, 2)
    first(2, 2)
    second(1, 3)
    second(3, 3)
    assert told == [(5, 40), (10, 40), (20, 40), (40, 40)]
    assert shares(None, 1, 2) == [None, None]


def test_equal_parts_count_through():
    told = []
    part_of(lambda *now: told.append(now), 1, 2)(3, 10)
    assert told == [(13, 20)] and part_of(None, 0, 2) is None
