"""The data sets: what ships is real, balanced and checked; a damaged or hostile file is refused in words."""

import gzip
import hashlib
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from worldsize import data
from worldsize.authoring import fashion_mnist
from worldsize.course import shipped_files
from worldsize.course.record import CourseRecord, write_record

pytestmark = pytest.mark.quick
README = data.CHECKOUT_FOLDER / "README.md"


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, as in CIFAR's own pickles."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_python2_string(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)

    dispatch[bytes] = save_python2_string


def python2_pickle(value: object) -> bytes:
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def batch(first: int, count: int) -> dict[bytes, object]:
    """Image i is red i, green 50 + i, blue 100 + i, and its second pixel in the first row is blue 255."""
    planes = np.array([0, 50, 100]).reshape(1, 3, 1) + np.arange(first, first + count).reshape(-1, 1, 1)
    pixels = np.repeat(planes, 1024, axis=2).astype(np.uint8)
    pixels[:, 2, 1] = 255
    return {b"data": pixels.reshape(count, 3072), b"labels": [(first + i) % 10 for i in range(count)]}


def write_archive(folder: Path, members: dict[str, bytes]) -> data.DataFile:
    """An archive of CIFAR's layout in `folder`, and the entry that its bytes satisfy."""
    path = folder / data.CIFAR10.name
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in members.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    raw = path.read_bytes()
    return replace(data.CIFAR10, size_bytes=len(raw), digest=hashlib.md5(raw).hexdigest())


