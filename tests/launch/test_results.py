"""What ranks return: types that torch's plain pickle does not read back, and results that cannot travel."""

import logging
import pickle
import threading
from types import CodeType

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from torch import nn

from worldsize.engines.ranks import pickles
from worldsize.errors import RankFailed
from worldsize.launch import launch
from worldsize.ranks import open_ranks


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64])
def test_newer_types_of_tensors_travel_both_ways(dtype):
    x = torch.arange(6).to(torch.float32).to(dtype).reshape(2, 3)
    [(back, part)] = launch(lambda given: (given, {"row": x[1]}), 1, args=(x,)).results
    assert back.dtype == part["row"].dtype == dtype
    assert torch.equal(back.to(torch.float32), x.to(torch.float32))
    assert part["row"].to(torch.float32).tolist() == [3, 4, 5]


def test_bare_storages_travel_both_ways():
    storage = torch.tensor([1, 2, 3], dtype=torch.uint8).untyped_storage()
    [back] = launch(lambda given: given, 1, args=(storage,)).results
    assert isinstance(back, torch.UntypedStorage) and back.tolist() == [1, 2, 3]
    assert launch(lambda: torch.UntypedStorage(0), 1).results[0].nbytes() == 0


def wrapped():
    dist.init_process_group("gloo")
    return {"model": nn.parallel.DistributedDataParallel(nn.Linear(2, 2))}


def sharded():
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    model = nn.Linear(2, 2)
    fully_shard(model)
    return model


def numbers():
    yield 1


async def coroutine():
    return 1


@pytest.mark.parametrize(
    ("fn", "got", "instead"),
    [
        (wrapped, "the result (a dict)", "model.module"),
        (sharded, "FSDPLinear", "full_tensor()"),
        (threading.Lock, "the result (a _thread.lock)", "plain data"),
        (numbers, "the result (a generator)", "return a list"),
        (coroutine, "the result (a coroutine)", "asyncio.run"),
    ],
)
def test_a_result_that_cannot_travel_is_named_with_what_to_return_instead(fn, got, instead):
    with pytest.raises(RankFailed, match="cannot be sent back") as failed:
        launch(fn, 1)
    assert got in str(failed.value) and instead in str(failed.value)


def test_a_value_that_cannot_travel_is_named_on_ranks_that_stay():
    with open_ranks(1) as world:
        world.run("import threading\nlock = threading.Lock()")
        with pytest.raises(RankFailed, match=r"the result \(a _thread.lock\) cannot be sent back"):
            world["lock"]


def test_code_keeps_the_name_of_its_file_whatever_cloudpickle_writes(monkeypatch):
    """As cloudpickle 3.1.3 does it, for a function and for the one within it."""
    reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]

    def without_files(code):
        make, values = reduce_code(code)
        return make, tuple("<dynamic-code>" if value == code.co_filename else value for value in values)

    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table, CodeType, without_files)
    names = {"__name__": "__main__"}
    exec(compile("def outer():\n    def inner():\n        pass\n    return inner\n", "cell.py", "exec"), names)
    outer = pickle.loads(pickles.dumps(names["outer"]))
    assert (outer.__code__.co_filename, outer().__code__.co_filename) == ("cell.py", "cell.py")


def test_a_sharded_tensor_comes_back_without_a_warning_of_its_device_mesh(caplog):
    logger = logging.getLogger("torch.distributed.device_mesh")  # PyTorch's loggers pass nothing on
    logger.addHandler(caplog.handler)
    with open_ranks(2) as world:
        world.run(
            "from torch.distributed.fsdp import fully_shard\n"
            "model = torch.nn.Linear(2, 4)\n"
            "fully_shard(model)\n"
            "whole = model.weight.full_tensor().detach()"
        )
        shards, whole = world["model.weight"], world["whole"]
    logger.removeHandler(caplog.handler)
    assert caplog.messages == []
    assert torch.equal(torch.cat([shard.to_local() for shard in shards]), whole[0])
