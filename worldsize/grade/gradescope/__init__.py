"""The same grader in a Gradescope container."""
