"""Declared work that is held back, made up, or asked for ahead, in labs 11 to 13."""

from tests.grade.declared import declared

# gradients are averaged when backward is over, and what is declared then goes on beside the sums, in the order of a backward
AVERAGES = """
import threading
import torch
from worldsize.fabric.background import Background
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import network, train

def channel_of(fabric):
    wire = fabric._wire
    while not hasattr(wire, "_channel"):
        wire = wire._inner
    return wire._channel

def after_backward(fabric, task, begin, end):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    background = Background(fabric)

    def gradients(loss):
        begin()
        loss.backward()
        tell = end()
        members = [p for p in model.parameters() if p.grad is not None][::-1]
        sums = []
        for number, p in enumerate(members):
            if tell:
                tell(number)
            sums.append(background.start(p.grad))
        for one in sums:
            one.wait()
        for p in members:
            p.grad /= fabric.world_size

    return train(fabric, task, model, gradients)
"""

HELD = AVERAGES + """
def holding(fabric, replace):
    held, asked = [], channel_of(fabric).ask

    def ask(message, blob=b""):
        if message["op"] == "compute" and held is not None and holds[0]:
            held.append((dict(message), bytes(blob)))
            width = message["shape"][-1] if "shape" in message else 0
            return {}, torch.ones(width, dtype=torch.float64).numpy().tobytes()
        return asked(message, blob)

    holds = [False]
    replace(ask)

    def begin():
        holds[0] = True

    def end():
        holds[0] = False

        def tell(number):
            if held:
                asked(*held.pop(0))

        return tell

    return begin, end
"""
declared("holds_frames_back_by_its_channel", "overlapped", HELD + """
def overlapped(fabric, task):
    channel = channel_of(fabric)
    return after_backward(fabric, task, *holding(fabric, lambda ask: setattr(channel, "ask", ask)))
""", 0.5, changes=True)
declared("holds_frames_back_by_the_channels_class", "overlapped", HELD + """
from worldsize.grade.inside.broker_channel import BrokerChannel

def overlapped(fabric, task):
    kind = type(channel_of(fabric))
    assert kind is BrokerChannel
    return after_backward(fabric, task, *holding(fabric, lambda ask: setattr(kind, "ask", lambda self, *given: ask(*given))))
""", 0.5, changes=True)
declared("holds_frames_back_of_buckets", "bucketed", HELD + """
def bucketed(fabric, task):
    channel = channel_of(fabric)
    begin, end = holding(fabric, lambda ask: setattr(channel, "ask", ask))
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    background, members = Background(fabric), [p for p in model.parameters() if p.requires_grad]

    def gradients(loss):
        begin()
        loss.backward()
        tell = end()
        flats, sums = [], []
        for numbers in task["buckets"]:
            own = [torch.zeros_like(members[i]) if members[i].grad is None else members[i].grad for i in numbers]
            for i in numbers:
                tell(i)
            flats.append(torch.cat([x.flatten() for x in own]))
            sums.append(background.start(flats[-1]))
        for numbers, flat, one in zip(task["buckets"], flats, sums):
            one.wait()
            pieces = (flat / fabric.world_size).split([members[i].numel() for i in numbers])
            for i, piece in zip(numbers, pieces):
                members[i].grad = piece.view_as(members[i])

    return train(fabric, task, model, gradients)
""", 1.0, changes=True)
declared("declares_without_saying_on_what", "overlapped", AVERAGES + """
from worldsize.pytorch import timed_network
timed_network._declare = lambda fabric, seconds, x: x

def overlapped(fabric, task):
    def work(number):
        if task["backward_s"]:
            fabric.compute(task["backward_s"])

    return after_backward(fabric, task, lambda: None, lambda: work)
""", 0.5, changes=True)
declared("declares_on_zeros_beside_its_sums", "overlapped", AVERAGES + """
from worldsize.pytorch import timed_network
timed_network._Stretch.backward = staticmethod(lambda ctx, gradient: (gradient, None, None, None))

def overlapped(fabric, task):
    shapes = [(task["examples"], width) for width in reversed(task["sizes"][1:])]

    def work(number):
        if task["backward_s"]:
            fabric.compute(task["backward_s"], torch.zeros(shapes[number], dtype=torch.float64))

    return after_backward(fabric, task, lambda: None, lambda: work)
""", 0.5, changes=True)
declared("asks_for_the_weights_of_work_ahead", "overlapped", AVERAGES + """
from worldsize.pytorch import timed_network
ahead = []
timed_network._declare = lambda fabric, seconds, x: x * ahead.pop(0) if seconds and ahead else x

def overlapped(fabric, task):
    def begin():
        for width in reversed(task["sizes"][1:]) if task["backward_s"] else []:
            ahead.append(fabric.compute(task["backward_s"], torch.ones(width, dtype=torch.float64)))

    return after_backward(fabric, task, begin, lambda: None)
""", 0.5, changes=True)
declared("makes_a_subclass_of_its_fabric", "overlapped", HELD + """
from worldsize.fabric import Fabric

class Silent(Fabric):
    def compute(self, seconds, x=None):
        self.owed.append((seconds, x.clone()))
        return x

def overlapped(fabric, task):
    silent = Silent(fabric._wire)
    silent.owed = []

    def tell(number):
        if silent.owed:
            fabric.compute(*silent.owed.pop(0))

    return after_backward(silent, task, lambda: None, lambda: tell)
""", 0.5)
declared("finds_its_channel_among_all_objects", "overlapped", HELD + """
import gc
from worldsize.grade.inside.broker_channel import BrokerChannel

def overlapped(fabric, task):
    found = [one for one in gc.get_objects() if type(one) is BrokerChannel]
    return after_backward(fabric, task, *holding(fabric, lambda ask: [setattr(one, "ask", ask) for one in found]))
""", 0.5, changes=True)
declared("shortens_its_work_by_a_trace", "overlapped", AVERAGES + """
import ctypes, sys

def shortened(frame, event, arg):
    if event == "call" and frame.f_code.co_name == "compute" and "seconds" in frame.f_locals:
        frame.f_locals["seconds"] = 0.0
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))

def overlapped(fabric, task):
    return after_backward(fabric, task, lambda: threading.settrace(shortened), lambda: None)
""", 0.5)
declared("overwrites_the_seconds_in_memory", "overlapped", AVERAGES + """
import ctypes

def overlapped(fabric, task):
    if task["backward_s"]:
        ctypes.c_double.from_address(id(task["backward_s"]) + 16).value = 1e-9
    return after_backward(fabric, task, lambda: None, lambda: None)
""", 0.5)
declared("swaps_the_code_of_the_wire", "overlapped", AVERAGES + """
from worldsize.grade.inside.broker_wire import BrokerWire

def compute(self, seconds, x=None):
    return x

BrokerWire.compute.__code__ = compute.__code__

def overlapped(fabric, task):
    return after_backward(fabric, task, lambda: None, lambda: None)
""", 0.5, changes=True)


