"""The grader in a Gradescope container."""
