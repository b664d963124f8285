"""Exercise 15.1: a file that is replaced at once, however its writer ends."""

import mmap
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from tests.checks.mutants import Answers

answers = Answers("save_atomically")


@answers.is_right
def plain(path, data):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


@answers.is_right
def with_descriptors(path, data):
    temporary = f"{path}.part"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fdatasync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


@answers.is_right
def clears_its_own(path, data):
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        left.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


@answers.is_right
def unbuffered_and_synchronous(path, data):
    hidden = path.with_name("." + path.name)

    def opener(name, flags):
        return os.open(name, flags | os.O_SYNC)

    with open(hidden, "wb", opener=opener) as file:
        file.write(data)
    hidden.rename(path)


@answers.is_right
def through_a_map(path, data):
    temporary = path.with_name(path.name + "~")
    with open(temporary, "w+b") as file:
        file.truncate(len(data))
        if data:
            with mmap.mmap(file.fileno(), len(data)) as room:
                room[:] = data
        os.fsync(file.fileno())
    os.replace(temporary, path)


@answers.is_right
def with_a_longer_suffix(path, data):
    """An error leaves nothing behind."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    try:
        with temporary.open("wb") as file:
            for first in range(0, len(data), 4096):
                file.write(data[first : first + 4096])
                file.flush()
            os.fsync(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


answers.twin("moves_it", {"os.replace(temporary, path)": "shutil.move(temporary, path)"})
answers.twin("names_it_after_the_process", {
    'path.with_name(path.name + ".tmp")': 'path.with_name(f"{path.name}.tmp.{os.getpid()}")',
    "with open(temporary": """
        for left in path.parent.glob(path.name + ".tmp.*"):
            left.unlink(missing_ok=True)
        with open(temporary
    """,
})
answers.twin("puts_the_old_one_back_on_an_error", {
    "os.replace(temporary, path)": """
        if temporary.stat().st_size != len(data):
            temporary.unlink()
            raise OSError("the disk is full")
        os.replace(temporary, path)
    """,
})


answers.twin("syncs_the_folder_too", {"os.replace(temporary, path)": """
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
"""})
answers.twin("imports_the_call", {
    "temporary = path": "from os import fsync\ntemporary = path", "os.fsync(file.fileno())": "fsync(file)",
})  # fmt: skip


@answers.is_wrong("no file yet: killed after 0 of 1,500 bytes, the save left state.rank1 with 0 bytes")
def writes_in_place(path, data):
    path.write_bytes(data)


answers.mistake("writes_in_place_and_syncs", {"open(temporary": "open(path", "os.replace(temporary, path)": ""},
    "the save left state.rank1 with 0 bytes. Write all data into another file of the same folder")
answers.mistake("removes_the_old_file_first",
    {"os.replace(temporary, path)": "path.unlink(missing_ok=True)\ntemporary.rename(path)"},
    "over an old file of 2,200", "killed between two of its calls, the save left no file state.rank1")
answers.mistake("never_syncs", {"os.fsync(file.fileno())": ""},
    "no file yet: the data got the file's name before they were on disk", "os.fsync")
answers.mistake("syncs_what_is_not_flushed", {"file.flush()": ""},
    "the data got the file's name before they were on disk", "flush the file")
answers.mistake("syncs_the_folder_and_not_the_file", {
    "os.fsync(file.fileno())": "",
    "os.replace(temporary, path)": """
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    """,
}, "the data got the file's name before they were on disk", "os.fsync(file.fileno())")
answers.mistake("syncs_after_the_rename", {
    "os.replace(temporary, path)": "",
    "os.fsync(file.fileno())": "os.replace(temporary, path)\nos.fsync(file.fileno())",
}, "the data got the file's name before they were on disk")
answers.mistake("writes_in_the_systems_temporary_folder", {
    'temporary = path.with_name(path.name + ".tmp")': "",
    'open(temporary, "wb")': "tempfile.NamedTemporaryFile(delete=False)",
    "os.replace(temporary, path)": "shutil.move(file.name, path)",
}, "was written in /tmp and renamed from there. Across file systems a rename fails, or is a copy", chance=True)
answers.mistake("replaces_from_the_systems_temporary_folder", {
    'temporary = path.with_name(path.name + ".tmp")': """
        descriptor, temporary = tempfile.mkstemp()
        os.close(descriptor)
    """,
}, ("Invalid cross-device link", "renamed from there. Across file systems a rename fails"), chance=True)
answers.mistake("copies_the_finished_file",
    {"os.replace(temporary, path)": "shutil.copyfile(temporary, path)\ntemporary.unlink()"},
    "killed", "the save left state.rank1 with", "os.replace")
answers.mistake("takes_the_suffix_away", {'path.with_name(path.name + ".tmp")': 'path.with_suffix(".tmp")'},
    "state.rank1 and state.rank2 are saved at once", "path.with_suffix would remove")
answers.mistake("has_one_temporary_name_for_all",
    {'path.with_name(path.name + ".tmp")': 'path.parent / "checkpoint.tmp"'},
    "state.rank1 and state.rank2 are saved at once", "Both saves wrote into one temporary file")
# Distinct for all ranks of one file; two files of one rank meet.
answers.mistake("names_it_after_the_suffix", {'path.with_name(path.name + ".tmp")': 'path.parent / f"tmp{path.suffix}"'},
    "state.rank1 and model.rank1 are saved at once", "Both saves wrote into one temporary file")
answers.mistake("names_it_after_the_digits", {
    'path.with_name(path.name + ".tmp")': 'path.parent / "".join(filter(str.isdigit, path.name))',
}, "state.rank1 and model.rank1 are saved at once", "Both saves wrote into one temporary file")
answers.mistake("has_a_new_name_every_time", {'path.name + ".tmp"': 'f"{path.name}.{uuid.uuid4().hex}.tmp"'},
    "after 4 saves of it that were killed: 4 temporary files of killed saves are still there", chance=True)
answers.mistake("asks_for_a_temporary_file", {
    'temporary = path.with_name(path.name + ".tmp")': "",
    'open(temporary, "wb")': "tempfile.NamedTemporaryFile(dir=path.parent, delete=False)",
    "os.replace(temporary": "os.replace(file.name",
}, "after 4 saves of it that were killed: 4 temporary files of killed saves are still there", chance=True)
answers.mistake("clears_whatever_begins_with_its_name", {
    'temporary = path.with_name(path.name + ".tmp")': """
        for left in path.parent.glob(path.name + "?*"):
            left.unlink()
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    """,
}, "state.rank11 and state.rank1 are saved at once: the save of state.rank11 raised FileNotFoundError",
    "The save of state.rank1 removed a file of state.rank11's", chance=True)
answers.mistake("clears_whatever_begins_with_its_name_after_a_killed_save", {
    'temporary = path.with_name(path.name + ".tmp")': """
        if list(path.parent.glob(path.name + ".*.tmp")):
            for left in path.parent.glob(path.name + "?*"):
                left.unlink()
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    """,
}, "state.rank11, another rank's file, is gone")
answers.mistake("clears_what_begins_with_its_name_and_is_temporary", {
    'temporary = path.with_name(path.name + ".tmp")': """
        for left in path.parent.glob(path.name + "*.tmp"):
            left.unlink()
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    """,
}, "state.rank11 and state.rank1 are saved at once: the save of state.rank11 raised FileNotFoundError",
    "The save of state.rank1 removed a file of state.rank11's", chance=True)
answers.mistake("cuts_the_name", {
    'path.with_name(path.name + ".tmp")': 'path.with_name(path.name[:11] + ".tmp")',
}, "state.rank11 and state.rank1 are saved at once")


@answers.is_wrong("the disk was full after", "end the save there, before os.replace, so that the old file stays")
def passes_over_errors(path, data):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        pass
    os.replace(temporary, path)


@answers.is_wrong("the disk was full after", "so that the old file stays")
def renames_in_any_case(path, data):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.replace(temporary, path)


@answers.is_wrong("the disk was full after", "the save returned as if the new data were there")
def keeps_an_error_quiet(path, data):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        print("not saved:", error)


answers.mistake("clears_all_temporary_files", {
    'temporary = path.with_name(path.name + ".tmp")': """
        for left in path.parent.glob("*.tmp"):
            left.unlink()
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    """,
}, "saved at once: the save of state.rank1 raised FileNotFoundError", "The save of state.rank2 removed a file of state.rank1's",
    chance=True)


@answers.is_wrong("the system wrote only", "os.write returns the number of bytes written")
def trusts_one_write(path, data):
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    os.replace(temporary, path)


answers.mistake("never_renames", {"os.replace(temporary, path)": ""},
    "afterwards there is no file state.rank1; the folder holds state.rank1.tmp")
# A reader would have to know of the backup.
answers.mistake("keeps_a_backup_of_the_old_one", {
    "temporary = path": """
        if path.exists():
            os.replace(path, path.with_name(path.name + ".old"))
        temporary = path
    """,
}, "over an old file of 2,200: killed", "the save left no file state.rank1: the old file was gone")
answers.mistake("writes_over_without_cutting", {
    'temporary = path.with_name(path.name + ".tmp")': "",
    'open(temporary, "wb")': 'open(path, "r+b" if path.exists() else "wb")',
    "os.replace(temporary, path)": "",
}, "afterwards state.rank1 does not hold the data: expected 1,500 bytes")
answers.mistake("trusts_an_unbuffered_file", {'"wb")': '"wb", buffering=0)', "file.flush()": ""},
    "the system wrote only 1,499 of 1,500 bytes", "os.write returns the number of bytes written")
answers.mistake("syncs_the_folder_while_the_file_is_open", {"os.fsync(file.fileno())": """
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
"""}, "the data got the file's name before they were on disk", "os.fsync(file.fileno())")
answers.mistake("names_it_after_the_last_digit",
    {'path.with_name(path.name + ".tmp")': 'path.with_name("tmp" + path.name[-1])'},
    "state.rank11 and state.rank1 are saved at once", "Both saves wrote into one temporary file")
answers.mistake("appends_to_what_is_left", {'open(temporary, "wb")': 'open(temporary, "ab")'},
    "after 4 saves of it that were killed: afterwards state.rank1 does not hold the data", 'with "wb", which empties it')
answers.mistake("does_not_cut_what_is_left",
    {'open(temporary, "wb")': 'os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT), "wb")'},
    "after 4 saves of it that were killed: afterwards state.rank1 does not hold the data", 'with "wb", which empties it')
answers.mistake("wants_no_file_there", {'open(temporary, "wb")': 'open(temporary, "xb")'},
    "after 4 saves of it that were killed: the last save raised FileExistsError")
answers.mistake("links_the_old_one", {"os.replace(temporary, path)": """
    if path.exists():
        path.with_name(path.name + ".old").unlink(missing_ok=True)
        os.link(path, path.with_name(path.name + ".old"))
    os.replace(temporary, path)
"""}, "the old file is still there, as state.rank1.old")


# Small data wait in Python's buffer until the flush, which raises.
answers.mistake("passes_over_an_error_of_write", {"file.write(data)": """
    try:
        file.write(data)
    except OSError:
        pass
"""}, "300,000 bytes over an old file of 2,200: the disk was full after", "end the save there, before os.replace")
answers.mistake("keeps_an_error_of_write_quiet", {"file.write(data)": """
    try:
        file.write(data)
    except OSError as error:
        print("not saved:", error)
        return
"""}, "300,000 bytes over an old file of 2,200: the disk was full after", "the save returned as if the new data were there")
# Checkpoints of one training are all as long.
answers.mistake("saves_what_has_another_length", {"temporary = path": """
    if path.exists() and path.stat().st_size == len(data):
        return
    temporary = path
"""}, "afterwards state.rank1 does not hold the data: expected 1,500 bytes, got the 1,500 bytes of the old data")
answers.mistake("saves_nothing_where_there_is_nothing", {"temporary = path": "if not data:\n    return\ntemporary = path"},
    "expected 0 bytes, got the 2,200 bytes of the old data")


@answers.is_wrong("no file yet: the disk was full", "raised RuntimeError", "a caller expects an OSError")
def raises_an_error_of_another_kind(path, data):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RuntimeError("the checkpoint could not be saved") from error
    os.replace(temporary, path)


@answers.spoils()
def is_careful_where_there_is_nothing_to_lose(path, data):
    """And never syncs, which the first save shows."""
    if path.exists():
        path.write_bytes(data)
        return
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
