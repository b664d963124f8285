"""Combine two verdicts on an exercise into its row: real ranks earn points, the check in simulated time confirms them.

The check in simulated time has other draws, so it may show a mistake that the first draws missed. It earns nothing,
because in one process a rank can read another's data and forge messages. A person should look where the verdicts
differ.
"""

from dataclasses import dataclass, replace

from worldsize.checks.verdict import Property, Verdict
from worldsize.grade.course import Exercise
from worldsize.grade.marking.rows import ExerciseRow, ExerciseState, PropertyRow, SimulatedRow, messages_of
from worldsize.units import text_of


@dataclass(frozen=True)
class Checked:
    """A check's result on an exercise. `run` is the number of the run on real ranks that the verdict shows, 0 if it shows none.

    `changed` are objects of this package that changed in a process of the submission.
    """

    verdict: Verdict
    state: ExerciseState
    run: int = 0
    simulated: SimulatedRow | None = None
    changed: tuple[str, ...] = ()


def confirmed(real: Checked, simulated: Verdict) -> Checked:
    """Return the verdict of both: a property has its points if it held on real ranks and in simulated time.

    `marking` asks real ranks again, with the draws of simulated time, before it takes points away.
    """
    first = real.verdict
    about = SimulatedRow(
        outcome="same" if _earned(first) == _earned(simulated) else "differs",
        points=float(simulated.points),
        said=text_of(simulated.mismatch or ""),
        real_points=float(first.points),
        real_said=text_of(first.mismatch or ""),
    )
    held = {p.name: p.passed for p in simulated.properties}
    properties = tuple(replace(p, passed=held.get(p.name)) if p.passed else p for p in first.properties)
    if properties == first.properties and (first.state, simulated.state) != ("pass", "fail"):
        return replace(real, simulated=about)

    said = f"In simulated time, with other draws: {simulated.mismatch or 'the check did not pass'}"
    mismatch = "\n".join(filter(None, [first.mismatch, said]))
    verdict = Verdict(first.exercise, "fail", properties, mismatch, first.trace or simulated.trace)
    state = "fail" if real.state == "pass" else real.state
    return Checked(verdict, state, real.run if first.trace else 0, about, real.changed)


def _earned(verdict: Verdict) -> tuple[str, tuple[Property, ...]]:
    """Return the confirmed state and the properties that held; how far a check gets beyond them may be chance."""
    return verdict.state, tuple(p for p in verdict.properties if p.passed)


def exercise_row(exercise: Exercise, checked: Checked) -> ExerciseRow:
    """Return the row of an exercise that was checked and confirmed."""
    verdict = checked.verdict
    ranks, messages = messages_of(verdict.trace)

    return ExerciseRow(
        id=exercise.id,
        title=exercise.title,
        state=checked.state,
        points=float(min(verdict.points, exercise.points)),
        possible=exercise.points,
        properties=tuple(PropertyRow(p.name, p.points, p.passed) for p in verdict.properties),
        mismatch=text_of(verdict.mismatch or ""),
        ranks=ranks,
        messages=messages,
        run=checked.run if ranks else 0,
        simulated=checked.simulated,
        changed=checked.changed,
    )


def helped_row(exercise: Exercise, helped: tuple[Exercise, ...], own: ExerciseRow, better: Checked) -> ExerciseRow:
    """Return the row of an exercise that earned more with references than on its `own`.

    Points and properties are the better ones; messages stay the student's, since the better run has the release's
    answers.
    """
    names = ", ".join(f"`{e.id}`" for e in helped)
    points = better.verdict.points
    row = exercise_row(exercise, replace(better, state="pass" if better.verdict.state == "pass" else "fail", run=0))

    return replace(
        row,
        mismatch=f"With the course's own {names} in place of yours: {points:g} points. With yours: {own.mismatch}",
        helped=tuple(e.id for e in helped),
        left=own.left,
        taken_out=own.taken_out,
        ranks=own.ranks,
        messages=own.messages,
        run=own.run,
    )
