"""Where each set is published, how large its files are, and their MD5 where one is known."""

from undirected.data.download import Source

Row = tuple[str, float, str | None]


def _published(bases: tuple[str, ...], *rows: Row, prefix: str = "") -> tuple[Source, ...]:
    """Name files (name, megabytes, MD5) that lie under each of the mirrors `bases`."""
    return tuple(
        Source(
            prefix + file,
            tuple(base + file for base in bases),
            megabytes,
            None if md5 is None else f"md5:{md5}",
        )
        for file, megabytes, md5 in rows
    )


MNIST = _published(
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    ("train-images-idx3-ubyte.gz", 9.9, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("train-labels-idx1-ubyte.gz", 0.1, "d53e105ee54ea40749a09fcbcd1e9432"),
    ("t10k-images-idx3-ubyte.gz", 1.6, "9fb629c4189551a2d022fa330f9573f3"),
    ("t10k-labels-idx1-ubyte.gz", 0.1, "ec29112dd5afa0611ce80d1b7f02629c"),
)

FASHION_MNIST = _published(
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    ("train-images-idx3-ubyte.gz", 26.4, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    ("train-labels-idx1-ubyte.gz", 0.1, "25c81989df183df01b3e8a0aad5dffbe"),
    ("t10k-images-idx3-ubyte.gz", 4.4, "bef4ecab320f06d8554ea6380940ec79"),
    ("t10k-labels-idx1-ubyte.gz", 0.1, "bb300cfdad3c16e7a12a480ee83cd310"),
    prefix="fashion-",  # the names are MNIST's
)

CALTECH = _published(
    ("https://people.cs.umass.edu/~marlin/data/",),
    ("caltech101_silhouettes_28_split1.mat", 1.0, "4483e9c14b188fd09937f9ea6f9ea777"),
)

FREY = _published(
    ("https://cs.nyu.edu/~roweis/data/", "http://www.cs.nyu.edu/~roweis/data/"),
    ("frey_rawface.mat", 1.0, None),
)

SMALL_NORB = _published(
    ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",),
    (
        "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz",
        130,
        "66054832f9accfe74a0f4c36a75bc0a2",
    ),
    (
        "smallnorb-5x46789x9x18x6x2x96x96-training-cat.mat.gz",
        0.1,
        "23c8b86101fbf0904a000b43d3ed2fd9",
    ),
    (
        "smallnorb-5x46789x9x18x6x2x96x96-training-info.mat.gz",
        0.1,
        "51dee1210a742582ff607dfd94e332e3",
    ),
    (
        "smallnorb-5x01235x9x18x6x2x96x96-testing-dat.mat.gz",
        130,
        "e4ad715691ed5a3a5f138751a4ceb071",
    ),
    (
        "smallnorb-5x01235x9x18x6x2x96x96-testing-cat.mat.gz",
        0.1,
        "5aa791cd7e6016cf957ce9bdb93b8603",
    ),
    (
        "smallnorb-5x01235x9x18x6x2x96x96-testing-info.mat.gz",
        0.1,
        "a9454f3864d7fd4bb3ea7fc3eb84924e",
    ),
)

OCR_WORDS = _published(
    ("https://ai.stanford.edu/~btaskar/ocr/", "http://ai.stanford.edu/~btaskar/ocr/"),
    ("letter.data.gz", 1.5, None),
)

_MADE = "https://raw.githubusercontent.com/mgermain/MADE/master/datasets/"
_MADE_RELEASE = "https://github.com/mgermain/MADE/releases/download/ICML2015/"
NADE = {
    "adult": _published((_MADE,), ("adult.npz", 16, None)),
    "connect4": _published((_MADE,), ("connect4.npz", 34, None)),
    "dna": _published((_MADE,), ("dna.npz", 2, None)),
    "mushrooms": _published((_MADE,), ("mushrooms.npz", 4, None)),
    "nips": _published((_MADE,), ("nips.npz", 4, None)),
    "ocr_letters": _published((_MADE,), ("ocr_letters.npz", 27, None)),
    "rcv1": _published((_MADE_RELEASE,), ("rcv1.npz", 120, None)),
    "web": _published((_MADE,), ("web.npz", 60, None)),
}
