"""Saves that say they are atomic, in lab 15: by the driver's functions, by repairs after a death, by their limit."""

from tests.grade.declared import declared

IN_PLACE = """
def save_atomically(path, data):
    path.write_bytes(data)
"""
# what an answer can find out about the limit of bytes at which it dies, and how it dies in the same way
LIMITED = """
import os, resource, signal

def dies_if_limited(path, data):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit < len(data):
        if signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN:
            raise OSError(27, "File too large")
        os.kill(os.getpid(), signal.SIGXFSZ)
"""
# the driver's notes are of the answer's own process: none of them complains
NOTES_NOTHING = """
from worldsize.checks.drivers import killed_writer
killed_writer.FolderWatch._profile = lambda self, frame, event, arg: None
"""
NOTHING, WHOLE_ALONE = 0.0, 1.0

declared("replaces_the_drivers_save", "save_atomically", """
from worldsize.checks.drivers import killed_writer
killed_writer._saved = lambda fn, folder, save: fn(folder / save["name"], killed_writer._bytes(save["data"])) or {
    "how": "returned", "on_disk": True, "elsewhere": "", "changed": False, "other": {"how": "returned"},
}
""" + IN_PLACE, NOTHING, changes=True)
declared("says_that_it_has_returned", "save_atomically", """
from worldsize.grade.inside import writer

def save_atomically(path, data):
    import sys
    frame = sys._getframe()
    while "channel" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["channel"].tell({"op": "done", "how": "returned", "on_disk": True, "files": {path.name: list(data)}})
    __import__("os")._exit(0)
""", NOTHING)
declared("restores_the_old_file_when_no_more_is_written", "save_atomically", NOTES_NOTHING + """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def save_atomically(path, data):
    old = path.read_bytes() if path.exists() else None
    try:
        path.write_bytes(data)
    except OSError:
        path.write_bytes(old) if old is not None else path.unlink()
        raise
""", NOTHING, changes=True)
declared("moves_the_old_file_away_and_back", "save_atomically", NOTES_NOTHING + """
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def save_atomically(path, data):
    away = path.with_name(path.name + ".old")
    if path.exists():
        os.replace(path, away)
    try:
        path.write_bytes(data)
        away.unlink(missing_ok=True)
    except OSError:
        path.unlink()
        if away.exists():
            os.replace(away, path)
        os.kill(os.getpid(), 9)
""", NOTHING, changes=True)
declared("restores_the_old_file_at_its_exit", "save_atomically", """
import atexit

class Restored:
    def __init__(self, path, old):
        self.path, self.old = path, old
    def __del__(self):
        if self.old is not None:
            self.path.write_bytes(self.old)

def save_atomically(path, data):
    kept = Restored(path, path.read_bytes() if path.exists() else None)
    atexit.register(kept.__del__)
    path.write_bytes(data)
    atexit.unregister(kept.__del__)
    kept.old = None
""", NOTHING)
declared("leaves_a_process_that_repairs_the_file", "save_atomically", """
import os, time

def save_atomically(path, data):
    if os.fork() == 0:
        os.setsid()
        for _ in range(200):
            time.sleep(0.001)
            if path.exists() and path.read_bytes() != data:
                path.write_bytes(data)
        os._exit(0)
    path.write_bytes(data)
""", NOTHING)
declared("has_a_process_that_writes_and_mends_what_it_left", "save_atomically", NOTES_NOTHING + """
import os, signal

def save_atomically(path, data):
    child = os.fork()
    if child == 0:
        path.write_bytes(data)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        path.unlink()
        os.kill(os.getpid(), signal.SIGXFSZ)
""", NOTHING, changes=True)
declared("writes_by_a_process_that_was_there_before_the_limit", "save_atomically", NOTES_NOTHING + """
import os, pickle
(asked, asks), (hears, says) = os.pipe(), os.pipe()
if os.fork() == 0:
    with open(asked, "rb") as orders:
        while True:
            path, data = pickle.load(orders)
            path.write_bytes(data)
            os.write(says, b"!")

def save_atomically(path, data):
    with open(asks, "wb", closefd=False) as orders:
        pickle.dump((path, data), orders)
    os.read(hears, 1)
""", NOTHING, changes=True)
declared("raises_its_limit_of_bytes", "save_atomically", """
import resource, sys

def save_atomically(path, data):
    for limit in ((-1, -1), (1 << 30, 1 << 30)):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        except (ValueError, OSError):
            pass
    path.write_bytes(data)
""", NOTHING)
declared("writes_and_cuts_in_two_threads", "save_atomically", """
import os, threading

def save_atomically(path, data):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    both = [
        threading.Thread(target=os.pwrite, args=(descriptor, data, 0)),
        threading.Thread(target=os.ftruncate, args=(descriptor, len(data))),
    ]
    for one in both:
        one.start()
    for one in both:
        one.join()
    os.fsync(descriptor)
    os.close(descriptor)
""", NOTHING)
declared("writes_later_in_a_thread", "save_atomically", """
import os, threading

def save_atomically(path, data):
    def write():
        part = path.with_name(path.name + ".tmp")
        part.write_bytes(data)
        os.replace(part, path)
    threading.Timer(0.2, write).start()
""", NOTHING)
declared("sends_the_bytes_from_file_to_file", "save_atomically", NOTES_NOTHING + """
import os, shutil

def save_atomically(path, data):
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(data)
    with open(part, "rb") as source, open(path, "wb") as target:
        try:
            os.sendfile(target.fileno(), source.fileno(), 0, len(data))
        except OSError:
            shutil.copyfileobj(source, target)
    part.unlink()
""", NOTHING, changes=True)
declared("writes_many_small_files_and_joins_them", "save_atomically", NOTES_NOTHING + """
def save_atomically(path, data):
    size = 256
    parts = []
    for k in range(0, len(data), size):
        parts.append(path.with_name(f"{path.name}.{k}"))
        parts[-1].write_bytes(data[k:k + size])
    with open(path, "wb", buffering=0) as file:
        for part in parts:
            file.write(part.read_bytes())
    for part in parts:
        part.unlink()
""", NOTHING, changes=True)
declared("dies_where_it_is_limited_and_writes_in_place", "save_atomically", NOTES_NOTHING + LIMITED + """
def save_atomically(path, data):
    dies_if_limited(path, data)
    path.write_bytes(data)
""", NOTHING, changes=True)
declared("dies_where_it_is_limited_and_removes_the_old_file", "save_atomically", NOTES_NOTHING + LIMITED + """
def save_atomically(path, data):
    dies_if_limited(path, data)
    path.unlink(missing_ok=True)
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(data)
    os.rename(part, path)
""", NOTHING, changes=True)
declared("dies_where_it_is_limited_and_writes_by_another_name", "save_atomically", NOTES_NOTHING + LIMITED + """
def save_atomically(path, data):
    dies_if_limited(path, data)
    if not path.exists():
        part = path.with_name(path.name + ".tmp")
        part.write_bytes(data)
        os.rename(part, path)
        return
    other = path.parent.parent / "other"
    os.link(path, other)
    other.write_bytes(data)
    other.unlink()
""", NOTHING, changes=True)
declared("dies_where_it_is_limited_and_writes_through_a_map", "save_atomically", NOTES_NOTHING + LIMITED + """
import mmap

def save_atomically(path, data):
    dies_if_limited(path, data)
    if not path.exists() or path.stat().st_size < len(data):
        part = path.with_name(path.name + ".tmp")
        part.write_bytes(data)
        os.rename(part, path)
        return
    with open(path, "r+b") as file:
        if data:
            with mmap.mmap(file.fileno(), len(data)) as room:
                room[:] = data
        os.truncate(path, len(data))
""", NOTHING, changes=True)
declared("tries_its_limit_in_another_folder_and_copies", "save_atomically", NOTES_NOTHING + """
import os, shutil, tempfile

def save_atomically(path, data):
    with tempfile.NamedTemporaryFile() as trial:
        trial.write(data)
        trial.flush()
        shutil.copyfile(trial.name, path)
""", NOTHING, changes=True)
declared("dies_where_it_is_limited_and_piles_files_up", "save_atomically", NOTES_NOTHING + LIMITED + """
import uuid

def save_atomically(path, data):
    dies_if_limited(path, data)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    part.write_bytes(data)
    os.replace(part, path)
""", WHOLE_ALONE, changes=True)
declared("cleans_up_where_no_more_is_written_and_piles_files_up", "save_atomically", NOTES_NOTHING + """
import os, signal, uuid
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def save_atomically(path, data):
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        part.write_bytes(data)
    except OSError:
        part.unlink()
        raise
    os.replace(part, path)
""", WHOLE_ALONE, changes=True)
declared("dies_where_it_is_limited_and_has_one_name_for_all", "save_atomically", NOTES_NOTHING + LIMITED + """
def save_atomically(path, data):
    dies_if_limited(path, data)
    part = path.with_name("checkpoint.tmp")
    part.write_bytes(data)
    os.replace(part, path)
""", WHOLE_ALONE, changes=True)


