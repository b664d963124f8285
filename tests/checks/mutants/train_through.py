"""Exercise 9.4: a training that outlives its parameter server."""

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


@answers.is_right
def plain(start, steps, every, folder):
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
            while (first := int(state["step"])) < steps:
                later = [coordinator.schedule(step) for _ in range(first, min(first + every, steps))]
                coordinator.join()
                assert len(later) <= every
                manager.save(checkpoint_number=int(state["step"]))
            done = True
        except tf.errors.UnavailableError:
            continue
    return state


answers.twin("waits_by_fetching_each", {
    """
        for _ in range(min(every, steps - int(state["step"]))):
            coordinator.schedule(step)
        coordinator.join()
    """: """
        left = steps - int(state["step"])
        for later in [coordinator.schedule(step) for _ in range(min(every, left))]:
            later.fetch()
    """,
})


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
        except tf.errors.UnavailableError:
            continue


answers.mistake("catches_nothing", {"    pass": "    raise"},
    "UnavailableError was not caught: catch it round schedule and join")
answers.mistake("never_restores", {"manager.restore_or_initialize()": ""},
    "training began at step 0 though the folder holds a checkpoint of step 4", "After every start(), restore")
answers.mistake("starts_again_with_the_old_ones", {
    """
        while True:
            coordinator, step, state = start()
            manager = opened(state, folder)
    """: """
        coordinator, step, state = start()
        manager = opened(state, folder)
        while True:
    """,
    "    pass": "    start()",
}, "and the training did not end", "the old coordinator, step and state belong to a server that is gone")
answers.mistake("saves_at_the_end_alone", {"range(min(every, steps": "range(min(steps, steps"},
    "10 steps ran without a checkpoint in `folder`, although every=4")
answers.mistake("saves_before_the_join", {"coordinator.join()\nmanager.save()": "manager.save()\ncoordinator.join()"},
    "the newest checkpoint at the end: expected it to hold step 10", "save after each join")
answers.mistake("whole_rounds_only", {'min(every, steps - int(state["step"]))': "every"},
    'expected state["step"] to be 10 at the end, got 12', "The last round may be shorter")
answers.mistake("counts_for_itself", {
    "while True:": "done = 0\nwhile True:",
    'while int(state["step"]) < steps:': """
        while done < steps:
            part = min(every, steps - done)
            done += part
    """,
    'range(min(every, steps - int(state["step"])))': "range(part)",
}, "the server is lost in step 6", "Go by state[\"step\"], not by your own counter")
answers.mistake("counts_its_rounds_on_from_the_checkpoint", {
    'while int(state["step"]) < steps:': 'for first in range(int(state["step"]), steps, every):',
    'steps - int(state["step"])': "steps - first",
}, "a step of the first round runs twice", "state[\"step\"] counts both. Go by state[\"step\"], not by your own counter")
answers.mistake("writes_its_own_count_into_the_step", {
    'while int(state["step"]) < steps:': """
        done = int(state["step"])
        while done < steps:
            part = min(every, steps - done)
            done += part
    """,
    'range(min(every, steps - int(state["step"])))': "range(part)",
    "manager.save()": 'state["step"].assign(done)\nmanager.save()',
}, "a step of the first round runs twice", 'state["step"] says 10, but 11 steps ran')
answers.mistake("leaves_out_the_last_save", {
    "manager.save()": """
        if int(state["step"]) < steps:
            manager.save()
    """,
}, "10 steps, every 4", "but it holds step 8", "save after each join, also after the last one")
answers.mistake("returns_nothing", {"return state": "return"},
    "expected the state, as start() returned it, got None (does the function return it?)")

KEPT = {}


# A new chief is another process, where nothing is in memory; the checkpoints are never read.
answers.mistake("keeps_its_checkpoints_in_memory_and_writes_them_for_show", {
    "manager.restore_or_initialize()": """
        for name, kept in KEPT.get(folder, {}).items():
            state[name].assign(kept)
    """,
    "manager.save()": """
        KEPT[folder] = {name: variable.numpy() for name, variable in state.items()}
        manager.save(checkpoint_number=int(state["step"]))
    """,
}, "13 steps, every 4, after an earlier chief has done 10", "training began at step 0")
answers.mistake("keeps_the_number_of_the_step_alone",
    {"opened(state, folder)": 'opened({"step": state["step"]}, folder)'},
    'state["weights"]: expected', "A checkpoint must hold the whole state")


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


