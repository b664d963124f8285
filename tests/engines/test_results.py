"""Results from hosts that were invited: plain values arrive as they left, and nothing is ever unpickled."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from worldsize.engines.json_and_bytes import BadFrame
from worldsize.engines.results import packed, unpacked

pytestmark = pytest.mark.quick
SHOWS = "unpickled"  # a folder that stands where a pickle was read


class Bomb:
    def __reduce__(self) -> tuple:
        return os.mkdir, (SHOWS,)


class Own:
    pass


def there_and_back(value: Any, folder: Path) -> tuple[Any, tuple[str, ...]]:
    (folder / "result").write_bytes(packed(value, plain=True))
    return unpacked(folder / "result", plain=True)


def framed(message: Any, blob: bytes = b"") -> bytes:
    text = json.dumps(message).encode()
    return struct.pack("!QQ", len(text), len(blob)) + text + blob


@pytest.mark.parametrize("value", [None, True, 3, 2**70, 2.5, "ü", b"\x00\xff", [1, (2, "a"), {"k": [None]}], {1: 2}, [], b""])
def test_plain_values_arrive_as_they_left(value: Any, tmp_path: Path) -> None:
    found, as_text = there_and_back(value, tmp_path)
    assert (found, type(found), as_text) == (value, type(value), ())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_tensors_arrive_as_tensors(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    value = torch.ones(shape).to(dtype).requires_grad_(dtype.is_floating_point)
    found, as_text = there_and_back([value], tmp_path)
    assert torch.equal(found[0], value) and found[0].dtype == dtype and as_text == ()


def test_arrays_arrive_as_arrays(tmp_path: Path) -> None:
    value = {"a": np.arange(6).reshape(2, 3), "t": np.arange(6).reshape(2, 3).T, "s": np.float64(2.5)}
    found, _ = there_and_back(value, tmp_path)
    assert all(np.array_equal(found[name], value[name]) for name in value) and type(found["s"]) is np.float64


def test_other_objects_arrive_as_text_and_are_named(tmp_path: Path) -> None:
    assert there_and_back([Own(), {1, 2}, 3], tmp_path) == (["<Own>", "<set>", 3], ("Own", "set"))


NO_RESULTS = {
    "a pickle": pickle.dumps(Bomb()),
    "a pickle after lengths": struct.pack("!QQ", 0, 0) + pickle.dumps(Bomb()),
    "nothing": b"",
    "too short": framed({"value": 1, "as_text": []})[:-1],
    "too long": framed({"value": 1, "as_text": []}) + b"x",
    "an absurd length": struct.pack("!QQ", 2**63, 2**63),
    "no value": framed({"as_text": []}),
    "no object": framed([1]),
    "JSON too deep": struct.pack("!QQ", 200_000, 0) + b"[" * 200_000,
    "values too deep": framed({"value": json.loads('["l",' * 60 + "1" + "]" * 60), "as_text": []}),
    "a number of too many digits": struct.pack("!QQ", 9030, 0) + b'{"as_text": [], "value": ' + b"9" * 9004 + b"}",
    "a kind that is none": framed({"value": ["f", ["code", 1]], "as_text": []}),
    "a tensor of text": framed({"value": ["f", ["tensor", "x"]], "as_text": []}),
    "a tensor of an odd type": framed({"value": ["f", ["tensor", ["a", "<O", [1], 0]]], "as_text": []}, bytes(8)),
    "bytes beyond the end": framed({"value": ["a", "<f8", [2], 0], "as_text": []}, bytes(8)),
    "arrays that share their bytes": framed({"value": ["l", *[["a", "|u1", [8], 0]] * 2], "as_text": []}, bytes(8)),
    "an absurd shape": framed({"value": ["a", "<f8", [2**30] * 12, 0], "as_text": []}, bytes(8)),
    "a bfloat16 of half its bytes": framed({"value": ["f", ["bfloat16", ["a", "|u1", [1], 0]]], "as_text": []}, b"x"),
    "types that are none": framed({"value": 1, "as_text": "x" * 1000}),
}


@pytest.mark.parametrize("data", NO_RESULTS.values(), ids=NO_RESULTS)
def test_what_is_no_result_is_refused_and_never_unpickled(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "result").write_bytes(data)
    with pytest.raises(BadFrame):
        unpacked(tmp_path / "result", plain=True)
    assert not (tmp_path / SHOWS).exists()


def test_a_result_that_never_came_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFrame, match="got none"):
        unpacked(tmp_path / "result", plain=True)


def test_the_name_of_a_type_is_shown_only_where_it_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "result").write_bytes(framed({"value": 1, "as_text": ["<b>", "\x1b[2J", "Own", 3]}))
    assert unpacked(tmp_path / "result", plain=True) == (1, ("?", "?", "Own", "?"))


def test_a_result_of_this_users_own_host_comes_as_its_class(tmp_path: Path) -> None:
    (tmp_path / "result").write_bytes(packed(Own(), plain=False))
    found, as_text = unpacked(tmp_path / "result", plain=False)
    assert (type(found).__name__, as_text) == ("Own", ())
