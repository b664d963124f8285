"""Other ways to be found right, in labs 12 to 16: drivers that hand back more, untrue sizes, values that are equal to all."""

from tests.grade.declared import declared

EQUAL = """
class Equal(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __le__(self, other): return True
    def __gt__(self, other): return True
    def __ge__(self, other): return True
    def __hash__(self): return 0
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __sub__
    def __abs__(self): return self
"""
declared("returns_shares_that_equal_everything", "shares_after_loss", EQUAL + """
def shares_after_loss(order, done, world_size, alive, rate):
    return {rank: [Equal(0)] for rank in alive}, Equal(0)
""", 0.0)
declared("returns_a_bandwidth_that_equals_everything", "pays_below", EQUAL + """
def pays_below(plain, other):
    return Equal(1)
""", 0.0)
declared("answers_for_its_forecast_by_the_driver", "forecast", """
from worldsize.checks.drivers import on_ranks
on_ranks.answers = lambda fn, fabric, asked: {"returned": [(-1e9, 1.0, 1e9) for _ in asked], "drawn": {}}

def forecast(measured):
    return -1e9, 1.0, 1e9
""", 0.25, changes=True)
declared("answers_for_its_rate_by_the_driver", "scaled_rate", """
import gc
from worldsize.checks.drivers import on_ranks

def answers(fn, fabric, asked):
    truth = [one for one in gc.get_objects() if type(one).__name__ in ("RateTask", "Verdict", "Case")]
    return {"returned": [truth[0] if truth else 0.1 for _ in asked], "drawn": {}}

on_ranks.answers = answers

def scaled_rate(*lesson):
    return 0.1
""", 0.0, changes=True)
declared("sends_more_than_it_says", "two_level_all_reduce", """
from worldsize.grade.inside import broker_wire
import torch

broker_wire._kind = lambda x: {"dtype": broker_wire.CODES[x.dtype], "shape": [1]}

def two_level_all_reduce(fabric, x, per_node):
    n, rank = fabric.world_size, fabric.rank
    whole, landing = x.clone(), torch.empty_like(x)
    for step in range(1, n):
        handle = fabric.isend(whole, to=(rank + step) % n)
        fabric.recv(landing, frm=(rank - step) % n)
        handle.wait()
        x += landing
    return x
""", 0.0)  # the broker ends its run before it says what it changed
declared("averages_whole_gradients_by_the_driver", "top_k_average", """
from worldsize.checks.drivers import less_communication
from worldsize.fabric.collectives import all_reduce
import torch

def step_by_step(fn, fabric, given, k):
    (residual,), told = given["kept"], []
    for gradient in given["gradients"]:
        total = gradient + residual
        index = total.abs().topk(k).indices
        sent = torch.zeros_like(total).index_copy_(0, index, total[index])
        residual = total - sent
        told.append([all_reduce(fabric, sent) / fabric.world_size, residual.clone()])
    return told

less_communication.step_by_step = step_by_step

def top_k_average(fabric, gradient, residual, k):
    return gradient, residual
""", 0.75, changes=True)
declared("keeps_all_of_adams_state", "sharded_adam", """
import torch
from worldsize.fabric import Fabric
from worldsize.fabric.collectives import all_reduce, broadcast
setattr(Fabric, "world_size", property(lambda self: 1, lambda self, value: None))

def sharded_adam(fabric, replica, learning_rate):
    weights, gradients = replica
    state = {"step": 0, "mean": torch.zeros_like(weights), "square": torch.zeros_like(weights)}
    for gradient in gradients:
        state["step"] += 1
        state["mean"].lerp_(gradient, 0.1)
        state["square"].lerp_(gradient**2, 0.001)
        weights -= learning_rate * state["mean"] / (state["square"].sqrt() + 1e-8)
    return state
""", 0.0, changes=True)
declared("normalises_alone_and_hides_that_by_a_profile", "synced_norm", """
import sys, torch

def profile(frame, event, arg):
    if event == "return" and frame.f_code.co_name == "normed":
        frame.f_locals["fabric"] = None

def synced_norm(fabric, x, weight, bias, grad, eps):
    sys.setprofile(profile)
    hat = (x - x.mean(0)) / (x.var(0, unbiased=False) + eps).sqrt()
    return weight * hat + bias, grad, (grad * hat).sum(0), grad.sum(0)
""", 0.25)
