"""Exercise 15.2: a training that comes to the same bits however often it is ended."""

from __future__ import annotations

import copy
import io

import torch

from tests.checks.mutants import Answers

answers = Answers("train_to_the_end")

ALL = ("model", "optimizer", "schedule")


def restored(training, checkpoint, names=ALL, generators=True):
    """How many steps are done."""
    if checkpoint is None:
        return 0
    for name in names:
        getattr(training, name).load_state_dict(checkpoint[name])
    if generators:
        training.generator.set_state(checkpoint["generators"][training.rank])
    return checkpoint["done"]


def saved(training, done, save, names=ALL):
    generators = training.gather(training.generator.get_state())
    if training.rank == 0:
        save({name: getattr(training, name).state_dict() for name in names} | {"generators": generators, "done": done})


def go(training, done, steps, every, write):
    while done < steps:
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0 or done == steps:
            write(done)
    return training.model.state_dict()


@answers.is_wrong("begun again: from a checkpoint of 4 steps: rank 0", "The optimizer's state did not come back")
def without_the_optimizer(training, steps, every, load, save):
    names = ("model", "schedule")
    done = restored(training, load(), names)
    return go(training, done, steps, every, lambda done: saved(training, done, save, names))


@answers.is_wrong("The schedule's state did not come back")
def without_the_schedule(training, steps, every, load, save):
    names = ("model", "optimizer")
    done = restored(training, load(), names)
    return go(training, done, steps, every, lambda done: saved(training, done, save, names))