@pytest.fixture
def small_cifar(tmp_path: Path) -> data.DataFile:
    """Five training batches of 4 images and a test batch of 3, out of order as in the real archive."""
    folder = tmp_path / "archive"
    folder.mkdir()
    members = {"batches.meta": b"not read", "data_batch_4": python2_pickle(batch(12, 4))}
    members |= {f"data_batch_{n}": python2_pickle(batch(4 * (n - 1), 4)) for n in (1, 5, 3, 2)}
    return write_archive(folder, members | {"test_batch": python2_pickle(batch(20, 3))})


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, bytes]]]:
    """A web server on this machine: its address, and the paths that it answers; others are 404."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    pages: dict[str, bytes] = {}
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/stalls":
                closing.wait(60)
                return
            found = pages.get(self.path)
            promised_bytes = len(found or b"") + (1000 if self.path == "/cut-short" else 0)
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(promised_bytes))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False  # so that the end of the test waits for them
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", pages
        closing.set()
        server.shutdown()
        thread.join()


def one_paragraph(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert "expected" in text
    return text


def test_fashion_mnist_has_10000_training_and_2000_test_images_of_28_by_28_bytes() -> None:
    fashion = data.load("fashion-mnist")
    assert fashion.train_images.shape == (10_000, 28, 28) and fashion.test_images.shape == (2_000, 28, 28)
    assert fashion.train_images.dtype == fashion.test_images.dtype == np.uint8
    assert fashion.shape == "10,000 training and 2,000 test images of 28 x 28 bytes, 10 classes"


def test_fashion_mnist_has_as_many_images_of_every_class() -> None:
    fashion = data.load("fashion-mnist")
    assert np.bincount(fashion.train_labels).tolist() == [1000] * 10
    assert np.bincount(fashion.test_labels).tolist() == [200] * 10
    assert len(fashion.classes) == 10


def test_labels_are_int64_as_a_loss_of_torch_wants_them() -> None:
    fashion = data.load("fashion-mnist")
    assert fashion.train_labels.dtype == fashion.test_labels.dtype == np.int64


def test_the_classes_can_be_told_apart_by_their_mean_image() -> None:
    fashion = data.load("fashion-mnist")
    images, tests = (x.reshape(len(x), -1) / 255 for x in (fashion.train_images, fashion.test_images))
    means = np.stack([images[fashion.train_labels == label].mean(axis=0) for label in range(10)])
    guess = (tests @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    assert (guess == fashion.test_labels).mean() > 0.65


def test_no_test_image_is_a_training_image() -> None:
    fashion = data.load("fashion-mnist")
    train = {image.tobytes() for image in fashion.train_images}
    assert not any(image.tobytes() in train for image in fashion.test_images)


def test_two_loads_share_no_memory() -> None:
    first, second = data.load("fashion-mnist"), data.load("fashion-mnist")
    assert not np.shares_memory(first.train_images, second.train_images)


def test_what_ships_in_datasets_is_at_most_8_mb() -> None:
    shipped = [path for path in data.CHECKOUT_FOLDER.iterdir() if path.name != data.CIFAR10.name]
    assert sum(path.stat().st_size for path in shipped) <= 8_000_000


def test_the_readme_gives_the_checksums_and_sizes_of_the_code() -> None:
    text = README.read_text(encoding="utf-8")
    for file in (data.FASHION_MNIST, data.CIFAR10, *data.VTRAIN.values()):
        assert file.digest in text and f"{file.size_bytes:,} bytes" in text and f"`{file.name}`" in text


def test_the_readme_gives_the_classes_in_the_order_of_the_labels() -> None:
    assert ", ".join(data.FASHION_MNIST_CLASSES) in re.sub(r"\s+", " ", README.read_text(encoding="utf-8"))


@pytest.mark.skipif(not fashion_mnist.DEBIAN_FOLDER.is_dir(), reason="Debian's dataset-fashion-mnist is missing")
def test_the_shipped_subset_is_what_its_maker_makes_from_debians_package() -> None:
    path = data.CHECKOUT_FOLDER / data.FASHION_MNIST.name
    made = fashion_mnist.subset(fashion_mnist.DEBIAN_FOLDER)
    with np.load(path) as shipped:
        assert set(shipped.files) == set(made)
        for name in made:
            assert np.array_equal(shipped[name], made[name]), f"{path}: {name} is stale"


def test_the_maker_takes_the_first_of_each_class_in_the_order_of_the_source() -> None:
    labels = np.array([2, 0, 0, 1, 2, 0, 1, 1, 2], np.uint8)
    assert fashion_mnist.first_of_each_class(labels, 2).tolist() == [0, 1, 2, 3, 4, 6]


def test_the_maker_refuses_a_source_with_other_bytes(tmp_path: Path) -> None:
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x01\x07"))
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte.gz: expected sha256 0402a96d") as error:
        fashion_mnist.read_source(tmp_path, "t10k-labels-idx1-ubyte.gz")
    assert "dataset-fashion-mnist" in one_paragraph(error)


def test_loading_imports_no_framework() -> None:
    code = (
        "import sys; from worldsize import data; data.load('fashion-mnist'); "
        "print({'torch', 'tensorflow', 'pooch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_is_told_the_names_there_are() -> None:
    with pytest.raises(ValueError, match="got 'mnist'") as error:
        data.load("mnist")
    assert "'fashion-mnist' or 'cifar10'" in one_paragraph(error)


def test_a_changed_byte_is_caught_with_both_checksums(tmp_path: Path) -> None:
    copy = tmp_path / data.FASHION_MNIST.name
    raw = bytearray((data.CHECKOUT_FOLDER / data.FASHION_MNIST.name).read_bytes())
    raw[1000] ^= 1
    copy.write_bytes(raw)
    with pytest.raises(ValueError, match="is damaged: expected") as error:
        data.load_fashion_mnist([tmp_path])
    text = one_paragraph(error)
    assert str(copy) in text and data.FASHION_MNIST.digest in text and hashlib.sha256(raw).hexdigest() in text
    assert "git checkout" in text and "delete it and run `worldsize start` again" in text


def test_worldsize_data_names_the_first_folder_to_look_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDSIZE_DATA", str(tmp_path))
    assert data.data_folders() == [tmp_path, data.CHECKOUT_FOLDER]


@pytest.mark.parametrize("below", [".", "labs"])
def test_in_a_laid_course_its_own_folder_comes_before_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (tmp_path / "labs").mkdir()
    write_record(tmp_path, CourseRecord("0.2.0"))
    monkeypatch.chdir(tmp_path / below)
    monkeypatch.delenv("WORLDSIZE_DATA", raising=False)
    assert data.data_folders() == [tmp_path / "datasets", data.CHECKOUT_FOLDER]


def test_an_installed_package_has_the_data_that_it_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(data.CHECKOUT_FOLDER, tmp_path / "datasets", ignore=shutil.ignore_patterns(data.CIFAR10.name))
    monkeypatch.setattr(data, "CHECKOUT_FOLDER", tmp_path / "absent")
    monkeypatch.setattr(shipped_files, "CARRIED_FOLDER", tmp_path)
    monkeypatch.delenv("WORLDSIZE_DATA", raising=False)
    assert data.data_folders() == [tmp_path / "datasets"]
    assert len(data.load("fashion-mnist").train_images) == 10_000 and data.bandwidths()


def test_without_a_checkout_worldsize_data_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(data.CHECKOUT_FOLDER / data.FASHION_MNIST.name, tmp_path)
    monkeypatch.setattr(data, "CHECKOUT_FOLDER", tmp_path / "absent")
    monkeypatch.setenv("WORLDSIZE_DATA", str(tmp_path))
    assert len(data.load("fashion-mnist").train_images) == 10_000


def test_without_a_checkout_or_worldsize_data_the_message_says_to_set_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "CHECKOUT_FOLDER", tmp_path / "absent")
    monkeypatch.delenv("WORLDSIZE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="no checkout beside this installation") as error:
        data.load("fashion-mnist")
    assert "set the variable WORLDSIZE_DATA" in one_paragraph(error)


def test_cifar10_is_read_in_the_order_of_its_batches(tmp_path: Path, small_cifar: data.DataFile) -> None:
    cifar = data.load_cifar10([tmp_path / "archive"], file=small_cifar)
    assert cifar.train_images[:, 0, 0, 0].tolist() == list(range(20))
    assert cifar.train_labels.tolist() == [i % 10 for i in range(20)]
    assert cifar.test_labels.tolist() == [0, 1, 2]


def test_cifar10_images_are_rows_of_pixels_with_the_colours_last(tmp_path: Path, small_cifar: data.DataFile) -> None:
    cifar = data.load_cifar10([tmp_path / "archive"], file=small_cifar)
    assert cifar.train_images.shape == (20, 32, 32, 3) and cifar.train_images.dtype == np.uint8
    assert cifar.train_images[7, 0, :3].tolist() == [[7, 57, 107], [7, 57, 255], [7, 57, 107]]
    assert cifar.shape == "20 training and 3 test images of 32 x 32 x 3 bytes, 10 classes"


def test_a_missing_archive_is_answered_with_the_folder_the_address_and_the_checksum(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="looked in") as error:
        data.load_cifar10([tmp_path / "first", tmp_path / "second"])
    text = one_paragraph(error)
    assert f"not unpacked, in {tmp_path / 'first'}." in text and str(tmp_path / "second") in text
    assert data.CIFAR10.url in text and data.CIFAR10.digest in text and "download=True" in text


def test_a_missing_archive_is_not_downloaded_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "fetch", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(FileNotFoundError):
        data.load_cifar10([tmp_path])


def test_a_truncated_archive_is_said_to_be_cut_short(tmp_path: Path, small_cifar: data.DataFile) -> None:
    path = tmp_path / "archive" / small_cifar.name
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="cut short") as error:
        data.load_cifar10([tmp_path / "archive"], file=small_cifar)
    text = one_paragraph(error)
    assert f"expected {small_cifar.size_bytes:,} bytes" in text and "got 300 bytes" in text
    assert small_cifar.digest in text and "fetch the Python version again" in text


def test_another_archive_under_the_right_name_is_refused(tmp_path: Path, small_cifar: data.DataFile) -> None:
    got = hashlib.md5((tmp_path / "archive" / small_cifar.name).read_bytes()).hexdigest()
    with pytest.raises(ValueError, match=f"expected 170,498,071 bytes with md5 .* with md5 {got}") as error:
        data.load_cifar10([tmp_path / "archive"])
    assert data.CIFAR10.digest in one_paragraph(error)


class Hostile:
    """Unpickled by the ordinary unpickler, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def test_a_hostile_pickle_in_an_archive_is_refused_and_not_run(tmp_path: Path) -> None:
    hostile = pickle.dumps(Hostile(tmp_path / "ran"), protocol=2)
    file = write_archive(tmp_path, {"data_batch_1": hostile})
    with pytest.raises(ValueError, match="asks for posix.mkdir|asks for nt.mkdir") as error:
        data.load_cifar10([tmp_path], file=file)
    assert "fetch it again" in one_paragraph(error) and not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "module_and_name",
    [
        "builtins eval",
        "builtins getattr",
        "numpy load",
        "numpy.core.multiarray fromfile",
        "numpy ndarray.tofile",
    ],
)
def test_the_unpickler_admits_nothing_but_the_rebuilding_of_arrays(module_and_name: str) -> None:
    module, name = module_and_name.split()
    # protocol 4 looks dotted names up attribute by attribute, so it is the one to refuse them under
    raw = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode() + b"\x8c" + bytes([len(name)])
    with pytest.raises(ValueError, match=f"asks for {re.escape(module)}.{re.escape(name)}"):
        data.unpickle_arrays(raw + name.encode() + b"\x93.")


