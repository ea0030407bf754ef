"""Image sets: MNIST, Fashion-MNIST, Caltech-101 silhouettes, Frey faces and small NORB."""

from pathlib import Path

import numpy as np

from undirected.core.errors import BadFile
from undirected.data import sources
from undirected.data.cache import Archive, Arrays, obtain, packed
from undirected.data.dataset import Dataset, Split, no_rows
from undirected.data.download import Source, fetch
from undirected.data.formats import read_idx, read_mat, read_norb


def mnist() -> Dataset:
    """MNIST: 60,000 + 10,000 handwritten digits, 28x28 grey, labels 0..9."""
    return _idx_set(
        "mnist",
        sources.MNIST,
        "handwritten digits, 28x28 grey",
        "LeCun, Bottou, Bengio, Haffner, Proc. IEEE 1998",
    )


def fashion_mnist() -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing, 28x28 grey, labels 0..9."""
    return _idx_set(
        "fashion_mnist",
        sources.FASHION_MNIST,
        "pieces of clothing, 28x28 grey",
        "Xiao, Rasul, Vollgraf, arXiv:1708.07747, 2017",
    )


def _idx_set(name: str, files: tuple[Source, ...], description: str, citation: str) -> Dataset:
    archive = obtain(f"{name}.npz", lambda: _from_idx(*fetch(f"{name}.npz", files)))
    train = archive.split("train", 28, 28, labels=True)
    test = archive.split("test", 28, 28, labels=True)
    return Dataset(name, train, no_rows(train), test, description, citation, image_shape=(28, 28))


def _from_idx(train_x: Path, train_y: Path, test_x: Path, test_y: Path) -> Arrays:
    return {
        "x_train": read_idx(train_x),
        "y_train": read_idx(train_y),
        "x_test": read_idx(test_x),
        "y_test": read_idx(test_y),
    }


def caltech101_silhouettes() -> Dataset:
    """Caltech-101 silhouettes: 4,100 / 2,264 / 2,307 binary 28x28 outlines of 101 classes.

    Pixels are row-major and the object is 1; the published file, and the archive, are column-major
    with object 0. A patch set to 1 in the published polarity is a patch set to 0 here. Labels are
    0..100 (published: 1..101) and index `extras["class_names"]`.
    """
    file = "caltech101_silhouettes_28.npz"
    archive = obtain(file, lambda: _from_caltech(*fetch(file, sources.CALTECH)))
    train, valid, test = (_upright(archive, part) for part in ("train", "valid", "test"))
    return Dataset(
        "caltech101_silhouettes",
        train,
        valid,
        test,
        "silhouettes of objects, 28x28 binary, object = 1",
        "Marlin, Swersky, Chen, de Freitas, AISTATS 2010",
        image_shape=(28, 28),
        extras={"class_names": archive.array("classnames", None, of=np.str_)},
    )


def _upright(archive: Archive, part: str) -> Split:
    """Turn column-major rows of background 1 into row-major rows of object 1."""
    x = archive.split(part, 784, binary=True).x
    images = 1 - x.reshape(-1, 28, 28).transpose(0, 2, 1)
    return Split(images.reshape(-1, 784), archive.array(f"y_{part}", len(x)) - 1)


def _from_caltech(path: Path) -> Arrays:
    content = read_mat(path)
    arrays = {"classnames": np.array([str(name[0]) for name in content["classnames"].ravel()])}
    for part, published in (("train", "train"), ("valid", "val"), ("test", "test")):
        arrays |= packed(f"x_{part}", content[f"{published}_data"])
        arrays[f"y_{part}"] = content[f"{published}_labels"].ravel().astype(np.uint8)
    return arrays


def frey_faces() -> Dataset:
    """Frey faces: 1,572 + 393 frames of one face, 28x20 grey, the fixed split AdVIL uses."""
    archive = obtain("frey_faces.npz", lambda: _from_frey(*fetch("frey_faces.npz", sources.FREY)))
    frames = Split(archive.array("x", None, 28, 20).reshape(-1, 560))
    train = frames.take(np.sort(archive.array("train_idx", None, of=np.integer)))
    test = frames.take(np.sort(archive.array("test_idx", None, of=np.integer)))
    return Dataset(
        "frey_faces",
        train,
        no_rows(train),
        test,
        "frames of one face from a video, 28x20 grey",
        "Roweis, Saul, Science 2000 (images by B. Frey)",
        image_shape=(28, 20),
    )


# Bit i is 1 where frame i is a test frame.
_FREY_TEST = """
0200400040a960211056080808402d045226401405110b58100061038140040068048000c0000008011c650002
90000480a14904b00092100459284000801010c08049005012010200023234041020600f48220092a09203b271
04088000c0267804283428c000080c05860880e20300160448801210004cf101404000840020c0103000080020
08008080b00929048190102421918019000801040c200ac108011052020500100024010805909a004001020185
b810090090200002c1002400a1350000000230001620044808000030094001084044e443ce6010460080051890
4050084a640010224208470008455004004210cc38
"""


def _from_frey(path: Path) -> Arrays:
    faces = read_mat(path).get("ff")
    if faces is None or faces.shape != (560, 1965):
        shape = None if faces is None else faces.shape
        raise BadFile(f"{path}: 'ff' has shape {shape}, wanted (560, 1965); delete or replace it")
    bits = np.frombuffer(bytes.fromhex(_FREY_TEST), np.uint8)
    is_test = np.unpackbits(bits, count=1965).astype(bool)
    return {
        "x": faces.T.astype(np.uint8).reshape(-1, 28, 20),
        "train_idx": np.flatnonzero(~is_test).astype(np.int32),
        "test_idx": np.flatnonzero(is_test).astype(np.int32),
    }


def small_norb() -> Dataset:
    """Small NORB: 24,300 + 24,300 stereo pairs of toys, 2x96x96 grey, labels 0..4.

    `extras["info_train"]` and `["info_test"]` (N, 4) hold instance, elevation, azimuth, lighting.
    """
    archive = obtain(
        "small_norb.npz", lambda: _from_norb(*fetch("small_norb.npz", sources.SMALL_NORB))
    )
    train = archive.split("train", 2, 96, 96, labels=True)
    test = archive.split("test", 2, 96, 96, labels=True)
    return Dataset(
        "small_norb",
        train,
        no_rows(train),
        test,
        "stereo pairs of toy animals, humans, planes, trucks and cars, 96x96 grey",
        "LeCun, Huang, Bottou, CVPR 2004 (research use; may not be sold)",
        image_shape=(2, 96, 96),
        extras={
            "info_train": archive.array("info_train", len(train), 4, of=np.integer),
            "info_test": archive.array("info_test", len(test), 4, of=np.integer),
        },
    )


def _from_norb(*paths: Path) -> Arrays:
    keys = ("x_train", "y_train", "info_train", "x_test", "y_test", "info_test")
    return {key: read_norb(path) for key, path in zip(keys, paths, strict=True)}
