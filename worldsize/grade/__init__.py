"""Grading: a folder of submissions in, a row for each out, and nothing of a submission ever runs in the grader.

From the outside in: `grader` (the batch), `worker` (one process that marks), `marking` (one submission), `arena` (the
seam that checks know), `broker` (the ranks' fabric and its record), `sandbox` (bubblewrap), `box` (the server inside),
`walls` (each rank's own), `rank` (the student's function at last). Left out: books, feedback and exports.
"""
