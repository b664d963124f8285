"""A training that ends and resumes in another process, as a student's function sees it: parts, steps, checkpoints.

The model is linear. Each rank adds noise from its own generator to its examples, and a step takes the mean gradient, so the
weights depend on every part of every rank's state. Ranks that meet first compare where they are, so that none waits for a rank
that went another way. Left out: the expected weights (`checks.resilience`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from worldsize.fabric.interface import Fabric

DECAY, WARM_UP, MOMENTUM, NOISE = 0.97, 5, 0.8, 0.2
STEP, GATHER, END = range(3)
MOST_STEPS = 300  # of one life, in case a function never stops
NO_GROUP = "no process group is here: training.gather(value) hands every rank the values of all, and is the only way to others."


class Ended(BaseException):
    """The training's job ends here, to be resumed; a BaseException, so that no `except Exception` catches it."""


class OutOfStep(BaseException):
    """Ranks meet at different places of the training."""


class StatefulPart:
    """A part of a training, with the two methods that PyTorch's modules, optimizers and schedules have."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this part of a resumed training. As in PyTorch, its tensors are the part's own, not copies."""
        return dict(self._values)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load `state` into this part of a resumed training, tensors in place. Raises KeyError if `state` has other keys."""
        if not isinstance(state, dict) or set(state) != set(self._values):
            got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise KeyError(f"load_state_dict: expected a dict with {sorted(self._values)}, got {got}")
        for name, value in state.items():
            if isinstance(self._values[name], torch.Tensor):
                self._values[name].copy_(torch.as_tensor(value))
            else:
                self._values[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a part of the training has state_dict() and load_state_dict(state), but no {name}: training.step(epoch, batch) "
            f"does all of a step, the schedule's part too."
        )


class Generator(torch.Generator):
    """A resumed training's generator that also takes a row of a larger tensor as its state; PyTorch's would read past the row."""

    def set_state(self, state: torch.Tensor) -> None:
        super().set_state(state.clone())


class Training:
    """A rank's training in the exercise; the job ends before step number `ends` of this life, counted from 0."""

    def __init__(self, fabric: Fabric, case: dict[str, Any], tag: int) -> None:
        self.rank, self.world_size = fabric.rank, fabric.world_size
        self.model = StatefulPart(weight=case["weight"].clone())
        self.optimizer = StatefulPart(momentum=case["momentum"].clone())
        self.schedule = StatefulPart(last_step=int(case["last_step"]))
        self.generator = Generator().manual_seed(int(case["seeds"][self.rank]))
        self.batches = case["x"].shape[1]

        self._fabric, self._tag = fabric, tag
        self._x, self._y = case["x"], case["y"]  # [epochs, batches, ranks, inputs]; y lacks the last dimension
        self._rate, self._ends = float(case["rate"]), int(case["ends"])
        self.taken: list[tuple[int, int]] = []
        self.over = False

    def step(self, epoch: int, batch: int) -> None:
        """Take a training step with all ranks, each on its own example of batch number `batch` of `epoch`.

        A step changes the model, the optimizer, the schedule and this rank's generator. Raises IndexError for a batch that does
        not exist.
        """
        epoch, batch = int(epoch), int(batch)
        if self.over or len(self.taken) in (self._ends, MOST_STEPS):
            self.over = True
            raise Ended
        if not (0 <= epoch < len(self._x) and 0 <= batch < self.batches):
            most = f"an epoch below {len(self._x)} and a batch below {self.batches}"
            raise IndexError(f"step: expected {most}, got {epoch}, {batch}")

        weight, momentum = self.model["weight"], self.optimizer["momentum"]
        noise = NOISE * torch.randn(weight.shape, generator=self.generator, dtype=weight.dtype)
        x, y = self._x[epoch, batch, self.rank] + noise, self._y[epoch, batch, self.rank]
        own = 2 * x * ((x * weight).sum() - y)
        gradients = self._meet((STEP, epoch, batch), own)

        momentum.mul_(MOMENTUM).add_(sum(gradients) / self.world_size)
        weight.sub_(rate_at(self._rate, self.schedule["last_step"]) * momentum)
        self.schedule["last_step"] += 1
        self.taken.append((epoch, batch))

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks of the training, in their order, on every rank; all ranks must call it together."""
        if self.over:
            raise Ended
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        return [pickle.loads(got.numpy().tobytes()) for got in self._meet((GATHER, 0, 0), data)]

    def end(self) -> None:
        """Meet all ranks of the training, once the function has returned or the job has ended."""
        self._meet((END, 0, 0), torch.zeros(1))

    def _meet(self, place: tuple[int, int, int], own: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks of the training. Raises OutOfStep, on all ranks, if they are at different places."""
        header = torch.tensor([*place, len(own)])  # lengths too: gathered values may differ in size
        headers = self._exchange([header] * self.world_size, header)
        places = [tuple(row[:3].tolist()) for row in headers]
        for rank, other in enumerate(places):
            if other != places[0]:
                self.over = True
                raise OutOfStep(f"rank 0 {doing(places[0])} while rank {rank} {doing(other)}")
        return self._exchange([torch.empty(int(row[3]), dtype=own.dtype) for row in headers], own)

    def _exchange(self, rooms: list[torch.Tensor], own: torch.Tensor) -> list[torch.Tensor]:
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        handles = [self._fabric.isend(own, to=rank, tag=self._tag) for rank in others]
        got = list(map(torch.empty_like, rooms))
        got[self.rank] = own
        for rank in others:
            self._fabric.recv(got[rank], frm=rank, tag=self._tag)
        for handle in handles:
            handle.wait()
        return got


