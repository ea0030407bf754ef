import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from undirected.core.errors import UndirectedError
from undirected.data import corruption

SHAPE = (6, 5)
N = 30
CORRUPTIONS = {
    "flip": lambda x, key: corruption.flip(x, 0.3, key),
    "occlude": lambda x, key: corruption.occlude(x, SHAPE, 3, key, value=1.0),
    "drop": lambda x, key: corruption.drop(x, 0.3, key),
    "drop_patch": lambda x, key: corruption.drop_patch(x, SHAPE, 3, key),
    "drop_half": lambda x, key: corruption.drop_half(x, SHAPE, key),
}


@pytest.fixture(params=list(CORRUPTIONS))
def corrupt(request):
    return CORRUPTIONS[request.param]


def states(*batch: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 2, (*batch, N)).astype(np.float32)


@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_every_shape(corrupt, batch, key) -> None:
    x = states(*batch)
    spoilt, hit = jax.jit(corrupt)(x, key)
    assert spoilt.shape == hit.shape == x.shape
    assert hit.dtype == bool
    np.testing.assert_array_equal(np.where(hit, 0, spoilt), np.where(hit, 0, x))


def test_jit_changes_nothing(corrupt, key) -> None:
    x = states(4)
    for got, wanted in zip(jax.jit(corrupt)(x, key), corrupt(x, key), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_rows_and_keys_differ(corrupt) -> None:
    x = states(64)
    run = jax.jit(corrupt)
    _, first = run(x, jax.random.key(0))
    _, second = run(x, jax.random.key(1))
    assert (first != second).any()
    assert len(np.unique(first, axis=0)) > 1


def test_what_is_put_in_place_of_hit_entries(key) -> None:
    x = states(50)
    put = {"flip": 1 - x, "occlude": np.ones_like(x)}
    for name, spoil in CORRUPTIONS.items():
        spoilt, hit = jax.jit(spoil)(x, key)
        wanted = np.where(hit, put.get(name, np.nan), x)
        np.testing.assert_array_equal(spoilt, wanted)
        assert hit.any()


def test_integers_become_float32_and_float64_stays(corrupt, key, x64) -> None:
    assert corrupt(states(2).astype(np.uint8), key)[0].dtype == jnp.float32
    assert corrupt(states(2).astype(np.float64), key)[0].dtype == jnp.float64


def fits_rate(hit, rate: float) -> bool:
    """Two-sided binomial test at failure rate 1e-5; the seeds are fixed."""
    hits, total = int(np.sum(hit)), int(np.size(hit))
    return scipy.stats.binomtest(hits, total, rate).pvalue > 1e-5


@pytest.mark.parametrize("spoil", [corruption.flip, corruption.drop])
def test_rates(spoil, key) -> None:
    x = states(2000)
    traced = jax.jit(spoil)
    _, hit = traced(x, 0.1, key)
    assert fits_rate(hit, 0.1)
    assert not fits_rate(hit, 0.11)
    assert not traced(x, 0.0, key)[1].any()
    assert traced(x, 1.0, key)[1].all()
    np.testing.assert_array_equal(spoil(x, 0.1, key)[1], hit)


def corner_fit(hit, size: int) -> float:
    """The p-value of the patches' corners being uniform over every place where a patch fits."""
    corners = np.argmax(np.asarray(hit), axis=1)
    places = [r * SHAPE[1] + c for r in range(SHAPE[0] - size + 1) for c in range(5 - size + 1)]
    counts = np.bincount(corners, minlength=N)[places]
    assert counts.sum() == len(hit)
    return scipy.stats.chisquare(counts).pvalue


def test_patches_are_squares_at_uniform_places(key) -> None:
    """Fails by chance once in 1e5 seeds; the seed is fixed."""
    _, hit = corruption.occlude(states(12_000), SHAPE, 3, key)
    images = np.asarray(hit).reshape(-1, *SHAPE)
    assert (images.sum(axis=(1, 2)) == 9).all()
    assert (images.any(axis=2).sum(axis=1) == 3).all()
    assert (images.any(axis=1).sum(axis=1) == 3).all()
    assert corner_fit(hit, 3) > 1e-5


def test_the_corner_check_finds_a_place_never_used(key) -> None:
    _, hit = corruption.occlude(states(12_000), SHAPE, 3, key)
    in_last_row = np.asarray(hit).reshape(-1, *SHAPE)[:, -1].any(axis=1)
    assert corner_fit(hit[~in_last_row], 3) < 1e-5


def test_rows_and_columns_of_a_patch_are_drawn_apart(key) -> None:
    """On a square image, where one draw used for both would put all patches on the diagonal.

    Fails by chance once in 1e5 seeds; the seed is fixed.
    """
    _, hit = corruption.occlude(np.zeros((8000, 36)), (6, 6), 3, key)
    top, left = np.divmod(np.argmax(np.asarray(hit), axis=1), 6)
    places = np.histogram2d(top, left, bins=[range(5), range(5)])[0]
    assert places.sum() == 8000
    assert scipy.stats.chisquare(places.ravel()).pvalue > 1e-5
    assert scipy.stats.chisquare((places * np.eye(4)).ravel() + 1e-9).pvalue < 1e-5


def test_a_patch_as_large_as_the_image(key) -> None:
    _, hit = corruption.drop_patch(np.zeros((3, 16)), (4, 4), 4, key)
    assert hit.all()


def test_channels_are_covered_alike(key) -> None:
    _, hit = corruption.occlude(np.zeros((7, 2 * N)), (2, *SHAPE), 2, key)
    np.testing.assert_array_equal(hit[:, :N], hit[:, N:])
    assert (hit.sum(axis=1) == 8).all()


@pytest.mark.parametrize(
    ("side", "rows", "columns"),
    [
        ("left", slice(None), slice(0, 2)),
        ("right", slice(None), slice(3, 5)),
        ("top", slice(0, 3), slice(None)),
        ("bottom", slice(3, 6), slice(None)),
    ],
)
def test_halves(side, rows, columns, key) -> None:
    _, hit = corruption.drop_half(states(4), SHAPE, key, sides=[side])
    wanted = np.zeros(SHAPE, bool)
    wanted[rows, columns] = True
    np.testing.assert_array_equal(hit, np.tile(wanted.ravel(), (4, 1)))


def test_all_sides_are_drawn(key) -> None:
    _, hit = corruption.drop_half(states(100), SHAPE, key)
    assert len(np.unique(hit, axis=0)) == 4


def test_binarise_draws_with_the_grey_value(key) -> None:
    grey = np.tile(np.array([0, 51, 255], np.uint8), (20_000, 1))
    drawn = np.asarray(jax.jit(corruption.binarise)(grey, key))
    assert drawn.dtype == np.float32
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert (drawn[:, 0] == 0).all()
    assert (drawn[:, 2] == 1).all()
    assert fits_rate(drawn[:, 1], 51 / 255)
    assert not fits_rate(drawn[:, 1], 51 / 256 * 1.1)
    sixteenths = corruption.binarise(np.full((9, 4), 16, np.uint8), key, maximum=16)
    assert (sixteenths == 1).all()


def test_threshold() -> None:
    assert corruption.threshold(np.array([0, 127, 128, 255], np.uint8)).tolist() == [0, 0, 1, 1]
    assert corruption.threshold(np.array([0.2, 0.6]), level=0.5).tolist() == [0, 1]


@pytest.mark.parametrize("rate", [-0.1, 1.5, 20])
def test_bad_rates(rate, key) -> None:
    with pytest.raises(UndirectedError, match=f"rate is {rate}; pass a probability"):
        corruption.flip(states(2), rate, key)


def test_bad_shapes(key) -> None:
    with pytest.raises(UndirectedError, match=r"\(28, 28\) does not fit states of 30 units"):
        corruption.occlude(states(2), (28, 28), 3, key)
    with pytest.raises(UndirectedError, match=r"\(30,\) does not fit"):
        corruption.occlude(states(2), (30,), 3, key)
    for size in (0, 6):
        with pytest.raises(UndirectedError, match=f"{size}x{size} patch does not fit a 6x5 image"):
            corruption.drop_patch(states(2), SHAPE, size, key)
    with pytest.raises(UndirectedError, match=r"sides \['middle'\]; pass some of left"):
        corruption.drop_half(states(2), SHAPE, key, sides=["middle"])