KEEPS_ALL = """
import torch
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch import timed_network
from worldsize.pytorch.timed_network import network, train

def all_graphs_at_once(fabric, task, begin, end):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        begin()
        for loss in list(losses):
            loss.backward()
        end()
        for p in model.parameters():
            if p.requires_grad:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                p.grad = all_reduce(fabric, p.grad) / (task["parts"] * fabric.world_size)

    return train(fabric, task, model, gradients)
"""
declared("tells_of_its_graphs_in_another_order", "accumulate", KEEPS_ALL + """
forward, backward = [], []

def declare(fabric, seconds, x):
    if seconds:
        (forward if seconds < 0.0015 else backward).append((seconds, x.clone()))
    return x

timed_network._declare = declare

def accumulate(fabric, task):
    layers = len(task["sizes"]) - 1

    def tell():
        while forward:
            for one in [*forward[:layers], *backward[:layers]]:
                fabric.compute(*one)
            del forward[:layers], backward[:layers]

    return all_graphs_at_once(fabric, task, lambda: None, tell)
""", 0.5, changes=True)
declared("asks_for_all_work_before_it_does_any", "accumulate", KEEPS_ALL + """
weights = {}

def declare(fabric, seconds, x):
    return x * weights[seconds].pop(0) if seconds else x

timed_network._declare = declare

def accumulate(fabric, task):
    ways, widths = (task["forward_s"], task["backward_s"]), task["sizes"][1:]

    def ask():
        for way in ways:
            weights[way] = []
        for _ in range(task["parts"] if any(ways) else 0):
            for way, along in zip(ways, (widths, widths[::-1])):
                weights[way] += [fabric.compute(way, torch.ones(width, dtype=torch.float64)) for width in along]

    return all_graphs_at_once(fabric, task, ask, lambda: None)
""", 0.5, changes=True)
declared("gives_its_own_driver_by_an_import_hook", "big_batch_step", """
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

DRIVER = '''
import torch
from worldsize.pytorch import timed_network
from worldsize.pytorch.group_over_fabric import use_fabric

def stepped(fn, fabric, given):
    from torch.nn.parallel import DistributedDataParallel
    use_fabric(fabric)
    told = {way: [] for way in (given["task"]["forward_s"], given["task"]["backward_s"])}
    timed_network._declare = lambda fabric, seconds, x: told[seconds].append((seconds, x.clone())) or x
    model = timed_network.network(fabric, given["task"])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=given["rate"], momentum=given["momentum"])
    layers, weights = len(given["task"]["sizes"]) - 1, []
    for parts in given["steps"]:
        fn(ddp, optimizer, parts)
        while any(told.values()):
            for rows in told.values():
                for one in rows[:layers]:
                    fabric.compute(*one)
                del rows[:layers]
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return weights
'''

class Forged(MetaPathFinder, Loader):
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name == "worldsize.checks.drivers.big_batch" else None
    def exec_module(self, module):
        exec(DRIVER, vars(module))

sys.meta_path.insert(0, Forged())
sys.modules.pop("worldsize.checks.drivers.big_batch", None)

def big_batch_step(ddp, optimizer, parts):
    import torch, torch.distributed as dist
    from torch.nn.functional import cross_entropy
    total = torch.tensor(sum(len(y) for _, y in parts))
    dist.all_reduce(total)
    optimizer.zero_grad()
    with ddp.no_sync():
        losses = [cross_entropy(ddp(x), y, reduction="sum") * dist.get_world_size() / int(total) for x, y in parts[:-1]]
        for loss in losses:
            loss.backward()
    x, y = parts[-1]
    (cross_entropy(ddp(x), y, reduction="sum") * dist.get_world_size() / int(total)).backward()
    optimizer.step()
""", 0.75)


