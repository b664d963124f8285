"""The small PyTorch models that several labs share, and their data as tensors.

A training step takes milliseconds on one core. The labs teach training loops.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from worldsize.data import Dataset

CLASSES, SIDE = 10, 28


def small_cnn(seed: int | None = None, width: int = 8) -> nn.Sequential:
    """Return two convolutions and a linear layer: images [n, 1, 28, 28] to logits [n, 10].

    9,098 parameters at width 8. `seed` fixes the weights and leaves torch's own generator as it was; None draws them from that
    generator.
    """
    with _seeded(seed):
        return nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(2 * width * (SIDE // 4) ** 2, CLASSES),
        )  # fmt: skip


def strided_cnn(seed: int | None = None, width: int = 8) -> nn.Sequential:
    """Return two convolutions of stride 2 and a linear layer, for many runs: images [n, 1, 14, 14] to logits [n, 10].

    3,818 parameters at width 8; a step takes a tenth of `small_cnn`'s time on images of twice the side. Seeded as `small_cnn` is.
    """
    with _seeded(seed):
        return nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(2 * width * 4 * 4, CLASSES),
        )  # fmt: skip


def mlp(sizes: list[int], seed: int | None = None) -> nn.Sequential:
    """Return linear layers with a ReLU between each two, such as `mlp([784, 64, 10])`.

    Seeded as `small_cnn` is. Raises ValueError for fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"mlp: expected at least two sizes, for input and output, got {sizes!r}")

    layers: list[nn.Module] = []
    with _seeded(seed):
        for pair in pairwise(sizes):
            layers += [nn.Linear(*pair), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def tensors(dataset: Dataset, train: int | None = None, test: int | None = None) -> tuple[torch.Tensor, ...]:
    """Return, for the models, a data set's train images, train labels, test images, test labels as tensors.

    The first `train` and `test` of each. Images float32 [n, channels, height, width] with mean 0 and standard deviation 1 over
    the selected training images; labels int64 [n].
    """
    seen, unseen = _images(dataset.train_images[:train]), _images(dataset.test_images[:test])
    mean, std = seen.mean(), seen.std()

    train_labels = torch.as_tensor(dataset.train_labels[:train])
    test_labels = torch.as_tensor(dataset.test_labels[:test])
    return (seen - mean) / std, train_labels, (unseen - mean) / std, test_labels


def flat(values: list[torch.Tensor]) -> torch.Tensor:
    """Return a model's parameters or gradients as one vector, for labs to compare or to send.

    Shape [sum of sizes].
    """
    return torch.cat([value.detach().reshape(-1) for value in values])


def _images(images: np.ndarray) -> torch.Tensor:
    x = torch.as_tensor(images).to(torch.float32) / 255
    if x.ndim == 3:
        return x.unsqueeze(1)
    return x.permute(0, 3, 1, 2).contiguous()


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Draw a model from `seed` inside, and leave torch's own generator as it was; with None, draw from that generator."""
    if seed is None:
        yield
        return

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
