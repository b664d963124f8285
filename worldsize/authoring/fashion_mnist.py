"""Maker of `datasets/fashion-mnist.npz` from Debian's package: `python -m worldsize.authoring.fashion_mnist`.

The subset is the first 1,000 training and the first 200 test images of every class, in the source's order, so it is balanced
and needs no seed. Pixels and labels are unchanged. The sources are checked by the sha256 of their uncompressed bytes, as Debian
packs the same bytes with another gzip header.

The data: Xiao, Rasul and Vollgraf, "Fashion-MNIST" (arXiv:1708.07747), package `dataset-fashion-mnist`.
The format: MNIST's idx (two zero bytes, type, number of dimensions, big-endian 32-bit lengths, the values).
"""

import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np

from worldsize.data import CHECKOUT_FOLDER, FASHION_MNIST

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
TRAIN_PER_CLASS, TEST_PER_CLASS = 1000, 200
SOURCES_SHA256 = {
    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


def read_source(folder: Path, name: str) -> np.ndarray:
    """Return the array in one of Debian's files of Fashion-MNIST. Raises ValueError unless its bytes are the published ones."""
    raw = gzip.decompress((folder / name).read_bytes())
    got = hashlib.sha256(raw).hexdigest()
    if got != SOURCES_SHA256[name]:
        raise ValueError(
            f"{folder / name}: expected sha256 {SOURCES_SHA256[name]} of the uncompressed bytes, got {got}. "
            "Install Debian's package dataset-fashion-mnist and read from its folder."
        )

    dimensions = raw[3]
    lengths = np.frombuffer(raw, ">u4", count=dimensions, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(lengths)


def first_of_each_class(labels: np.ndarray, per_class: int) -> np.ndarray:
    """Return the indices of the first `per_class` Fashion-MNIST examples of every class, ascending."""
    first = [np.flatnonzero(labels == one)[:per_class] for one in np.unique(labels)]
    return np.sort(np.concatenate(first))


def subset(folder: Path) -> dict[str, np.ndarray]:
    """Return the four arrays of Fashion-MNIST that ship.

    Images uint8 `[n, 28, 28]`, labels uint8 `[n]`.
    """
    arrays = {}
    for ours, theirs, per_class in (("train", "train", TRAIN_PER_CLASS), ("test", "t10k", TEST_PER_CLASS)):
        labels = read_source(folder, f"{theirs}-labels-idx1-ubyte.gz")
        chosen = first_of_each_class(labels, per_class)
        arrays[f"{ours}_images"] = read_source(folder, f"{theirs}-images-idx3-ubyte.gz")[chosen]
        arrays[f"{ours}_labels"] = labels[chosen]

    return arrays


def main(folder: Path = DEBIAN_FOLDER) -> None:
    """Write `fashion-mnist.npz`, and print the size and digest for its entry in `data.py`."""
    path = CHECKOUT_FOLDER / FASHION_MNIST.name
    np.savez_compressed(path, **subset(folder))
    print(f"{path}: {path.stat().st_size} bytes, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
