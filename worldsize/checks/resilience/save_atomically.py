"""Check a file that is replaced at once: writers are really killed, and the old file or the new file must be left.

A writer is a process of its own (`arena.saves`). It dies at a byte, or at one of the first CHANGES changes of its folder,
so no kill between two calls is left to luck; or the disk is full at a byte, and the caller must get the error. A grader kills
writers at bytes, reads their folder and hears of its changes from outside; what the answer's own process notes can only take
points. Left out: power loss (fsync must be called, on a file that holds all of the data), and writers of a single path at once.
rename(2): "If newpath already exists, it will be atomically replaced". T. S. Pillai et al., "All file systems are not
created equal", OSDI 2014: what happens to a rename without fsync.
"""

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint, of_both
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

WHOLE = "a kill at any moment leaves the old file or the new one, whole"
ERROR = "on a full disk the caller gets an OSError"
APART = "ranks that save at once do not meet, and what is left of killed saves does not pile up"
ON_DISK = "the data are on disk before they get the file's name"
NAME, PEER, NEIGHBOUR, NAMESAKE = "state.rank1", "state.rank2", "state.rank11", "model.rank1"
SMALL, OLD, LARGE = 1_500, 2_200, 300_000  # bytes; the old file is longer than the small new one
CHANGES, KILLED = 8, 4  # folder changes to die at; killed saves before the last
# files saved at once, and how many changes to stand still at: one name is the other's beginning, or has its ending alone
MEETINGS = ((NAME, PEER, 5), (NEIGHBOUR, NAME, 5), (NAME, NAMESAKE, 2))
NEVER = 0  # no change has this number: the folder is watched, and nothing dies

Row = dict[str, Any]


