"""Answers to exercises of labs 11 to 16 that say of themselves what they did not do: what each is worth all the same.

A case is an exercise's cell. It changes the course's package in its own process, holds frames back, or makes them up, and
earns what its values and messages are worth. One module a kind.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeclaredCase:
    """`most` is what the exercise's properties that it has are worth. `changes`: whether it replaces objects of the package."""

    name: str
    exercise: str
    source: str
    most: float
    changes: bool


CASES: list[DeclaredCase] = []


def declared(name: str, exercise: str, source: str, most: float, changes: bool = False) -> None:
    CASES.append(DeclaredCase(name, exercise, source, most, changes))
