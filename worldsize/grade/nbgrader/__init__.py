"""The rows of a grading in nbgrader's gradebook and formgrader."""