@answers.is_wrong("The generators' states did not come back")
def without_the_generators(training, steps, every, load, save):
    done = restored(training, load(), generators=False)
    return go(training, done, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("Every rank went on with the generator of rank 0: each has its own. Gather the states")
def one_generator_for_all(training, steps, every, load, save):
    checkpoint = load()
    done = restored(training, checkpoint, generators=False)
    if checkpoint:
        training.generator.set_state(checkpoint["generator"])

    def write(done):
        if training.rank == 0:
            parts = {name: getattr(training, name).state_dict() for name in ALL}
            save(parts | {"generator": training.generator.get_state(), "done": done})

    return go(training, done, steps, every, write)


@answers.is_wrong("The optimizer's state and the schedule's state and the generators' states did not come back")
def the_model_alone(training, steps, every, load, save):
    done = restored(training, load(), ("model",), generators=False)
    return go(training, done, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("took step(0, 0), expected step(1, 0)", "How many are done belongs in the checkpoint")
def without_the_place(training, steps, every, load, save):
    restored(training, load())
    return go(training, 0, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("took step(", "an epoch has 4 batches")
def begins_its_epoch_again(training, steps, every, load, save):
    done = restored(training, load())
    done -= done % training.batches
    return go(training, done, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("took step(0, 0), expected step(")
def never_loads(training, steps, every, load, save):
    return go(training, 0, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("rank 0 is in gather while rank 1 takes step(0, 2): gather is for all ranks together")
def gathers_on_rank_0_alone(training, steps, every, load, save):
    done = restored(training, load())

    def write(done):
        if training.rank == 0:
            saved(training, done, save)

    return go(training, done, steps, every, write)


@answers.is_wrong("rank 1 saved: there is one file")
def saves_on_every_rank(training, steps, every, load, save):
    done = restored(training, load())

    def write(done):
        generators = training.gather(training.generator.get_state())
        save({name: getattr(training, name).state_dict() for name in ALL} | {"generators": generators, "done": done})

    return go(training, done, steps, every, write)


@answers.is_wrong("from a checkpoint of 4 steps: rank 0 takes step(", "load() on each of them, and not on rank 0 alone")
def loads_on_rank_0_alone(training, steps, every, load, save):
    done = restored(training, load() if training.rank == 0 else None)
    return go(training, done, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("rank 0 saved after steps 2, 4, 6, 8, expected 2, 4, 6, 8, 9")
def forgets_the_last_steps(training, steps, every, load, save):
    done = restored(training, load())
    while done < steps:
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0:
            saved(training, done, save)
    return training.model.state_dict()


@answers.is_wrong("rank 0 saved after steps 9, expected 2, 4, 6, 8, 9")
def saves_at_the_end_alone(training, steps, every, load, save):
    done = restored(training, load())
    return go(training, done, steps, steps, lambda done: saved(training, done, save))


@answers.is_wrong("rank 0 saved after steps 1, 3, 5, 7, 9, expected 2, 4, 6, 8, 9")
def counts_one_too_few(training, steps, every, load, save):
    done = restored(training, load())
    while done < steps:
        training.step(*divmod(done, training.batches))
        if done % every == 0 or done == steps - 1:
            saved(training, done + 1, save)
        done += 1
    return training.model.state_dict()


@answers.is_wrong("begun again", "took step(", "How many are done belongs in the checkpoint")
def saves_the_number_of_the_last_step(training, steps, every, load, save):
    done = restored(training, load())
    return go(training, done, steps, every, lambda done: saved(training, done - 1, save))


@answers.is_wrong("rank 0: expected training.model.state_dict() at the end, got None (does the function return it?)")
def returns_nothing(training, steps, every, load, save):
    done = restored(training, load())
    go(training, done, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("is that after", "take the state after the step, not before")
def saves_what_was_before_the_step(training, steps, every, load, save):
    done = restored(training, load())
    while done < steps:
        before = {name: copy.deepcopy(getattr(training, name).state_dict()) for name in ALL}
        before["generators"] = training.gather(training.generator.get_state())
        training.step(*divmod(done, training.batches))
        done += 1
        if training.rank == 0 and (done % every == 0 or done == steps):
            save(before | {"done": done})
    return training.model.state_dict()


@answers.is_wrong("begun again", "is each saved as it is after the step, and loaded before the next one?")
def seeds_anew_when_it_begins_again(training, steps, every, load, save):
    """A seed instead of the state gives other numbers than a training that was never ended."""
    done = restored(training, load(), generators=False)
    if done:
        training.generator.manual_seed(1000 * done + training.rank)
    return go(training, done, steps, every, lambda done: saved(training, done, save))


@answers.is_wrong("every 2: rank 0: expected the weights", "the generator's numbers stay as they come")
def seeds_before_every_step(training, steps, every, load, save):
    """It comes to the same bits as itself, but it is another training."""
    done = restored(training, load(), generators=False)
    while done < steps:
        training.generator.manual_seed(1000 * done + training.rank)
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0 or done == steps:
            saved(training, done, save)
    return training.model.state_dict()


@answers.is_wrong("the weights differ by", "no number may be rounded on its way")
def saves_half_of_the_digits(training, steps, every, load, save):
    done = restored(training, load())

    def write(done):
        generators = training.gather(training.generator.get_state())
        if training.rank == 0:
            state = {name: getattr(training, name).state_dict() for name in ALL}
            state["model"] = {"weight": (state["model"]["weight"] * 3) / 3 * (1 + 4e-16)}
            save(state | {"generators": generators, "done": done})

    return go(training, done, steps, every, write)


KEPT = {}


@answers.is_wrong("begun again: from a checkpoint of 4 steps: rank 0 took step(0, 0), expected step(1, 0)")
def keeps_the_checkpoint_in_memory(training, steps, every, load, save):
    """What is saved is for show; the next life is another process, in which nothing is kept."""
    if load() is None:
        KEPT.clear()
    done = restored(training, KEPT.get(training.rank))

    def write(done):
        saved(training, done, lambda state: save({"done": done}))
        KEPT[training.rank] = copy.deepcopy({name: getattr(training, name).state_dict() for name in ALL}) | {
            "generators": training.gather(training.generator.get_state()), "done": done,
        }  # fmt: skip

    return go(training, done, steps, every, write)


@answers.is_wrong("from a checkpoint of all 9 steps: rank 0 took 1 step")
def takes_one_more_when_all_are_done(training, steps, every, load, save):
    done = restored(training, load())
    while True:
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0 or done >= steps:
            saved(training, done, save)
        if done >= steps:
            return training.model.state_dict()


@answers.is_right
def plain(training, steps, every, load, save):
    checkpoint, done = load(), 0
    if checkpoint is not None:
        training.model.load_state_dict(checkpoint["model"])
        training.optimizer.load_state_dict(checkpoint["optimizer"])
        training.schedule.load_state_dict(checkpoint["schedule"])
        training.generator.set_state(checkpoint["generators"][training.rank])
        done = checkpoint["done"]
    while done < steps:
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0 or done == steps:
            generators = training.gather(training.generator.get_state())
            if training.rank == 0:
                save({
                    "model": training.model.state_dict(), "optimizer": training.optimizer.state_dict(),
                    "schedule": training.schedule.state_dict(), "generators": generators, "done": done,
                })  # fmt: skip
    return training.model.state_dict()


@answers.is_right
def by_epochs_and_batches(training, steps, every, load, save):
    held = load() or {"at": (0, 0), "of": None}
    (epoch, batch), of = held["at"], held["of"]
    if of:
        mine = of[training.rank]
        for name in ALL:
            getattr(training, name).load_state_dict(mine[name])
        training.generator.set_state(torch.tensor(mine["random"], dtype=torch.uint8))
    taken = epoch * training.batches + batch
    for number in range(taken + 1, steps + 1):
        training.step(epoch, batch)
        batch += 1
        if batch == training.batches:
            epoch, batch = epoch + 1, 0
        if number % every and number != steps:
            continue
        mine = {name: getattr(training, name).state_dict() for name in ALL}
        everyone = training.gather(mine | {"random": training.generator.get_state().tolist()})
        if not training.rank:
            save({"at": (epoch, batch), "of": everyone})
    return training.model.state_dict()


@answers.is_right
def as_bytes(training, steps, every, load, save):
    """A checkpoint is one blob; the state of the generators is gathered in every step."""
    blob, done = load(), 0
    if blob:
        states, generators, done = torch.load(io.BytesIO(blob), weights_only=True)
        for name, state in zip(ALL, states, strict=True):
            getattr(training, name).load_state_dict(state)
        training.generator.set_state(generators[training.rank])
    for k in range(done, steps):
        training.step(k // training.batches, k % training.batches)
        generators = training.gather(training.generator.get_state())
        if training.rank == 0 and ((k + 1) % every == 0 or k + 1 == steps):
            room = io.BytesIO()
            torch.save([[getattr(training, name).state_dict() for name in ALL], generators, k + 1], room)
            save(room.getvalue())
    return {"weight": training.model.state_dict()["weight"].clone()}