@pytest.mark.parametrize("protocol", [3, 4])
def test_the_unpickler_reads_what_numpy_writes_today(protocol: int) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    got = data.unpickle_arrays(pickle.dumps({b"data": array}, protocol=protocol))
    assert np.array_equal(got[b"data"], array)


def test_a_download_lands_in_the_last_folder_and_is_loaded(
    tmp_path: Path, small_cifar: data.DataFile, served: tuple[str, dict[str, bytes]]
) -> None:
    address, pages = served
    pages["/cifar"] = (tmp_path / "archive" / small_cifar.name).read_bytes()
    folders = [tmp_path / "first", tmp_path / "cache"]
    cifar = data.load_cifar10(folders, download=True, file=replace(small_cifar, url=f"{address}/cifar"))
    assert len(cifar.train_images) == 20 and (tmp_path / "cache" / small_cifar.name).is_file()


def test_a_download_shows_its_progress_and_first_says_what_to_do_if_it_is_slow(
    tmp_path: Path,
    small_cifar: data.DataFile,
    served: tuple[str, dict[str, bytes]],
    capsys: pytest.CaptureFixture,
) -> None:
    address, pages = served
    pages["/cifar"] = (tmp_path / "archive" / small_cifar.name).read_bytes()
    data.fetch(replace(small_cifar, url=f"{address}/cifar"), [tmp_path / "first", tmp_path / "cache"])
    shown = capsys.readouterr()
    assert "If it is slow, stop this cell." in shown.out and f"in {tmp_path / 'first'}." in shown.out
    assert "100%" in shown.err