def rate_at(rate: float, steps: int) -> float:
    """Return the resumed training's scheduled rate: a linear warm-up, and a slow decay."""
    return rate * min(1.0, (steps + 1) / WARM_UP) * DECAY**steps


def doing(place: tuple[int, int, int]) -> str:
    kind, epoch, batch = place
    return {STEP: f"takes step({epoch}, {batch})", GATHER: "is in gather"}.get(kind, "has ended")


def lived(fn: Callable, fabric: Fabric, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run `fn(training, steps, every, load, save)` in every case, and return a row for each, on this rank.

    A case has "steps", "every", "ends" (-1: never), "file", the checkpoint as uint8, of length 0 for none, and what `Training`
    needs. A row has "how" it ended (returned, ended, apart), "words" on ranks apart, "returned", the steps "taken", how many
    had been at each "saved", and the last "file" that this rank saved, as uint8.
    """
    return [_life(fn, Training(fabric, case, tag), case) for tag, case in enumerate(cases)]


def _life(fn: Callable, training: Training, case: dict[str, Any]) -> dict[str, Any]:
    file = [case["file"].numpy().tobytes()]
    saved: list[int] = []

    def load() -> Any:
        return pickle.loads(file[-1]) if file[-1] else None

    def save(checkpoint: Any) -> None:
        if training.over:
            raise Ended
        file.append(pickle.dumps(checkpoint))
        saved.append(len(training.taken))

    row: dict[str, Any] = {"how": "returned", "returned": None, "words": ""}
    try:
        try:
            row["returned"] = fn(training, int(case["steps"]), int(case["every"]), load, save)
        except Ended:
            row["how"] = "ended"
        except RuntimeError as error:
            if "no process group is here" not in str(error):
                raise
            raise RuntimeError(NO_GROUP) from None
        if training.over and row["how"] == "returned":  # the function caught Ended and went on
            row["how"] = "ended"
        training.end()
    except OutOfStep as apart:
        row |= {"how": "apart", "words": str(apart)}

    left = file[-1] if saved else b""
    return row | {"taken": training.taken, "saved": saved, "file": np.frombuffer(left, "uint8").copy()}
