"""Grading: a submission runs in a sandbox, its reports are not trusted, and the results are points and feedback.

`marking/` reads a file and runs the checks through `outside/` (arena, run, broker); `isolation/` confines what runs, and
`inside/` is the code inside. `reports/`, `nbgrader/` and `gradescope/` publish the rows.
"""
