"""Whatever a student's function returns, a check has words for it: no answer, however odd, breaks a check."""

import functools
import random
from collections.abc import Callable
from importlib import import_module
from inspect import getsource

import numpy as np

from worldsize.arrays import plain, tensors
from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import ArenaResult, of_rank
from worldsize.checks.drivers import killed_writer
from worldsize.checks.overlap import gradient_averaging
from worldsize.trace import Trace, Transfer

ODD = {
    "nothing": None,
    "a number": 3,
    "NaN": float("nan"),
    "text": "3",
    "a tensor of no dimension": np.array(3),
    "an empty list": (),
    "lists of unequal lengths": ((1, 2), (3,)),
    "tensors of no dimension": (np.array(1), np.array(2), np.array(3)),
    "a tensor of one number": np.ones(1),
    "numbers that are NaN": np.full((3, 2), np.nan),
    "tensors of unequal lengths": (np.ones(2), np.ones(3), np.ones(0)),
    "a dict of lists": {"weights": (None,), "raised": (1,), "index": ((),)},
    "pairs with tensors in them": ((np.ones(2), 1), (np.ones(2), np.array(1))),
    "a table of lists": (((1, 2), (3,)), ((4,), ())),
}

# in TensorFlow, where DDP or an optimizer trains, and where writers are killed, it is a driver of the check's own that answers
BY_THE_CHECK = {"big_batch_step", "save_atomically", "sharded_optimizer", "wrap_module"}
ANSWERED = [
    name
    for name, module in CHECKS.items()
    if name not in BY_THE_CHECK
    and (not module.startswith("tensorflow") or "driver=" not in getsource(import_module(f"worldsize.checks.{module}")))
]


class Alone:
    """The fabric of one rank, for a driver that asks who it is and has nobody to send to."""

    rank, world_size = 0, 1


class _Answering:
    """An arena in which every function returns the same, and nothing is run. TensorFlow is not in it.

    `emptied`: the function has taken everything out of the lists and dicts that it was given. `sent`: its messages.
    """

    def __init__(self, odd: object, emptied: bool = False, sent: tuple[Transfer, ...] = ()) -> None:
        self.odd, self.emptied, self.sent, self.draws = odd, emptied, sent, random.Random(0)

    def call(self, fn, *args):
        given = [type(x)() if self.emptied and isinstance(x, (list, dict)) else x for x in args]
        return ArenaResult("done", returned=(self.odd,), inputs=tuple(map(plain, given)))

    def ranks(self, fn, inputs, *more, link=None, played=(), driver=None):
        if driver:
            return self._driven(driver, inputs, more)
        told_to_stop = (np.array([-1.0]),)  # what a played worker returns
        returned = tuple(told_to_stop if rank in played else self.odd for rank in range(len(inputs)))
        if self.emptied:
            inputs = [type(x)() if isinstance(x, (list, dict)) else x for x in inputs]
        return ArenaResult("done", returned=returned, inputs=tuple(map(plain, inputs)), trace=Trace(len(inputs), self.sent))

    def _driven(self, driver, inputs, more):
        def answers(*given):
            for one in given:
                if self.emptied and isinstance(one, (list, dict)):
                    one.clear()
            return self.odd

        given = [tensors(x) for x in inputs]
        returned = [plain(driver(answers, Alone(), x, *map(tensors, of_rank(more, rank)))) for rank, x in enumerate(given)]
        return ArenaResult(
            "done", returned=tuple(returned), inputs=tuple(map(plain, given)), trace=Trace(len(inputs), self.sent)
        )

    def saves(self, fn, scenarios):
        return self.ranks(fn, [list(scenarios)], driver=killed_writer.tried)

    def group(self, fn, inputs, *more, driver=None):
        return self.ranks(fn, inputs)


def without_words(arenas: dict[str, Callable[[], _Answering]]) -> list[tuple[str, str, str]]:
    """(exercise, what its function returns, the verdict's state) where a check does not fail with words."""
    found = []
    for exercise in ANSWERED:
        for odd, arena in arenas.items():
            verdict = run_check(exercise, arena(), lambda: None)
            if verdict.state != "fail" or not verdict.mismatch:
                found.append((exercise, odd, verdict.state))
    return found


def test_odd_answers_fail_with_words():
    assert without_words({name: functools.partial(_Answering, odd) for name, odd in ODD.items()}) == []


def test_emptying_what_was_given_fails_with_words():
    assert without_words({"nothing": functools.partial(_Answering, None, emptied=True)}) == []


def test_messages_of_a_rank_that_is_alone_have_words(monkeypatch):
    monkeypatch.setattr(gradient_averaging, "EVERY", (gradient_averaging.ALONE,))
    to_itself = Transfer(0, 0, 4, 0.0, 1.0)
    verdict = run_check("flattened", _Answering(None, sent=(to_itself,)), lambda: None)
    assert verdict.state == "fail"