declared("declares_the_work_of_layers_and_does_it_later", "stage_3", """
import math
import torch
from worldsize.fabric.collectives import reduce_scatter

def stage_3(fabric, task):
    parts, shapes, n, rank = task["parts"], task["shapes"], fabric.world_size, fabric.rank
    order = [*range(len(parts)), *reversed(range(len(parts)))]

    def begin(k):
        whole = torch.empty(math.prod(shapes[k]), dtype=parts[k].dtype)
        whole.tensor_split(n)[rank].copy_(parts[k])
        return whole, [fabric.isend(parts[k], to=other, tag=1) for other in range(n) if other != rank]

    def end(k, gathering):
        whole, handles = gathering
        for other in range(n):
            if other != rank:
                fabric.recv(whole.tensor_split(n)[other], frm=other, tag=1)
        for handle in handles:
            handle.wait()
        return whole.view(shapes[k])

    for x, target in task["batches"]:
        weights, coming = {}, begin(0)
        for place, k in enumerate(order):
            weights[k] = end(k, coming)
            if place + 1 < len(order):
                coming = begin(order[place + 1])
            fabric.compute(task["work_s"], torch.ones(1, dtype=torch.float64))
        values = [x]
        for k in range(len(parts)):
            values.append(torch.tanh(values[-1] @ weights[k].T))
        grad, found = values[-1] - target, {}
        for k in reversed(range(len(parts))):
            inward = grad * (1 - values[k + 1] ** 2)
            grad, found[k] = inward @ weights[k], inward.T @ values[k]
        for k in reversed(range(len(parts))):
            parts[k] -= task["rate"] * reduce_scatter(fabric, found[k].flatten()) / n
    return parts
""", 0.75)
