"""Grading: submissions in, points and feedback out; a submission runs in a sandbox and is never believed.

A file enters `marking/` (whose it is, which cells count, what they earn), whose checks run the student's functions through
`host/` (the arena, a run, the broker that keeps the record). `isolation/` holds what runs, `box/` is what runs inside.
Rows leave through `reports/`, `nbgrader/` and `gradescope/`. `course` reads the release; `frames` cross the sandbox's edge.
"""
