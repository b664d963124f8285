"""Exercise 10.4: save on rank 0, load on all, go on where it ended."""

from tests.checks.mutants import Answers

answers = Answers("train_resumable")


def begin(model, optimizer, load):
    return load() or {"epoch": 0, "model": model, "optimizer": optimizer}


def after(at, train_epoch, epoch):
    model, optimizer = train_epoch(at["model"], at["optimizer"], epoch)
    return {"epoch": epoch + 1, "model": model, "optimizer": optimizer}


@answers.is_right
def plain(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    at = begin(model, optimizer, load)
    for epoch in range(at["epoch"], epochs):
        at = after(at, train_epoch, epoch)
        if rank == 0:
            save(at)
        barrier()
    return load()


@answers.is_right
def reads_after_every_epoch(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    """Every epoch begins with what is in the file; one more barrier before anything else."""
    barrier()
    held = load()
    while held is None or held["epoch"] < epochs:
        done = held["epoch"] if held else 0
        states = (held["model"], held["optimizer"]) if held else (model, optimizer)
        model, optimizer = train_epoch(*states, done)
        if not rank:
            save(dict(optimizer=optimizer, epoch=done + 1, model=model))
        barrier()
        held = load()
    return held


@answers.is_right
def counts_down(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    checkpoint, first = load(), 0
    if checkpoint is not None:
        first, model, optimizer = (checkpoint[key] for key in ("epoch", "model", "optimizer"))
    for left in range(epochs - first, 0, -1):
        model, optimizer = train_epoch(model, optimizer, epochs - left)
        if rank == 0:
            save({"model": model, "optimizer": optimizer, "epoch": epochs - left + 1, "note": "more is welcome"})
        barrier()
    return load()


@answers.is_right
def returns_a_complete_file_at_once(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    held = load()
    if held and held["epoch"] >= epochs:
        return held
    at = held or {"epoch": 0, "model": model, "optimizer": optimizer}
    while at["epoch"] < epochs:
        at = after(at, train_epoch, at["epoch"])
        if not rank:
            save(at)
        barrier()
        at = load()
    return at


@answers.is_right
def waits_once_more_after_it_has_loaded(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    at = begin(model, optimizer, load)
    for epoch in range(at["epoch"], epochs):
        at = after(at, train_epoch, epoch)
        if rank == 0:
            save(at)
    barrier()
    held = load()
    barrier()
    return held


@answers.is_right
def waits_before_and_after_it_saves(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    at = begin(model, optimizer, load)
    for epoch in range(at["epoch"], epochs):
        at = after(at, train_epoch, epoch)
        barrier()
        if rank == 0:
            save(dict(at))
        barrier()
    barrier()
    return load()


@answers.is_right
def writes_into_its_checkpoint(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    at = begin(model, optimizer, load)
    while at["epoch"] < epochs:
        at["model"], at["optimizer"] = train_epoch(at["model"], at["optimizer"], at["epoch"])
        at["epoch"] += 1
        if rank == 0:
            save(at)
        barrier()
    return load()


answers.twin("waits_once_after_the_last_epoch", {"barrier()": "", "return load()": "barrier()\nreturn load()"})
answers.mistake("saves_on_every_rank", {
    """
        if rank == 0:
            save(at)
    """: "save(at)",
}, "rank 1, 3 epochs, no file yet", "rank 1 saved: the ranks would write into one file at once")
answers.mistake("never_waits", {"barrier()": ""},
    "rank 1", "It read the file before rank 0 had written it for certain: call barrier() on all ranks after save")
answers.mistake("rank_0_waits_alone", {"barrier()": "", "save(at)": "save(at)\nbarrier()"},
    "rank 1", "rank 0 waits at barrier() while rank 1 trains epoch 1: one would wait for ever")
answers.mistake("waits_before_it_saves", {"barrier()": "", "if rank == 0:": "barrier()\nif rank == 0:"},
    "rank 1", "before rank 0 had written it for certain")
answers.mistake("loads_on_rank_0_alone",
    {"begin(model, optimizer, load)": "begin(model, optimizer, load if rank == 0 else lambda: None)"},
    "rank 1, 5 epochs, a file with 2 epochs", "it started over, since it did not call load() before it trained")
answers.mistake("always_begins_anew",
    {"begin(model, optimizer, load)": '{"epoch": 0, "model": model, "optimizer": optimizer}'},
    "rank 0, 5 epochs, a file with 2 epochs", "trained the epochs [0, 1, 2, 3, 4], expected [2, 3, 4]")
answers.mistake("saves_the_model_alone", {"save(at)": 'save({"epoch": at["epoch"], "model": at["model"]})'},
    "Without the optimizer's state its momentum restarts at zero")
answers.mistake("forgets_the_optimizer_when_it_loads",
    {"at = begin(model, optimizer, load)": 'at = begin(model, optimizer, load)\nat["optimizer"] = optimizer'},
    "a file with 2 epochs", "trained epoch 2 with the initial optimizer, not with the one that load() returned")
answers.mistake("saves_the_number_of_the_last_epoch", {"save(at)": 'save({**at, "epoch": epoch})'},
    'after epoch 0 the checkpoint says "epoch": 0; expected 1, the number of finished epochs')
answers.mistake("saves_at_the_end", {
    """
            at = after(at, train_epoch, epoch)
            if rank == 0:
                save(at)
            barrier()
        return
    """: """
            at = after(at, train_epoch, epoch)
        if rank == 0:
            save(at)
        barrier()
        return
    """,
}, "rank 0 saved 1 time, expected 3: save after every epoch")
answers.mistake("saves_before_the_epoch", {
    "at = after(at, train_epoch, epoch)": "",
    "save(at)": 'save({**at, "epoch": epoch + 1})',
    "barrier()": "barrier()\nat = after(at, train_epoch, epoch)",
}, "is not what train_epoch returned. This is the state before the epoch: save after the epoch")
answers.mistake("returns_nothing", {"return load()": ""},
    "rank 0: expected the last checkpoint, as load() returns it, got None (does the function return it?)")
answers.mistake("trains_one_epoch_more_when_all_are_done",
    {'range(at["epoch"], epochs)': 'range(at["epoch"], max(epochs, at["epoch"] + 1))'},
    "4 epochs, a file with 4 epochs", "the file is already complete", "Train none, and return the checkpoint")


@answers.is_wrong("3 epochs, a file with 5 epochs", "the file is already complete (5 epochs)")
def stops_at_equality_alone(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    at = begin(model, optimizer, load)
    while at["epoch"] != epochs and at["epoch"] < 9:
        at = after(at, train_epoch, at["epoch"])
        if rank == 0:
            save(at)
        barrier()
    return load()


answers.mistake("trains_so_many_more", {'range(at["epoch"], epochs)': 'range(at["epoch"], at["epoch"] + epochs)'},
    "a file with 2 epochs", "trained the epochs [2, 3, 4, 5, 6], expected [2, 3, 4]", "the first is right, the last one is")
answers.mistake("leaves_the_last_epoch_out", {'range(at["epoch"], epochs)': 'range(at["epoch"], epochs - 1)'},
    "trained the epochs [0, 1], expected [0, 1, 2]: the first is right, the last one is epochs - 1")
answers.mistake("counts_epochs_from_1", {'range(at["epoch"], epochs)': 'range(at["epoch"] + 1, epochs + 1)'},
    "trained the epochs [1, 2, 3], expected [0, 1, 2]: the first epoch to train is the number of finished epochs")
answers.mistake("trains_on_rank_0_alone", {
    """
        at = after(at, train_epoch, epoch)
        if rank == 0:
            save(at)
    """: """
        if rank == 0:
            at = after(at, train_epoch, epoch)
            save(at)
    """,
}, "rank 1 trained the epochs [], expected [0, 1, 2]: all ranks train, so train_epoch stands outside any `if rank == 0`")
answers.mistake("saves_on_all_ranks_but_one", {"rank == 0": "rank != 1"},
    "rank 2 saved: the ranks would write into one file at once")
answers.mistake("two_ranks_wait", {"barrier()": "if rank < 2:\n    barrier()"},
    "rank 0 waits at barrier() while rank 2 trains epoch 1: one would wait for ever")
answers.mistake("two_ranks_load",
    {"begin(model, optimizer, load)": "begin(model, optimizer, load if rank < 2 else lambda: None)"},
    "rank 2, 5 epochs, a file with 2 epochs", "it started over, since it did not call load() before it trained")
answers.mistake("does_not_look_at_what_it_loaded", {
    "at = begin(model, optimizer, load)": 'load()\nat = {"epoch": 0, "model": model, "optimizer": optimizer}',
}, "rank 0, 5 epochs, a file with 2 epochs", "it started over, although load() returned a checkpoint of 2 epochs")
answers.mistake("returns_after_one_epoch", {"barrier()": "barrier()\nreturn load()"},
    "trained the epochs [0], expected [0, 1, 2]", "Does return stand inside the loop?")
answers.mistake("saves_on_rank_1", {"rank == 0": "rank == 1"}, "rank 0 never saved, expected 3 times: rank 0 saves")
answers.mistake("returns_its_own_states", {"return load()": "return at"},
    "it returned its own states. Read the file again at the end")
# The barrier stands at the head of an epoch: nobody waits for the last save.
answers.mistake("waits_once_before_the_training_ends", {
    "barrier()": "",
    "at = after(at, train_epoch, epoch)": "barrier()\nat = after(at, train_epoch, epoch)",
}, "rank 1", "read the file before rank 0 had written it for certain")


answers.spoil("returns_nothing_so_that_nobody_asks_for_a_file", {"return load()": ""},
    of=answers["always_begins_anew"])
answers.spoil("saves_everywhere_so_that_nobody_asks_for_a_file", {
    """
        if rank == 0:
            save(at)
    """: "save(at)",
}, of=answers["loads_on_rank_0_alone"])
answers.mistake("numbers_the_rest_from_0", {"range(at[\"epoch\"], epochs)": "range(epochs - at[\"epoch\"])"},
    "so many are left, but they are numbered from")
answers.mistake("saves_once_before_the_first_epoch", {
    "at = begin(model, optimizer, load)": "at = begin(model, optimizer, load)\nif rank == 0:\n    save(at)",
}, "once after each epoch, and not otherwise")