answers.mistake("joins_after_each_step", {
    "coordinator.join()": "",
    "coordinator.schedule(step)": "coordinator.schedule(step)\ncoordinator.join()",
}, "join ran after each step", "then join once")
answers.mistake("starts_once", {
    """
        while True:
            coordinator, step, state = start()
            manager = opened(state, folder)
            manager.restore_or_initialize()
    """: """
        coordinator, step, state = start()
        manager = opened(state, folder)
        while True:
            manager.restore_or_initialize()
    """,
}, "steps were handed to its coordinator again and again", "After a loss call start() again")
answers.mistake("schedules_again_on_the_old_coordinator", {
    """
        while True:
            coordinator, step, state = start()
    """: """
        coordinator, step, state = start()
        while True:
    """,
    "    pass": "    _, step, state = start()",
}, "and the training did not end", "belong to a server that is gone")


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


answers.mistake("keeps_the_weights_alone", {"opened(state, folder)": 'opened({"weights": state["weights"]}, folder)'},
    "the newest checkpoint at the end holds no step", "a checkpoint must hold the whole state")
answers.mistake("saves_when_it_is_too_late", {"    pass": "    manager.save()"},
    "a checkpoint was to be written after the server was lost")
answers.mistake("keeps_its_checkpoints_elsewhere", {"while True:": "folder = tempfile.mkdtemp()\nwhile True:"},
    "10 steps ran without a checkpoint in `folder`")
answers.mistake("clears_the_folder_first", {
    "while True:": """
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        while True:
    """,
}, "13 steps, every 4, after an earlier chief has done 10", "but 23 steps ran and were not lost")
answers.mistake("tries_again_once", {"while True:": "for _ in range(2):"}, "the server is lost twice", "got None")
answers.mistake("does_the_steps_by_itself", {
    """
            coordinator.schedule(step)
        coordinator.join()
    """: "    step()",
}, "the steps ran on the chief itself: pass them to coordinator.schedule")
answers.mistake("restores_and_does_all_rounds_again", {
    'while int(state["step"]) < steps:': "for first in range(0, steps, every):",
    'steps - int(state["step"])': "steps - first",
}, "Steps that a checkpoint holds are done: schedule min(every, steps left)")
answers.mistake("catches_every_error", {"except tf.errors.UnavailableError:": "except Exception:"},
    "step 7 raises InvalidArgumentError", "the function caught it", "and no other error")
answers.mistake("catches_every_error_of_tensorflow", {"except tf.errors.UnavailableError:": "except tf.errors.OpError:"},
    "step 7 raises InvalidArgumentError", "the function caught it", "and no other error")
answers.mistake("catches_every_error_but_gives_up_at_the_third", {
    "while True:": "for attempt in range(3):",
    "except tf.errors.UnavailableError:": "except (tf.errors.OpError, ValueError):",
}, "step 7 raises InvalidArgumentError", "the function caught it")
answers.mistake("never_joins", {"coordinator.join()": ""}, "steps scheduled, but never waited for", "coordinator.join() returns")
answers.mistake("never_joins_and_counts_its_rounds", {
    'while int(state["step"]) < steps:': 'for _ in range(int(state["step"]), steps, every):',
    "coordinator.join()": "",
}, "steps scheduled, but never waited for", "coordinator.join() returns")
answers.twin("raises_what_is_no_loss", {
    "except tf.errors.UnavailableError:": """
        except Exception as error:
            if not isinstance(error, tf.errors.UnavailableError):
                raise
    """,
})

answers.mistake("saves_outside_the_try", {
    """
                coordinator.join()
                manager.save()
            return state
        except tf.errors.UnavailableError:
            pass
    """: """
                coordinator.join()
                break
        except tf.errors.UnavailableError:
            continue
        manager.save()
        if int(state["step"]) >= steps:
            return state
    """,
}, "the server is lost between the second join and its save", "Put schedule, join and save in the try")
answers.mistake("keeps_the_old_manager", {
    "while True:": "manager = None\nwhile True:",
    "manager = opened(state, folder)": "manager = manager or opened(state, folder)",
}, "training began at step 0", "A Checkpoint or a manager of the old state restores and saves the old variables: make a new one")
answers.mistake("schedules_what_the_step_returns", {"coordinator.schedule(step)": "coordinator.schedule(step())"},
    "pass the function itself, without calling it")
answers.spoil("clears_the_folder_first_and_catches_nothing", {"    pass": "    raise"}, of=answers["clears_the_folder_first"])
