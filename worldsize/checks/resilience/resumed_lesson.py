"""A training that ends and resumes, in NumPy: a check gets the weights that `drivers.resumed_training` should give.

The state can be taken at any step, and be put together from parts of different lives.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks.drivers.resumed_training import MOMENTUM, NOISE, rate_at
from worldsize.checks.kit.judge import ranks_in_words

INPUTS, EPOCHS, MOST_DRAWS = 3, 4, 300
PARTS = ("the model", "the optimizer's state", "the schedule's state", "the generators' states")


@dataclass(frozen=True)
class ResumePlan:
    """A plan of trainings: `ends` has, for each training, after how many steps each life is ended; the last life is not.

    A resumed life saves every `again_every` steps, unless that is 0.
    """

    world_size: int
    steps: int
    every: int
    batches: int
    ends: tuple[tuple[int, ...], ...]
    again_every: int = 0

    def every_of(self, life: int) -> int:
        if life == 0 or self.again_every == 0:
            return self.every
        return self.again_every

    @override
    def __str__(self) -> str:
        again = f", later every {self.again_every}" if self.again_every else ""
        return f"{ranks_in_words(self.world_size)}, {self.steps} steps, a checkpoint every {self.every}{again}"


@dataclass(frozen=True)
class Life:
    """The state that a resumed training's life begins with where there is no checkpoint. `seeds[r]` is rank r's."""

    weight: np.ndarray
    momentum: np.ndarray
    last_step: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class State:
    """All of a resumed training at a given moment. `noises[r]` is (seed, numbers drawn so far) of rank r's generator."""

    parts: tuple[np.ndarray, np.ndarray, int, tuple[tuple[int, int], ...]]  # in the order of PARTS
    done: int = 0


@dataclass(frozen=True)
class Lesson:
    """A training to resume, with its data: x [epochs, batches, ranks, inputs], y without the last dimension."""

    plan: ResumePlan
    x: np.ndarray
    y: np.ndarray
    rate: float
    lives: tuple[Life, ...]

    def case(self, life: int, ends: int, file: np.ndarray, done: int, rank: int) -> dict[str, Any]:
        """Return a rank's input for a life of the lesson that begins after `done` steps and takes `ends` of them, -1 for all.

        Examples of other ranks and of other lives are NaN, so no life can go beyond its end, or back to the beginning.
        """
        begun = self.lives[life]
        until = self.plan.steps if ends < 0 else min(self.plan.steps, done + ends)
        own = np.zeros(self.y.shape, bool)
        for step in range(done, until):
            own[(*divmod(step, self.plan.batches), rank)] = True

        return {
            "steps": self.plan.steps, "every": self.plan.every_of(life), "ends": ends, "file": file,
            "x": np.where(own[..., None], self.x, np.nan), "y": np.where(own, self.y, np.nan),
            "rate": self.rate, "weight": begun.weight, "momentum": begun.momentum, "last_step": begun.last_step,
            "seeds": [seed if of == rank else 0 for of, seed in enumerate(begun.seeds)],
        }  # fmt: skip

    def fresh(self, life: int) -> State:
        begun = self.lives[life]
        return State((begun.weight, begun.momentum, begun.last_step, tuple((seed, 0) for seed in begun.seeds)))

    def advanced(self, state: State, until: int) -> State:
        """Return the state when `until` steps are done, as `resumed_training.Training` computes it, in NumPy."""
        weight, momentum, last_step, noises = state.parts
        for done in range(state.done, until):
            epoch, batch = divmod(done, self.plan.batches)
            slopes = []
            for rank, (seed, drawn) in enumerate(noises):
                x = self.x[epoch, batch, rank] + NOISE * noise(seed)[drawn]
                slopes.append(2 * x * (x @ weight - self.y[epoch, batch, rank]))
            momentum = MOMENTUM * momentum + np.mean(slopes, axis=0)
            weight = weight - rate_at(self.rate, last_step) * momentum
            last_step += 1
            noises = tuple((seed, drawn + 1) for seed, drawn in noises)

        return State((weight, momentum, last_step, noises), until)


@lru_cache(64)
def noise(seed: int) -> np.ndarray:
    """Return the draws of a rank's generator in a lesson that resumes: [MOST_DRAWS, inputs]."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return np.stack([torch.randn(INPUTS, generator=generator, dtype=torch.float64).numpy() for _ in range(MOST_DRAWS)])


def drawn_lesson(plan: ResumePlan, draws: np.random.Generator) -> Lesson:
    shape = (EPOCHS, plan.batches, plan.world_size)
    x = draws.normal(size=(*shape, INPUTS))
    y = x @ draws.normal(size=INPUTS) + draws.normal(size=shape)
    lives = []
    for life in range(1 + max(map(len, plan.ends))):
        seeds = tuple(draws.integers(1, 2**31, plan.world_size).tolist())
        lives.append(Life(draws.normal(size=INPUTS) + life, draws.normal(size=INPUTS), 11 * life, seeds))
    return Lesson(plan, x, y, float(draws.uniform(0.02, 0.04)), tuple(lives))
