"""Points and predictions over all labs, read from the labs' files, and the next step.

This module reads and changes nothing: a damaged file is named, and repaired when its lab is opened. The command line and a
lab's summary display the result.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from worldsize.cells.released import EXERCISES
from worldsize.lab.course_folder import labs_folder, notebooks_in
from worldsize.lab.course_map import CourseMap, MappedLab
from worldsize.lab.lab_list import LABS
from worldsize.lab.state import counted_points, load_state, state_folder
from worldsize.titles import title_of


@dataclass(frozen=True)
class LabProgress:
    """Progress in one lab: points of the latest checks, and the number of questions asked so far that have a prediction.

    `begun` is True if the lab keeps anything yet; `problem` says why its file cannot be read, "" if it can. `open_exercise` is
    the title of the first exercise that misses points, "" if none does; exercises marked "(optional)" are skipped.
    """

    number: str
    title: str
    possible: float
    earned: float = 0
    predicted: int = 0
    asked: int = 0
    open_exercise: str = ""
    begun: bool = False
    problem: str = ""

    @property
    def next_step(self) -> str:
        if self.problem:
            return "its file is damaged: open the lab to repair it"
        if not self.begun:
            return "begin"
        if self.open_exercise:
            return self.open_exercise
        if self.predicted < self.asked:
            return f"predictions left: {self.asked - self.predicted}"
        return "done"


@dataclass(frozen=True)
class CourseProgress:
    """Every released lab, in order, and the folder from which this was read."""

    labs: tuple[LabProgress, ...]
    folder: Path

    @property
    def earned(self) -> float:
        return sum(lab.earned for lab in self.labs)

    @property
    def possible(self) -> float:
        return sum(lab.possible for lab in self.labs)

    @property
    def predicted(self) -> int:
        return sum(lab.predicted for lab in self.labs)

    @property
    def asked(self) -> int:
        return sum(lab.asked for lab in self.labs)


def progress_in(folder: Path) -> CourseProgress:
    """Return the progress of the labs in `folder`, which need not exist."""
    return CourseProgress(tuple(_progress(number, folder) for number in EXERCISES), folder)


def course_progress() -> CourseProgress:
    """Return the local progress: beside the labs, in `WORLDSIZE_STATE_DIR`, or in the current directory.

    Raises ValueError if no lab has kept anything; the message names the searched folders.
    """
    places = [state_folder()]
    labs = labs_folder()
    if labs is not None and labs / ".worldsize" not in places and not os.environ.get("WORLDSIZE_STATE_DIR"):
        places.insert(0, labs / ".worldsize")
    for folder in places:
        if any(folder.glob("lab_[0-9][0-9].json")):
            return progress_in(folder)

    looked = "; ".join(map(str, places))
    raise ValueError(
        f"progress: expected the labs' records (.worldsize/lab_00.json, …), got none in: {looked}. Run a lab first, or "
        f"change to the course's folder."
    )


def next_lab(number: str) -> str:
    """Return the lab to progress to after lab `number`, such as "Lab 07: TensorFlow by hand"; "" after the last released lab."""
    later = [other for other in EXERCISES if other > number]
    if not later:
        return ""
    return f"Lab {later[0]}: {LABS[later[0]].title}"


def _progress(number: str, folder: Path) -> LabProgress:
    title, possible, _ = LABS[number]
    try:
        state = load_state(folder / f"lab_{number}.json")
    except FileNotFoundError:
        return LabProgress(number, title, possible)
    except (ValueError, RecursionError, OSError) as error:
        return LabProgress(number, title, possible, begun=True, problem=str(error) or type(error).__name__)

    open_exercise = ""
    for exercise, line in EXERCISES[number].items():
        score = state["points"].get(exercise)
        if line.endswith("(optional)"):
            continue
        if score is None or score["earned"] < score["possible"]:
            heading = title_of(line)
            open_exercise = heading.whole if heading else exercise
            break

    points, predictions = counted_points(state).values(), state["predictions"].values()
    return LabProgress(
        number, title, possible,
        earned=sum(score["earned"] for score in points),
        predicted=sum(asked.get("value") is not None for asked in predictions),
        asked=len(predictions),
        open_exercise=open_exercise,
        begun=True,
    )  # fmt: skip


def map_of_course(folder: Path, here: str = "") -> CourseMap:
    """Return the map of the released labs, with the points in `folder`; `here` is the number of the open lab.

    A lab links to its notebook if that lies in the current folder, as it does for a notebook of the course.
    """
    beside = notebooks_in(Path.cwd())
    mapped_labs = []
    for lab in progress_in(folder).labs:
        after = tuple(number for number in LABS[lab.number].after if number in EXERCISES)
        mapped_labs.append(
            MappedLab(
                number=lab.number, title=lab.title, possible=lab.possible, earned=lab.earned, after=after,
                here=lab.number == here, link=beside[lab.number].name if lab.number in beside else "",
            )
        )  # fmt: skip
    return CourseMap(tuple(mapped_labs))
