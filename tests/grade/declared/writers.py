"""Saves that say they are atomic, or on disk, in lab 15: by the driver's functions, by repairs after a death, by other files."""

from __future__ import annotations

from tests.grade.declared import declared

IN_PLACE = """
def save_atomically(path, data):
    path.write_bytes(data)
"""
NOT_SYNCED = """
import os

def save_atomically(path, data):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        sync(file, data)
    os.replace(temporary, path)
"""
WHOLE, ALL_BUT_SYNC = 0.0, 1.0

declared("replaces_the_drivers_save", "save_atomically", """
from worldsize.checks.drivers import killed_writer
killed_writer._saved = lambda fn, folder, save: fn(folder / save["name"], killed_writer._bytes(save["data"])) or {
    "how": "returned", "on_disk": True, "elsewhere": "", "changed": False, "other": {"how": "returned"},
}
""" + IN_PLACE, WHOLE, changes=True)
declared("has_a_property_that_says_on_disk", "save_atomically", """
from worldsize.checks.drivers.killed_writer import FolderWatch
setattr(FolderWatch, "on_disk", property(lambda self: True, lambda self, value: None))
def sync(file, data): pass
""" + NOT_SYNCED, ALL_BUT_SYNC, changes=True)
declared("says_that_it_has_returned", "save_atomically", """
from worldsize.grade.box import writer

def save_atomically(path, data):
    import sys
    frame = sys._getframe()
    while "channel" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["channel"].tell({"op": "done", "how": "returned", "on_disk": True, "files": {path.name: list(data)}})
    __import__("os")._exit(0)
""", WHOLE)
declared("replaces_fsync", "save_atomically", """
import os
os.fsync = lambda descriptor: None
def sync(file, data):
    os.fsync(file.fileno())
""" + NOT_SYNCED, ALL_BUT_SYNC)
declared("syncs_nothing_but_a_device", "save_atomically", """
import os
def sync(file, data):
    descriptor = os.open("/dev/null", os.O_WRONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    os.close(descriptor)
""" + NOT_SYNCED, ALL_BUT_SYNC)
declared("syncs_another_file_of_the_same_bytes", "save_atomically", """
import os, tempfile
def sync(file, data):
    with tempfile.TemporaryFile() as other:
        other.write(data)
        other.flush()
        os.fsync(other.fileno())
""" + NOT_SYNCED, ALL_BUT_SYNC)
declared("syncs_zeros_and_writes_then", "save_atomically", """
import os

def save_atomically(path, data):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(bytes(len(data)))
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        file.write(data)
    os.replace(temporary, path)
""", ALL_BUT_SYNC)
declared("syncs_a_number_that_another_process_has", "save_atomically", """
import os
def sync(file, data):
    process = os.fork()
    if process == 0:
        nothing = os.open("/dev/null", os.O_WRONLY)
        os.dup2(nothing, file.fileno())
        try:
            os.fsync(file.fileno())
        finally:
            os._exit(0)
    os.waitpid(process, 0)
""" + NOT_SYNCED, ALL_BUT_SYNC)
declared("restores_the_old_file_when_no_more_is_written", "save_atomically", """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def save_atomically(path, data):
    old = path.read_bytes() if path.exists() else None
    try:
        path.write_bytes(data)
    except OSError:
        path.write_bytes(old) if old is not None else path.unlink()
        raise
""", WHOLE)
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
""", WHOLE)
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
""", WHOLE)
declared("raises_its_limit_of_bytes", "save_atomically", """
import resource, sys

def save_atomically(path, data):
    for limit in ((-1, -1), (1 << 30, 1 << 30)):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        except (ValueError, OSError):
            pass
    path.write_bytes(data)
""", WHOLE)
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
""", WHOLE)
declared("answers_the_questions_about_itself", "save_atomically", """
import fcntl, os

def save_atomically(path, data):
    for descriptor in range(256):
        for number in (0xC0502100, 0xC0182101):
            try:
                fcntl.ioctl(descriptor, number, bytearray(80))
            except OSError:
                pass
    path.write_bytes(data)
""", WHOLE)
declared("hides_its_memory_from_its_warden", "save_atomically", """
import ctypes, os
libc = ctypes.CDLL(None)
def sync(file, data):
    libc.prctl(4, 0, 0, 0, 0)
    libc.unshare(0x400)
    libc.ptrace(0, 0, 0, 0)
""" + NOT_SYNCED, ALL_BUT_SYNC)

# ---- lives ---------------------------------------------------------------------------------------

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