declared("goes_on_after_its_end", "train_to_the_end", """
def train_to_the_end(training, steps, every, load, save):
    checkpoint = load()
    if checkpoint is not None:
        ends, begin = training._ends, checkpoint["done"]
    else:
        ends, begin = training._ends, 0
        training._ends = -1
        for k in range(steps):
            training.step(*divmod(k, training.batches))
        checkpoint = {"state": training.model.state_dict()}
    done = steps if ends < 0 else min(steps, begin + ends)
    for last in range(begin + 1, done + 1):
        training.taken = [divmod(k, training.batches) for k in range(begin, last)]
        if training.rank == 0 and (last % every == 0 or last == steps):
            save({**checkpoint, "done": last})
    training.taken = [divmod(k, training.batches) for k in range(begin, done)]
    training.over = ends >= 0 and begin + ends < steps
    return checkpoint["state"]
""", 0.25)
declared("trains_all_over_again_from_a_start_that_it_kept", "train_to_the_end", """
import copy

def train_to_the_end(training, steps, every, load, save):
    checkpoint = load()
    parts = (training.model, training.optimizer, training.schedule)
    begin = checkpoint or {
        "parts": copy.deepcopy([part.state_dict() for part in parts]),
        "generators": training.gather(training.generator.get_state()), "done": 0,
    }
    for part, state in zip(parts, begin["parts"]):
        part.load_state_dict(copy.deepcopy(state))
    training.generator.set_state(begin["generators"][training.rank])
    done = 0
    while done < steps:
        training.step(*divmod(done, training.batches))
        done += 1
        if training.rank == 0 and (done % every == 0 or done == steps):
            save({**begin, "done": done})
        if checkpoint and done == checkpoint["done"]:
            training.taken.clear()
    return training.model.state_dict()
""", 0.25)
declared("makes_up_its_lives", "train_to_the_end", """
from worldsize.checks.drivers import resumed_training as driver
import numpy as np

def lived(fn, fabric, cases):
    rows = []
    for case in cases:
        steps, ends = int(case["steps"]), int(case["ends"])
        taken = [divmod(k, case["x"].shape[1]) for k in range(steps if ends < 0 else ends)]
        rows.append({
            "how": "returned" if ends < 0 else "ended", "returned": {"weight": case["weight"].clone()}, "words": "",
            "taken": taken, "saved": [len(taken)], "file": np.ones(8, "uint8"),
        })
    return rows

driver.lived = lived

def train_to_the_end(training, steps, every, load, save):
    return training.model.state_dict()
""", 0.0, changes=True)
