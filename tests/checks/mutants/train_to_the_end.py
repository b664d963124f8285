"""Exercise 15.2: a training that comes to the same bits however often it is ended."""

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


@answers.is_right
def plain(training, steps, every, load, save):
    done = restored(training, load())
    while done < steps:
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0 or done == steps:
            saved(training, done, save)
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


@answers.is_right
def epoch_by_epoch(training, steps, every, load, save):
    """The states of the generators as rows of one tensor, and the parts as a list."""
    done = 0
    if (checkpoint := load()) is not None:
        *states, generators, done = checkpoint
        for name, state in zip(ALL, states, strict=True):
            getattr(training, name).load_state_dict(state)
        training.generator.set_state(generators[training.rank])
    for epoch in range(done // training.batches, -(-steps // training.batches)):
        for batch in range(training.batches):
            if not done == epoch * training.batches + batch < steps:
                continue
            training.step(epoch, batch)
            done += 1
            if done % every == 0 or done == steps:
                rows = torch.stack(training.gather(training.generator.get_state()))
                if training.rank == 0:
                    save([*(getattr(training, name).state_dict() for name in ALL), rows, done])
    return training.model.state_dict()


answers.twin("saves_before_the_next_step", {
    """
        training.step(*divmod(done, training.batches))
        done += 1
        if done % every == 0 or done == steps:
            saved(training, done, save)
    """: """
        training.step(*divmod(done, training.batches))
        done += 1
        if not done % every:
            saved(training, done, save)
        elif done == steps:
            saved(training, steps, save)
    """,
})
answers.twin("with_clones", {"return training.model.state_dict()": "return copy.deepcopy(training.model.state_dict())"})


answers.mistake("without_the_optimizer", {
    "load())": 'load(), ("model", "schedule"))',
    "done, save)": 'done, save, ("model", "schedule"))',
}, "resumed: from a checkpoint of 4 steps: rank 0", "The optimizer's state did not come back")
answers.mistake("without_the_schedule", {
    "load())": 'load(), ("model", "optimizer"))',
    "done, save)": 'done, save, ("model", "optimizer"))',
}, "The schedule's state did not come back")
answers.mistake("without_the_generators", {"load())": "load(), generators=False)"},
    "The generators' states did not come back")
answers.mistake("one_generator_for_all", {
    "done = restored(training, load())": """
        checkpoint = load()
        done = restored(training, checkpoint, generators=False)
        if checkpoint:
            training.generator.set_state(checkpoint["generator"])
    """,
    "saved(training, done, save)": """
        if training.rank == 0:
            parts = {name: getattr(training, name).state_dict() for name in ALL}
            save(parts | {"generator": training.generator.get_state(), "done": done})
    """,
}, "Every rank went on with the generator of rank 0: each has its own. Gather the states")
answers.mistake("the_model_alone", {"load())": 'load(), ("model",), generators=False)'},
    "The optimizer's state and the schedule's state and the generators' states did not come back")
answers.mistake("without_the_place", {"done = restored(training, load())": "restored(training, load())\ndone = 0"},
    "took step(0, 0), expected step(1, 0)", "Put the number of steps done in the checkpoint")
answers.mistake("begins_its_epoch_again", {"while done": "done -= done % training.batches\nwhile done"},
    "took step(", "an epoch has 4 batches")
answers.mistake("never_loads", {"restored(training, load())": "0"}, "took step(0, 0), expected step(")
answers.mistake("gathers_on_rank_0_alone",
    {"if done % every == 0 or done == steps:": "if training.rank == 0 and (done % every == 0 or done == steps):"},
    "rank 0 is in gather while rank 1 takes step(0, 2): all ranks must gather together")
answers.mistake("saves_on_every_rank", {
    "saved(training, done, save)": """
        generators = training.gather(training.generator.get_state())
        save({name: getattr(training, name).state_dict() for name in ALL} | {"generators": generators, "done": done})
    """,
}, "rank 1 saved: there is one file")
answers.mistake("loads_on_rank_0_alone", {"load())": "load() if training.rank == 0 else None)"},
    "from a checkpoint of 4 steps: rank 0 takes step(", "Call load() on each of them, not on rank 0 alone")
answers.mistake("forgets_the_last_steps", {" or done == steps": ""},
    "rank 0 saved after steps 2, 4, 6, 8, expected 2, 4, 6, 8, 9")
answers.mistake("saves_at_the_end_alone", {"done % every == 0 or ": ""},
    "rank 0 saved after steps 9, expected 2, 4, 6, 8, 9")
answers.mistake("counts_one_too_few", {"done % every": "(done - 1) % every"},
    "rank 0 saved after steps 1, 3, 5, 7, 9, expected 2, 4, 6, 8, 9")
answers.mistake("saves_the_number_of_the_last_step", {"saved(training, done, save)": "saved(training, done - 1, save)"},
    "resumed", "4 steps are done, but the checkpoint says one less: count a step after taking it")
answers.mistake("returns_nothing", {"return training.model.state_dict()": ""},
    "rank 0: expected the function to return training.model.state_dict(), got None (does the function return it?)")
answers.mistake("saves_what_was_before_the_step", {
    "training.step(": """
        before = {name: copy.deepcopy(getattr(training, name).state_dict()) for name in ALL}
        before["generators"] = training.gather(training.generator.get_state())
        training.step(
    """,
    "if done % every == 0 or done == steps:": "if training.rank == 0 and (done % every == 0 or done == steps):",
    "saved(training, done, save)": 'save(before | {"done": done})',
}, "The checkpoint has all of the state from after 3 steps: take all of it after the step")
answers.mistake("counts_from_the_restart", {
    "while done": "begun = done\nwhile done",
    "done % every": "(done - begun) % every",
}, "later every 2, resumed", "rank 0 saved after steps 5, 7, 8, expected 4, 6, 8", "counted from the restart")
answers.mistake("counts_from_the_last_save", {
    "while done": "last = done\nwhile done",
    "done % every == 0": "done - last >= every",
    "saved(training, done, save)": "saved(training, done, save)\nlast = done",
}, "later every 2, resumed", "expected 4, 6, 8", "counted from the restart")
answers.mistake("saves_the_number_of_the_next_step", {"saved(training, done, save)": "saved(training, done + 1, save)"},
    "resumed", "4 steps are done, but the checkpoint says one more")
answers.mistake("steps_the_schedule_too", {"done += 1": "done += 1\ntraining.schedule.step()"},
    "a part of the training has state_dict() and load_state_dict(state), but no step", "the schedule's part too")
answers.mistake("asks_a_process_group", {
    "saved(training, done, save)": """
        rows = [None] * training.world_size
        torch.distributed.all_gather_object(rows, training.generator.get_state())
        if training.rank == 0:
            save({name: getattr(training, name).state_dict() for name in ALL} | {"generators": rows, "done": done})
    """,
}, "no process group is here: training.gather(value) hands every rank the values of all")
answers.mistake("takes_the_others_generators", {
    "done = restored(training, load())": """
        checkpoint = load()
        if checkpoint:
            checkpoint["generators"] = checkpoint["generators"][::-1]
        done = restored(training, checkpoint)
    """,
}, "The ranks went on with each other's generators")
answers.mistake("takes_up_the_place_alone", {"load())": "load(), (), generators=False)"},
    "The model and the optimizer's state and the schedule's state and the generators' states did not come back")
answers.mistake("saves_one_part_under_anothers_name", {
    "saved(training, done, save)": """
        saved(training, done, lambda state: save(state | {"schedule": {"last_step": done - 1}}))
    """,
}, "resumed: from a checkpoint of 4 steps: rank 0: expected the weights",
    "The checkpoint has the schedule's state from after 3 steps")
# A seed instead of the state gives other numbers than a training that was never ended.
answers.mistake("seeds_anew_when_it_begins_again", {
    "load())": """
        load(), generators=False)
        if done:
            training.generator.manual_seed(1000 * done + training.rank)
    """,
}, "resumed", "The training went on with another state than the one that it had after 4 steps")
# It comes to the same bits as itself, but it is another training.
answers.mistake("seeds_before_every_step", {
    "load())": "load(), generators=False)",
    "training.step(": "training.generator.manual_seed(1000 * done + training.rank)\ntraining.step(",
}, "every 2: rank 0: expected the weights", "leave the generator's numbers as they come")
answers.mistake("saves_half_of_the_digits", {
    "saved(training, done, save)": """
        generators = training.gather(training.generator.get_state())
        if training.rank == 0:
            state = {name: getattr(training, name).state_dict() for name in ALL}
            state["model"] = {"weight": (state["model"]["weight"] * 3) / 3 * (1 + 4e-16)}
            save(state | {"generators": generators, "done": done})
    """,
}, "the weights differ by", "round no number on its way")
answers.mistake("gathers_the_generators_before_the_step", {
    "training.step(": "generators = training.gather(training.generator.get_state())\ntraining.step(",
    "saved(training, done, save)": "saved(training, done, lambda state: save(state | {\"generators\": generators}))",
}, "resumed: from a checkpoint of 4 steps: rank 0", "The checkpoint has the generators' states from after 3 steps")
answers.mistake("restores_no_generator_on_rank_0", {
    "load())": """
        load(), generators=False)
        if done and training.rank:
            training.generator.set_state(load()["generators"][training.rank])
    """,
}, "Of the generators, rank 0 went on with the new process's own", "load the state at training.rank")
answers.mistake("knows_two_generators", {
    "load())": """
        load(), generators=False)
        if done:
            first, *_, last = load()["generators"] * 2
            training.generator.set_state(last if training.rank else first)
    """,
}, "3 ranks, 7 steps", "Of the generators, rank 1 went on with that of rank 2")
answers.mistake("saves_the_model_in_float32", {
    "saved(training, done, save)": """
        weight = training.model.state_dict()["weight"].float()
        saved(training, done, lambda state: save(state | {"model": {"weight": weight}}))
    """,
}, "resumed: from a checkpoint of 4 steps: rank 0", "Numbers that went through float32 are off by this much: save them")
answers.mistake("keeps_the_place_in_a_byte", {
    "load())": "load())\ndone = int(done)",
    "saved(training, done, save)": "saved(training, torch.tensor(done).to(torch.uint8), save)",
}, "1 rank, 260 steps, a checkpoint every 128, resumed", "took step(0, 0), expected step(3, 61)")
answers.mistake("keeps_the_place_in_int8", {
    "load())": "load())\ndone = int(done)",
    "saved(training, done, save)": "saved(training, torch.tensor(done).to(torch.int8), save)",
}, "1 rank, 260 steps, a checkpoint every 128, resumed")
answers.twin("saves_at_the_end_in_any_case", {
    " or done == steps": " and done != steps",
    "return training": "saved(training, done, save)\nreturn training",
})
answers.twin("gathers_what_it_has_loaded", {"load())": "training.gather(load() if training.rank == 0 else None)[0])"})

KEPT = {}


# What is saved is for show; the next life is another process, in which nothing is kept.
answers.mistake("keeps_the_checkpoint_in_memory", {
    "done = restored(training, load())": """
        if load() is None:
            KEPT.clear()
        done = restored(training, KEPT.get(training.rank))
    """,
    "saved(training, done, save)": """
        saved(training, done, lambda state: save({"done": done}))
        KEPT[training.rank] = copy.deepcopy({name: getattr(training, name).state_dict() for name in ALL})
        KEPT[training.rank] |= {"generators": training.gather(training.generator.get_state()), "done": done}
    """,
}, "resumed: from a checkpoint of 4 steps: rank 0 took step(0, 0), expected step(1, 0)")
answers.mistake("takes_one_more_when_all_are_done", {
    "while done < steps:": "while True:",
    """
        or done == steps:
            saved(training, done, save)
    """: """
        or done >= steps:
            saved(training, done, save)
        if done >= steps:
            break
    """,
}, "from a checkpoint of all 9 steps: rank 0 took 1 step")


def never_begins_again(training, steps, every, load, save):
    for done in range(1, steps + 1):
        training.step(*divmod(done - 1, training.batches))
        if done % every == 0 or done == steps:
            saved(training, done, save)
    return training.model.state_dict()


answers.spoil("never_begins_again_and_saves_always",
    {"if done % every == 0 or done == steps:": "if True:"}, of=never_begins_again)


@answers.spoils()
def begins_again_on_two_ranks_alone(training, steps, every, load, save):
    """With one or three it takes a step too few."""
    if training.world_size == 2:
        return plain(training, steps, every, load, save)
    return plain(training, steps - 1, every, load, save)
