"""The map of the course: a card per lab, in layers by prerequisites, with the points so far and a link to each.

The module holds plain data and its two renderings (HTML for a notebook, lines for a terminal). A lab's layer is the longest
path to it. The HTML (`pages`) sets no colors, so light and dark themes both work.
"""

from dataclasses import dataclass

from typing_extensions import override

from worldsize import pages, units


@dataclass(frozen=True)
class MappedLab:
    """A lab on the map: `after` has the numbers of its prerequisites; `here` marks the open lab.

    `link` leads to its notebook, "" if there is none.
    """

    number: str
    title: str
    possible: float
    earned: float
    after: tuple[str, ...] = ()
    here: bool = False
    link: str = ""

    @property
    def done(self) -> bool:
        return self.earned >= self.possible

    @property
    def points(self) -> str:
        return f"{units.number(self.earned)} of {units.number(self.possible)} points"

    @property
    def mark(self) -> str:
        return " ".join(["✔"] * self.done + ["▶"] * self.here)


@dataclass(frozen=True, repr=False)
class CourseMap:
    """The labs of the course, shown in layers by a notebook and by `print`.

    Raises ValueError if a lab's prerequisite is unknown or the lab itself.
    """

    labs: tuple[MappedLab, ...]

    def __post_init__(self) -> None:
        known = [lab.number for lab in self.labs]

        for lab in self.labs:
            unknown = [other for other in lab.after if other not in known or other == lab.number]
            if unknown:
                wrong = f"lab {lab.number} builds on {', '.join(unknown)}"
                raise ValueError(f"course map: {wrong}; expected some of {', '.join(known)}")

    @property
    def heading(self) -> str:
        earned, possible = sum(lab.earned for lab in self.labs), sum(lab.possible for lab in self.labs)
        done = sum(lab.done for lab in self.labs)
        return f"{done} of {units.count(len(self.labs), 'lab')} done, {units.number(earned)} of {units.number(possible)} points"

    @property
    def layers(self) -> list[list[MappedLab]]:
        """The map's labs by the longest path to them, each layer in order of numbers."""
        depth: dict[str, int] = {}
        for _ in self.labs:  # as many rounds as labs are enough for any chain
            for lab in self.labs:
                depth[lab.number] = 1 + max((depth.get(other, 0) for other in lab.after), default=-1)

        found: list[list[MappedLab]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
        for lab in sorted(self.labs, key=lambda lab: lab.number):
            found[depth[lab.number]].append(lab)
        return found

    @override
    def __str__(self) -> str:
        lines = [self.heading]

        for layer in self.layers:
            for lab in layer:
                after = f", after {', '.join(lab.after)}" if lab.after else ""
                lines.append(f"{lab.mark:3} {lab.number} {lab.title}{after}: {lab.points}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        layers = self.layers
        names = ["Begin here", "Then, in any order", *["Builds on the labs above"] * len(layers)][: len(layers)]
        return pages.render("course_map.html", heading=self.heading, layers=layers, names=names)