@pytest.mark.parametrize("path", ["/absent", "/stalls", "/other", "/cut-short"])
def test_a_download_that_fails_stalls_or_brings_other_bytes_says_how_to_do_it_by_hand(
    path: str, tmp_path: Path, small_cifar: data.DataFile, served: tuple[str, dict[str, bytes]]
) -> None:
    address, pages = served
    pages["/other"] = pages["/cut-short"] = b"a page that asks for a password"
    folders = [tmp_path / "first", tmp_path / "cache"]
    with pytest.raises(ConnectionError, match=f"expected to fetch {address}{path}, got") as error:
        data.fetch(replace(small_cifar, url=address + path), folders, stall_s=0.2)
    assert f"in {folders[0]}." in one_paragraph(error) and small_cifar.digest in one_paragraph(error)
    assert not list((tmp_path / "cache").iterdir())


def test_published_bandwidths_are_above_zero_and_name_their_source() -> None:
    rows = data.bandwidths()
    assert len(rows) >= 5 and all(name and source and bytes_per_s > 0 for name, bytes_per_s, source in rows)


def test_bandwidths_that_are_not_there_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(data, "data_folders", lambda: [tmp_path])
    with pytest.raises(FileNotFoundError, match="bandwidths.json"):
        data.bandwidths()
