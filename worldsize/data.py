"""Data sets by name, checksummed, as NumPy arrays.

`load("fashion-mnist")` reads the subset that ships in `datasets/`; `load("cifar10")` reads the user's own archive, and downloads
it only on request. No framework is needed, so ranks of every framework can load them. `measured_iterations` is no training data:
it holds measured step times of real clusters. The labs teach batching, shuffling and sharding.

Sources: Xiao, Rasul and Vollgraf, "Fashion-MNIST" (arXiv:1708.07747); Krizhevsky, "Learning Multiple Layers of Features from Tiny
Images" (2009). The unpickler follows the Python manual, "Restricting Globals".
"""

import csv
import hashlib
import io
import json
import os
import pickle
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.course import shipped_files
from worldsize.course.record import course_above

CHECKOUT_FOLDER = shipped_files.CHECKOUT / "datasets"
DOWNLOAD_STALL_S = 30.0
RESTORE = (
    "Restore it in the checkout with: git checkout -- datasets/{}; in a folder that `worldsize start` made, delete it and "
    "run `worldsize start` again."
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A labeled image data set: images uint8 `[n, height, width]` or, in color, `[n, height, width, 3]`; labels int64 `[n]`."""

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]  # the name of each label

    @property
    def shape(self) -> str:
        """The counts and sizes in words, to print."""
        size = " x ".join(map(str, self.train_images.shape[1:]))
        counts = f"{len(self.train_images):,} training and {len(self.test_images):,} test images"
        return f"{counts} of {size} bytes, {len(self.classes)} classes"


@dataclass(frozen=True)
class DataFile:
    """An expected data file, with the digest that its bytes must have."""

    name: str
    size_bytes: int
    algorithm: str
    digest: str
    remedy: str  # how to get the file again
    url: str = ""


@dataclass(frozen=True)
class MeasuredIteration:
    """A measured training step of a GPT model on A100 GPUs: the model, the parallel plan and the seconds.

    `micro_batch`: sequences of one replica. `global_batch`: sequences of all replicas. `gpus` = `tensor` · `data` · `pipeline`.
    """

    gpus: int
    global_batch: int
    micro_batch: int
    hidden: int
    heads: int
    layers: int
    tokens: int  # per sequence
    tensor: int
    data: int
    pipeline: int
    iteration_s: float


FASHION_MNIST = DataFile(
    name="fashion-mnist.npz",
    size_bytes=5_278_835,
    algorithm="sha256",
    digest="efefbe05b9d7eaf04f28ae39025070e3f555b25bf705ff9319bf8a7a4784fc6b",
    remedy=RESTORE.format("fashion-mnist.npz"),
)
FASHION_MNIST_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
# MD5, because the data set's own page gives no stronger digest
CIFAR10 = DataFile(
    name="cifar-10-python.tar.gz",
    size_bytes=170_498_071,
    algorithm="md5",
    digest="c58f30108f718f92721af3b95e74349a",
    remedy="Delete it and fetch the Python version again from https://www.cs.toronto.edu/~kriz/cifar.html",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
)
VTRAIN = {
    "multi": DataFile(
        name="vtrain-multi.csv",
        size_bytes=5_190,
        algorithm="sha256",
        digest="7985c78c385d032dd96d3a11578721182d2144dc3acb9070d76506cd3185cc67",
        remedy=RESTORE.format("vtrain-multi.csv"),
    ),
    "single": DataFile(
        name="vtrain-single.csv",
        size_bytes=57_035,
        algorithm="sha256",
        digest="63bda66b05ab0e52751f7bcaf610d1fc77ae55a581efb3f51a22b0c7650ab4ec",
        remedy=RESTORE.format("vtrain-single.csv"),
    ),
}
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load(name: str, *, download: bool = False) -> Dataset:
    """Return the data set `name`, "fashion-mnist" or "cifar10".

    `download=True` lets "cifar10" fetch 170 MB from the data set's own page if no folder holds the archive.
    Raises ValueError for an unknown name or a damaged file, FileNotFoundError for a missing file and ConnectionError for a failed
    download. Each message says what to do next.
    """
    if name == "fashion-mnist":
        return load_fashion_mnist(data_folders())
    if name == "cifar10":
        return load_cifar10([*data_folders(), cache_folder()], download=download)

    raise ValueError(
        f"data.load: expected the name of a data set, 'fashion-mnist' or 'cifar10', got {name!r}. "
        "Pass one of these two names."
    )


def bandwidths() -> list[tuple[str, float, str]]:
    """Return published bandwidths of memories and links: (name, bytes per second one way, source). Raises FileNotFoundError."""
    rows = json.loads(shipped("bandwidths.json").read_text(encoding="utf-8"))
    return [(row["name"], float(row["bytes_per_s"]), row["source"]) for row in rows]


def shipped(name: str) -> Path:
    """Return the path of `name`, a data file that ships with the course without a checksum. Raises FileNotFoundError."""
    folders = data_folders()
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"expected {name} in one of: {listed(folders)}. It ships with the course.")


def measured_iterations(which: str = "multi") -> list[MeasuredIteration]:
    """Return measured training steps of real clusters, in the file's order.

    "multi": 109 on 64, 256 and 512 GPUs; "single": 1,440 on one node of 8. J. Bang et al., "vTrain", MICRO 2024,
    arXiv:2312.12391. Raises ValueError for another name or a damaged file, FileNotFoundError for a missing file.
    """
    if which not in VTRAIN:
        raise ValueError(f"data.measured_iterations: expected 'multi' or 'single', got {which!r}. Pass one of these two.")

    path = found_in_course(VTRAIN[which], data_folders(), "measured_iterations")
    with path.open(encoding="utf-8-sig", newline="") as lines:  # the files begin with a byte-order mark
        rows = list(csv.reader(lines))[1:]

    iterations = []
    for row in rows:
        *counts, milliseconds = row[-11:]  # "multi" has the billions of parameters in front
        sizes = map(int, counts)
        iterations.append(MeasuredIteration(*sizes, iteration_s=float(milliseconds) / 1e3))  # type: ignore[misc]  # ten sizes come before it
    return iterations


def data_folders() -> list[Path]:
    """Return the folders to search: WORLDSIZE_DATA, then the laid course's, the checkout's and the package's folder."""
    named = os.environ.get("WORLDSIZE_DATA")
    folders = [Path(named).expanduser()] if named else []
    course = course_above()
    if course is not None:
        folders.append(course / "datasets")

    # Our README identifies the folder: beside an installed package, `datasets` may be another package.
    if (CHECKOUT_FOLDER / "README.md").is_file():
        folders.append(CHECKOUT_FOLDER)
    if shipped_files.CARRIED_FOLDER.is_dir():
        folders.append(shipped_files.CARRIED_FOLDER / "datasets")
    return folders


def cache_folder() -> Path:
    """Return the user's cache folder, the target of downloads."""
    import pooch  # here, because most labs need no download and ranks should start fast

    return Path(pooch.os_cache("worldsize"))


def find(file: DataFile, folders: Sequence[Path]) -> Path | None:
    """Return the path of a data `file` in the first of `folders` that holds it, its digest checked; None if no folder does."""
    for folder in folders:
        path = folder / file.name
        if path.is_file():
            check_digest(path, file)
            return path
    return None


def found_in_course(file: DataFile, folders: Sequence[Path], call: str) -> Path:
    """Return the path of `file`, which the course ships, as `find` does. Raises FileNotFoundError, which names the `call`."""
    path = find(file, folders)
    if path is None:
        raise FileNotFoundError(
            f"data.{call}: expected the file {file.name}, looked in {listed(folders)}. It is "
            "in datasets/ of the course's repository: set the variable WORLDSIZE_DATA to that folder."
        )
    return path


def check_digest(path: Path, file: DataFile) -> None:
    """Raise ValueError unless `path` holds exactly the bytes of the data `file`."""
    with path.open("rb") as stream:
        got = hashlib.file_digest(stream, file.algorithm).hexdigest()
    if got == file.digest:
        return

    got_bytes = path.stat().st_size
    short = "it is cut short, " if got_bytes < file.size_bytes else ""
    raise ValueError(
        f"data: {path} is damaged: {short}expected {file.size_bytes:,} bytes with {file.algorithm} "
        f"{file.digest}, got {got_bytes:,} bytes with {file.algorithm} {got}. {file.remedy}"
    )


def load_fashion_mnist(folders: Sequence[Path], file: DataFile = FASHION_MNIST) -> Dataset:
    """Return the Fashion-MNIST subset, images `[n, 28, 28]`, from the first of `folders` that holds the file."""
    path = found_in_course(file, folders, "load('fashion-mnist')")
    with np.load(path, allow_pickle=False) as arrays:
        return Dataset(
            name="fashion-mnist",
            train_images=arrays["train_images"],
            train_labels=arrays["train_labels"].astype(np.int64),
            test_images=arrays["test_images"],
            test_labels=arrays["test_labels"].astype(np.int64),
            classes=FASHION_MNIST_CLASSES,
        )


def load_cifar10(folders: Sequence[Path], *, download: bool = False, file: DataFile = CIFAR10) -> Dataset:
    """Return CIFAR-10, images `[n, 32, 32, 3]`, from the first of `folders` that holds the archive.

    A download goes to the last folder. Raises FileNotFoundError, or ConnectionError if a download fails.
    """
    path = find(file, folders)
    if path is None and download:
        path = fetch(file, folders)
    if path is None:
        raise FileNotFoundError(
            f"data.load('cifar10'): expected the file {file.name}, looked in {listed(folders)}. "
            f"{by_hand(file, folders)} Or let data.load('cifar10', download=True) fetch it."
        )

    batches = read_batches(path)
    test_images, test_labels = batches.pop("test_batch")
    train_images, train_labels = zip(*map(batches.get, sorted(batches)), strict=True)
    return Dataset(
        name="cifar10",
        train_images=np.concatenate(train_images),
        train_labels=np.concatenate(train_labels),
        test_images=test_images,
        test_labels=test_labels,
        classes=CIFAR10_CLASSES,
    )


def listed(folders: Sequence[Path]) -> str:
    """Return the folders searched for data as messages name them."""
    return ", ".join(map(str, folders)) or "no folder, as there is no checkout beside this installation"


def by_hand(file: DataFile, folders: Sequence[Path]) -> str:
    """Return the sentence that explains how to fetch a data set's file by hand."""
    return (
        f"Download {file.url} ({file.size_bytes / 1e6:.0f} MB, {file.algorithm} {file.digest}) and put it, "
        f"not unpacked, in {folders[0]}."
    )


def fetch(file: DataFile, folders: Sequence[Path], stall_s: float = DOWNLOAD_STALL_S) -> Path:
    """Download a data set's `file` into the last of `folders`, with a progress bar; a failed download leaves no file."""
    import pooch
    from tqdm import tqdm

    print(f"Fetching {file.name}. If it is slow, stop this cell. {by_hand(file, folders)}")

    known = f"{file.algorithm}:{file.digest}"
    try:
        with tqdm(desc=file.name, total=file.size_bytes, unit="B", unit_scale=True) as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar, timeout=stall_s)
            got = pooch.retrieve(file.url, known, fname=file.name, path=folders[-1], downloader=downloader)
    except (OSError, ValueError) as error:
        refused = getattr(error, "response", None)
        if refused is not None:
            refused.close()  # pooch leaves the socket of a refused request open
        raise ConnectionError(
            f"data.load('cifar10'): expected to fetch {file.url}, got {type(error).__name__}: "
            f"{' '.join(str(error).split())}. {by_hand(file, folders)}"
        ) from error
    return Path(got)


