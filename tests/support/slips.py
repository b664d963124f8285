"""Answers that are wrong in one way each, for the tests of how a check runs. A rank imports this module, so it is small."""

import os
import signal

import torch

from tests.checks.mutants import ring_all_reduce
from worldsize.errors import NotYet


def wrong_with_nine_ranks(fabric, x):
    ring_all_reduce.the_usual_way(fabric, x)
    if fabric.world_size == 9:
        x += 1


def kills_its_process_with_four_ranks(fabric, x):
    ring_all_reduce.the_usual_way(fabric, x)
    if fabric.world_size == 4:
        os.kill(os.getpid(), signal.SIGKILL)


def adds_up_what_comes_first(fabric, x):
    """Right where messages come in the order of the ranks: the last one to come is taken for the last rank's."""
    arrived = torch.empty_like(x)
    if fabric.rank != 0:
        fabric.send(x, to=0)
        fabric.recv(x, frm=0)
        return x
    own = x.clone()
    for source in range(1, fabric.world_size):
        if fabric.recv(arrived) != source:
            arrived.zero_()
        own += arrived
    x.copy_(own)
    for worker in range(1, fabric.world_size):
        fabric.send(x, to=worker)
    return x


def stub(fabric, x):
    raise NotYet("Exercise 6.5")