@exercise(
    {WHOLE: 0.75, ERROR: 0.25, APART: 0.5, ON_DISK: 0.0},
    seen={
        WHOLE: evidence.FOLDER, ERROR: evidence.RETURNED_AND_FOLDER, APART: evidence.FOLDER, ON_DISK: evidence.OWN_PROCESS,
    },
    needs=needs.KILLED,
)
def save_atomically(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check `save_atomically(path, data)`, which puts `data`, bytes, into the file `path` at once."""
    draws = np.random.default_rng(arena.draws.getrandbits(32))

    def drawn(size: int) -> np.ndarray:
        return draws.integers(0, 256, size, "uint8")

    def case(name: str, scenarios: list[dict], examine: Callable[..., dict[str, Complaint]]) -> Case:
        return Case(name, lambda: arena.saves(fn, scenarios), lambda ended: examine(list(ended.returned[0])))

    first, new, old, large = drawn(SMALL), drawn(SMALL), drawn(OLD), drawn(LARGE)
    yield case(
        f"{SMALL:,} bytes, nothing killed",
        [scenario({}, save(first, dies="here")), scenario({}, save(first)), scenario({NAME: old}, save(new)),
         scenario({NAME: first}, save(new)), scenario({NAME: old}, save(drawn(0)))],
        lambda rows: {WHOLE: _not_saved(rows, (first, first, new, new, drawn(0)), (None, None, old, first, old))},
    )  # fmt: skip

    for what, before, data, others in (
        (f"{SMALL:,} bytes, no file yet", None, first, 1),
        (f"{SMALL:,} bytes over an old file of {OLD:,}", old, new, 3),
        (f"{LARGE:,} bytes over an old file of {OLD:,}", old, large, 2),
    ):
        files = {} if before is None else {NAME: before}
        deaths = [["byte", k] for k in _bytes_to_die_at(len(data), others, draws)]
        if len(data) <= OLD:
            deaths = [None, *deaths, *(["change", j] for j in range(1, CHANGES + 1))]
        deaths.append(["full", int(draws.integers(1, len(data) - 1))])  # write fails where data are large, else flush
        yield case(
            what,
            [scenario(files, save(data, dies=death)) for death in deaths],
            lambda rows, before=before, data=data, deaths=deaths: _examine_kills(rows, deaths, before, data),
        )

    content, other = drawn(SMALL), drawn(SMALL + 7)
    for first, second, most in MEETINGS:
        meetings = [scenario({}, save(content, first, meets=[j, second, other])) for j in range(1, most + 1)]
        dies = ["byte", int(draws.integers(1, SMALL))]
        yield case(
            f"{first} and {second} are saved at once",
            [*meetings, scenario({}, save(content, first, dies=dies), save(other, second))],
            lambda rows, right={first: content, second: other}: {
                APART: of_both(first_complaint(_met(row, right) for row in rows[:-1]), _beside_the_dead(rows[-1], right))
            },
        )

    killed = [save(drawn(LARGE), dies=["byte", k]) for k in _bytes_to_die_at(LARGE, KILLED - 2, draws)]
    neighbour = drawn(40)
    yield case(
        f"{NAME} after {KILLED} saves of it that were killed",
        [scenario({NAME: old, NEIGHBOUR: neighbour}, *killed, save(new))],
        lambda rows: {APART: _piled_up(rows[0], {NAME: new, NEIGHBOUR: neighbour}, old)},
    )

    yield case(  # the last, so that every property with points is examined before
        f"{SMALL:,} bytes, no file yet",
        [scenario({}, save(drawn(SMALL), dies=["change", NEVER]))],
        lambda rows: {ON_DISK: _not_on_disk(rows[0]["ended"][0])},
    )


def save(data: np.ndarray, name: str = NAME, dies: Any = None, meets: list | None = None) -> dict[str, Any]:
    """Return a save of a scenario, as `arena.saves` takes it."""
    return {"name": name, "data": data, "dies": dies, "meets": meets}


def scenario(files: dict[str, np.ndarray], *saves: dict) -> dict[str, Any]:
    return {"files": files, "saves": list(saves)}


def _bytes_to_die_at(size: int, others: int, draws: np.random.Generator) -> list[int]:
    """Return the bytes that a save's writer may write before it dies: none, all but the last, and drawn numbers between."""
    return [0, size - 1, *map(int, draws.integers(1, size - 1, others))]


def _not_saved(rows: list[Row], data: tuple[np.ndarray, ...], before: tuple[np.ndarray | None, ...]) -> Complaint:
    for row, right, old in zip(rows, data, before, strict=True):
        complaint = _raised(row["ended"][-1]) or _wrong_content(row["files"], right, old)
        if complaint:
            return complaint

    return None


def _raised(ended: dict[str, Any], who: str = "the save") -> Complaint:
    how = ended["how"]
    if how == "returned":
        return None
    if how == "raised":
        return f"{who} raised {ended['error']}"
    return f"{who} did not return: its process was {'killed' if how == 'killed' else 'ended'}"


def _wrong_content(files: dict[str, np.ndarray], right: np.ndarray, before: np.ndarray | None = None) -> Complaint:
    got = files.get(NAME)
    if got is None:
        there = ", ".join(files) or "nothing"
        return f"afterwards there is no file {NAME}; the folder holds {there}. Give the finished file its name with os.replace."
    if not np.array_equal(got, right):
        return f"afterwards {NAME} does not hold the data: expected {len(right):,} bytes, got {_in_words(got, right, before)}"
    return None


def _examine_kills(
    rows: list[Row], deaths: list[Any], before: np.ndarray | None, data: np.ndarray
) -> dict[str, Complaint]:
    complaints: dict[str, Complaint] = {WHOLE: None}
    for row, death in zip(rows, deaths, strict=True):
        ended, left = row["ended"][0], row["files"].get(NAME)
        if death is None:
            complaints[WHOLE] = _not_saved([row], (data,), (before,))
        elif complaints[WHOLE] is None and not _is_one_of(left, before, data):
            complaints[WHOLE] = _torn(ended, death, left, before, data)
        if death and death[0] == "full":
            complaints[ERROR] = _error_kept(ended, death, left, data)

    folders = [row["ended"][0]["elsewhere"] for row in rows if row["ended"][0].get("elsewhere")]
    if folders and complaints[WHOLE]:  # the torn file was copied from there
        complaints[WHOLE] += f" Besides, {_elsewhere(folders[0])}"
    elif folders:
        complaints[WHOLE] = _elsewhere(folders[0])
    complaints[WHOLE] = complaints[WHOLE] or first_complaint(_touched(row["ended"][0]) for row in rows)
    if complaints[WHOLE] and ERROR in complaints:  # a save in place loses the old file, whatever its caller is told
        complaints[ERROR] = UNEXAMINED
    return complaints


def _touched(ended: dict[str, Any]) -> Complaint:
    """Complain about what a grader's warden saw of the saved file while it had not its new content yet."""
    touched = ended.get("touched")
    if touched == "written":
        return (
            f"the save wrote into {NAME} itself: a kill there tears it. Write all data into another file of the same folder, "
            f"then give that file the name with os.replace."
        )
    if touched == "removed":
        return (
            f"the save took the name {NAME} from the old file before the new one had it: a kill there leaves no file. os.replace "
            f"puts the new one in its place at once."
        )
    return _elsewhere("another folder") if touched == "elsewhere" else None


def _elsewhere(folder: str) -> str:
    return (
        f"the file was written in {folder} and renamed from there. Across file systems a rename fails, or is a "
        f"copy that a kill can tear: write the file in path.parent."
    )


def _is_one_of(left: np.ndarray | None, *files: np.ndarray | None) -> bool:
    for file in files:
        if left is None or file is None:
            if left is file:
                return True
        elif np.array_equal(left, file):
            return True

    return False


def _torn(
    ended: dict[str, Any], death: list, left: np.ndarray | None, before: np.ndarray | None, data: np.ndarray
) -> str:
    held = _in_words(left, data, before)
    if ended["how"] == "returned" and death[0] == "byte":
        return (
            f"the system wrote only {death[1]:,} of {len(data):,} bytes, and {NAME} was left with {held}: os.write returns the "
            f"number of bytes written, which may be fewer than it was given. Write the rest, too, or use "
            f'open(…, "wb"), whose write does.'
        )

    if death[0] == "full":
        return (
            f"the disk was full after {death[1]:,} of {len(data):,} bytes, and the save left {NAME} with {held}. A write that "
            f"fails raises OSError: end the save there, before os.replace, so that the old file stays."
        )

    moment = f"after {death[1]:,} of {len(data):,} bytes"
    if death[0] == "change":
        moment = "between two of its calls"
    if left is None:
        return (
            f"killed {moment}, the save left no file {NAME}: the old file was gone before the new one had its name. os.replace "
            f"puts the new one in its place at once."
        )
    return (
        f"killed {moment}, the save left {NAME} with {held}. Write all data into another file of the same folder, then give that "
        f"file the name with os.replace."
    )


def _in_words(left: np.ndarray | None, data: np.ndarray, before: np.ndarray | None) -> str:
    if left is None:
        return "no file"
    if not len(left):
        return "0 bytes"

    size = f"{len(left):,} bytes"
    if before is not None and np.array_equal(left, before):
        return f"the {size} of the old data"
    if len(left) < len(data) and np.array_equal(left, data[: len(left)]):
        return f"the first {size} of the new data"
    if before is not None and len(left) == len(before) and not np.array_equal(left, before):
        return "new data at its beginning and the old at its end"
    return f"{size} that are neither the old data nor the new"


def _error_kept(ended: dict[str, Any], death: list, left: np.ndarray | None, data: np.ndarray) -> Complaint:
    """Complain about an error of a full disk that the caller does not get. An answer's own error class passes for an OSError."""
    full = f"the disk was full after {death[1]:,} of {len(data):,} bytes, and the save"
    if ended["how"] == "returned" and not _is_one_of(left, data):
        return f"{full} returned as if the new data were there: its caller relies on them. Let the OSError reach the caller."
    if ended["how"] == "raised":
        kind = getattr(builtins, ended["error"].split(":")[0], None)
        if isinstance(kind, type) and not issubclass(kind, OSError):
            return f"{full} raised {ended['error']}: a caller expects an OSError. Let the OSError of the write go on."
    return None


def _not_on_disk(ended: dict[str, Any]) -> Complaint:
    if ended["on_disk"]:
        return None
    return (
        "the data got the file's name before they were on disk: if the machine stops now, the name may exist without the data. "
        "Before os.replace: flush the file, then call os.fsync(file.fileno()), while the file is open."
    )


ADVICE = (
    "Both saves wrote into one temporary file, or one removed the other's: make its name from all of path.name, as "
    'path.name + ".tmp" (path.with_suffix would remove ".rank1").'
)


def _met(row: Row, right: dict[str, np.ndarray]) -> Complaint:
    """Complain about two saves at once, of which the first stood still midway."""
    ended, files = row["ended"][0], row["files"]
    first, second = right
    complaint = _raised(ended, f"the save of {first}") or _raised(ended["other"], f"the save of {second}")
    if complaint:
        missing = complaint.partition("No such file or directory: '")[2].partition("'")[0]
        if first not in missing:
            return f"{complaint}. {ADVICE}"
        both = f": {second}*.tmp matches both" if first.startswith(second) else ""
        return f"{complaint}. The save of {second} removed a file of {first}'s{both}. Remove only {second}'s own files."

    for name, other in ((first, second), (second, first)):
        got = files.get(name)
        if not _is_one_of(got, right[name]):
            held = _in_words(got, right[name], None)
            if _is_one_of(got, right[other]):
                held = "the other file's data"
            return f"afterwards {name} holds {held}. {ADVICE}"

    more = sorted(set(files) - set(right))
    if more:
        return f"afterwards the folder holds {', '.join(more)} too. {ADVICE}"
    return None


def _beside_the_dead(row: Row, right: dict[str, np.ndarray]) -> Complaint:
    """Complain about a save that touched what a killed save of another file had left."""
    first, second = right
    complaint = _raised(row["ended"][-1], f"the save of {second}")
    if complaint:
        return f"{complaint}. {ADVICE}"
    for name, data in row["before"].items():
        left = row["files"].get(name)
        if not _is_one_of(left, data):
            gone = "is gone" if left is None else f"holds {len(left):,} other bytes"
            return f"{name}, which a killed save of {first} had left, {gone} after the save of {second}. {ADVICE}"
    return _not_killed(row, set())


def _not_killed(row: Row, others: set[str]) -> Complaint:
    """Complain about saves before the last that show nothing of what a killed save leaves, beside the `others` in the folder."""
    if any(ended["how"] != "killed" for ended in row["ended"][:-1]):
        return "a save went on where the system ends it by the signal SIGXFSZ. Leave that signal alone, and write all data."
    if not set(row["before"]) - others:
        return "a save that was killed midway had written nothing in the folder. Write the temporary file in path.parent."
    return None


def _piled_up(row: Row, right: dict[str, np.ndarray], old: np.ndarray) -> Complaint:
    files = row["files"]
    complaint = _raised(row["ended"][-1], "the last save") or _wrong_content(files, right[NAME])
    if complaint:
        got, new = files.get(NAME), right[NAME]
        if got is None or len(got) <= len(new):
            return complaint
        if np.array_equal(got[: len(new)], new) or np.array_equal(got[-len(new) :], new):
            complaint += '. It also holds what a killed save had written: open the temporary file with "wb", which empties it.'
        return complaint

    if not _is_one_of(files.get(NEIGHBOUR), right[NEIGHBOUR]):
        return f"{NEIGHBOUR}, another rank's file, is gone: remove only what your own killed saves left behind."

    left = {name: data for name, data in files.items() if name not in right}
    for name, content in left.items():
        if np.array_equal(content, old):
            return f"the old file is still there, as {name}: after a save, leave only the new file in the folder."
    if not left:
        return _not_killed(row, set(right))
    total = sum(map(len, left.values()))
    return (
        f"{count(len(left), 'temporary file')} of killed saves {'is' if len(left) == 1 else 'are'} still there, {total:,} bytes: "
        f"{', '.join(list(left)[:3])}. "
        f"If path alone decides the name, the next save overwrites what the last one left."
    )