def read_batches(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return images uint8 `[n, 32, 32, 3]` and labels int64 `[n]` of every batch in CIFAR's archive, by batch name."""
    from tqdm import tqdm

    batches = {}
    # One pass over the stream: access by name would decompress the archive once per batch.
    with tarfile.open(path, "r|gz") as archive:
        for member in tqdm(archive, desc=f"reading {path.name}", unit=" files", delay=1.0):
            name = Path(member.name).name
            if name.startswith("data_batch_") or name == "test_batch":
                batch = unpickle_arrays(archive.extractfile(member).read())
                images = batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
                batches[name] = np.ascontiguousarray(images), np.array(batch[b"labels"], np.int64)

    return batches


class ArrayUnpickler(pickle.Unpickler):
    """A data set's unpickler for arrays and plain values; it refuses any other name in the pickle without importing anything."""

    rebuild = np.empty(0).__reduce__()[0]
    admitted = {
        ("numpy.core.multiarray", "_reconstruct"): rebuild,  # as NumPy 1 wrote it
        ("numpy._core.multiarray", "_reconstruct"): rebuild,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    @override
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.admitted:
            return self.admitted[module, name]
        raise ValueError(
            f"data.load: expected a pickle of NumPy arrays, got one that asks for {module}.{name}. "
            "It was not loaded. Delete the archive and fetch it again from the data set's own page."
        )


def unpickle_arrays(raw: bytes) -> Any:
    """Return the arrays in a data set's pickle, with Python 2's strings as bytes; no code from the pickle runs."""
    return ArrayUnpickler(io.BytesIO(raw), encoding="bytes").load()
