"""The pipeline of Section 4.2 on Fashion-MNIST: features of clothes, learned with tempered runs."""

from typing import Any

import numpy as np

from undirected import data
from undirected.experiments.claims import Ahead, Claim, Within
from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.papers.tempered._images import (
    FULL,
    QUICK,
    SMOKE,
    Task,
    run_task,
    standardise,
)

TITLE = "Gaussian RBM features and an RBM on Fashion-MNIST (the pipeline of Section 4.2)"
CONFIG: dict[str, dict[str, Any]] = {"smoke": SMOKE, "quick": QUICK, "full": FULL}
CLAIMS = [
    Claim(
        "Above Gaussian features, tempered transitions raise the test log-probability.",
        "−598.58 against −611.08 (on NORB)",
        [
            Ahead(
                "Fashion-MNIST", "test log-probability of the features (nats)", "Trans-SAP", "SAP"
            ),
        ],
    ),
    Claim(
        "These log-probabilities are known: forward and reverse AIS meet within a nat.",
        "not looked at",
        [
            Within("Fashion-MNIST", "log Z, reverse minus forward (nats)", method, 1.0)
            for method in ("SAP", "Trans-SAP")
        ],
    ),
    Claim(
        "Tempered transitions lower the classification error.",
        "8.4 % against 8.7 % (on NORB)",
        [Ahead("Fashion-MNIST", "classification error (%)", "Trans-SAP", "SAP")],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Test log-probability of the features and classification error of every learner."""
    return run_seeds(config, [seed], context)[0]


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds, above the features that the first has learned."""
    train, test = grey_images(config, seeds[0])
    assert train.y is not None
    assert test.y is not None
    mean, scale = train.x.mean(0), train.x.std(0) + 0.05
    x, test_x = standardise(train.x[: config["train"]], test.x[: config["test"]])
    task = Task(
        "Fashion-MNIST",
        x,
        train.y[: len(x)],
        test_x,
        test.y[: len(test_x)],
        (28, 28),
        lambda v: np.clip(v * scale + mean, 0, 1),
        {},
    )
    return run_task(task, config, seeds, context)


def grey_images(config: dict[str, Any], seed: int) -> tuple[data.Split, data.Split]:
    """Training and test images, grey values from 0 to 1; `valid` training images are set aside."""
    found = data.hold_out(data.fashion_mnist(), config["valid"], seed)
    train, test = (
        data.Split(part.x.astype(np.float32) / 255, part.y) for part in (found.train, found.test)
    )
    return train, test
