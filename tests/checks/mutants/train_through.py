"""Exercise 9.4: a training that outlives its parameter server."""

from __future__ import annotations

import os
import tempfile

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("train_through")


def rounds(coordinator, step, state, manager, steps, every):
    while int(state["step"]) < steps:
        for _ in range(min(every, steps - int(state["step"]))):
            coordinator.schedule(step)
        coordinator.join()
        manager.save()


def opened(state, folder):
    return tf.train.CheckpointManager(tf.train.Checkpoint(**state), folder, max_to_keep=2)


@answers.is_wrong("UnavailableError came through: catch it round schedule and join")
def catches_nothing(start, steps, every, folder):
    coordinator, step, state = start()
    manager = opened(state, folder)
    manager.restore_or_initialize()
    rounds(coordinator, step, state, manager, steps, every)
    return state


@answers.is_wrong("training began at step 0 though the folder holds a checkpoint of step 4", "After every start(), restore")
def never_restores(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        try:
            rounds(coordinator, step, state, opened(state, folder), steps, every)
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("and no end", "the old coordinator, step and state belong to a server that is gone")
def starts_again_with_the_old_ones(start, steps, every, folder):
    coordinator, step, state = start()
    manager = opened(state, folder)
    while True:
        manager.restore_or_initialize()
        try:
            rounds(coordinator, step, state, manager, steps, every)
            return state
        except tf.errors.UnavailableError:
            start()


@answers.is_wrong("10 steps ran without a checkpoint between them in `folder`, every=4")
def saves_at_the_end_alone(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            rounds(coordinator, step, state, manager, steps, steps)
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("the newest checkpoint at the end: expected it to hold step 10", "save after it")
def saves_before_the_join(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            while int(state["step"]) < steps:
                for _ in range(min(every, steps - int(state["step"]))):
                    coordinator.schedule(step)
                manager.save()
                coordinator.join()
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong('expected state["step"] to be 10 at the end, got 12', "The last round may be shorter")
def whole_rounds_only(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            while int(state["step"]) < steps:
                for _ in range(every):
                    coordinator.schedule(step)
                coordinator.join()
                manager.save()
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("the server is lost in step 6", "Go by state[\"step\"], not by a number of your own")
def counts_for_itself(start, steps, every, folder):
    done = 0
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            while done < steps:
                part = min(every, steps - done)
                done += part
                for _ in range(part):
                    coordinator.schedule(step)
                coordinator.join()
                manager.save()
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("expected the state, as start() gave it, got None (does the function return it?)")
def returns_nothing(start, steps, every, folder):
    coordinator, step, state = start()
    manager = opened(state, folder)
    manager.restore_or_initialize()
    rounds(coordinator, step, state, manager, steps, every)


KEPT = {}


@answers.is_wrong("13 steps, every 4, after an earlier chief has done 10", "training began at step 0")
def keeps_its_checkpoints_in_memory_and_writes_them_for_show(start, steps, every, folder):
    """A new chief is another process, where nothing is in memory; the checkpoints are never read."""
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        for name, kept in KEPT.get(folder, {}).items():
            state[name].assign(kept)
        try:
            while int(state["step"]) < steps:
                for _ in range(min(every, steps - int(state["step"]))):
                    coordinator.schedule(step)
                coordinator.join()
                KEPT[folder] = {name: variable.numpy() for name, variable in state.items()}
                manager.save(checkpoint_number=int(state["step"]))
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong('state["weights"]: expected', "A checkpoint holds all of the state")
def keeps_the_number_of_the_step_alone(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        manager = opened({"step": state["step"]}, folder)
        manager.restore_or_initialize()
        try:
            rounds(coordinator, step, state, manager, steps, every)
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("the loss in step 5 comes out of schedule", "Put the try round both")
def tries_the_join_alone(start, steps, every, folder):
    coordinator, step, state = start()
    manager = opened(state, folder)
    manager.restore_or_initialize()
    while int(state["step"]) < steps:
        for _ in range(min(every, steps - int(state["step"]))):
            coordinator.schedule(step)
        try:
            coordinator.join()
            manager.save()
        except tf.errors.UnavailableError:
            coordinator, step, state = start()
            manager = opened(state, folder)
            manager.restore_or_initialize()
    return state


@answers.is_wrong("each step was joined by itself", "then join once")
def joins_after_each_step(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            while int(state["step"]) < steps:
                for _ in range(min(every, steps - int(state["step"]))):
                    coordinator.schedule(step)
                    coordinator.join()
                manager.save()
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("and no end", "belong to a server that is gone")
def schedules_again_on_the_old_coordinator(start, steps, every, folder):
    coordinator, step, state = start()
    while True:
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            rounds(coordinator, step, state, manager, steps, every)
            return state
        except tf.errors.UnavailableError:
            _, step, state = start()


@answers.is_right
def plain_checkpoints(start, steps, every, folder):
    while True:
        try:
            coordinator, step, state = start()
            checkpoint = tf.train.Checkpoint(state=tf.train.Checkpoint(**state))
            newest = tf.train.latest_checkpoint(folder)
            if newest:
                checkpoint.restore(newest).assert_consumed()
            left = steps - int(state["step"].numpy())
            while left > 0:
                for _ in range(min(left, every)):
                    coordinator.schedule(step, args=())
                coordinator.join()
                checkpoint.save(os.path.join(folder, "weights"))
                left = steps - int(state["step"].numpy())
            return state
        except tf.errors.UnavailableError:
            continue


@answers.is_right
def calls_itself_again(start, steps, every, folder):
    coordinator, step, state = start()
    manager = opened(state, folder)
    manager.restore_or_initialize()
    try:
        rounds(coordinator, step, state, manager, steps, max(1, every // 2))
    except tf.errors.UnavailableError:
        return calls_itself_again(start, steps, every, folder)
    return state


@answers.is_right
def keeps_every_checkpoint_with_its_number(start, steps, every, folder):
    done = False
    while not done:
        coordinator, step, state = start()
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(**state), folder, max_to_keep=None)
        if manager.latest_checkpoint:
            manager.checkpoint.restore(manager.latest_checkpoint)
        try:
            for first in range(int(state["step"]), steps, every):
                later = [coordinator.schedule(step) for _ in range(first, min(first + every, steps))]
                coordinator.join()
                assert len(later) <= every
                manager.save(checkpoint_number=int(state["step"]))
            done = True
        except tf.errors.UnavailableError:
            continue
    return state


def through(start, steps, folder, training):
    """Starts anew until `training(coordinator, step, state, manager)` comes to its end; returns the state."""
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            training(coordinator, step, state, manager)
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("the newest checkpoint at the end holds no step", "a checkpoint holds all of the state")
def keeps_the_weights_alone(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        manager = opened({"weights": state["weights"]}, folder)
        manager.restore_or_initialize()
        try:
            rounds(coordinator, step, state, manager, steps, every)
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("a checkpoint was written after the server was lost")
def saves_when_it_is_too_late(start, steps, every, folder):
    while True:
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            rounds(coordinator, step, state, manager, steps, every)
            return state
        except tf.errors.UnavailableError:
            manager.save()


@answers.is_wrong("10 steps ran without a checkpoint between them in `folder`")
def keeps_its_checkpoints_elsewhere(start, steps, every, folder):
    own = tempfile.mkdtemp()
    return through(start, steps, own, lambda *given: rounds(*given, steps, every))


@answers.is_wrong("13 steps, every 4, after an earlier chief has done 10", "the steps that ran and were not lost are 23")
def clears_the_folder_first(start, steps, every, folder):
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    return through(start, steps, folder, lambda *given: rounds(*given, steps, every))


@answers.is_wrong("the server is lost twice", "got None")
def tries_again_once(start, steps, every, folder):
    for _ in range(2):
        coordinator, step, state = start()
        manager = opened(state, folder)
        manager.restore_or_initialize()
        try:
            rounds(coordinator, step, state, manager, steps, every)
            return state
        except tf.errors.UnavailableError:
            pass


@answers.is_wrong("the steps ran on the chief itself: hand them to coordinator.schedule")
def does_the_steps_by_itself(start, steps, every, folder):
    def training(coordinator, step, state, manager):
        while int(state["step"]) < steps:
            for _ in range(min(every, steps - int(state["step"]))):
                step()
            manager.save()

    return through(start, steps, folder, training)


@answers.is_wrong("Steps that a checkpoint holds are done: schedule min(every, what is left)")
def restores_and_does_all_rounds_again(start, steps, every, folder):
    def training(coordinator, step, state, manager):
        for first in range(0, steps, every):
            for _ in range(min(every, steps - first)):
                coordinator.schedule(step)
            coordinator.join()
            manager.save()

    return through(start, steps, folder, training)


@answers.is_right
def waits_by_fetching_each(start, steps, every, folder):
    def training(coordinator, step, state, manager):
        while int(state["step"]) < steps:
            left = steps - int(state["step"])
            for later in [coordinator.schedule(step) for _ in range(min(every, left))]:
                later.fetch()
            manager.save()

    return through(start, steps, folder, training)


@answers.is_right
def one_file_that_is_written_again(start, steps, every, folder):
    path = os.path.join(folder, "saved")
    while True:
        try:
            coordinator, step, state = start()
            checkpoint = tf.train.Checkpoint(**state)
            if os.path.exists(path + ".index"):
                checkpoint.read(path)
            while (left := steps - int(state["step"])) > 0:
                for _ in range(min(every, left)):
                    coordinator.schedule(step)
                coordinator.join()
                checkpoint.write(path)
            return state
        except tf.errors.OpError:
            continue
