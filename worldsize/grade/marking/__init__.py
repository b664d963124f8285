"""Marking: turn a submitted file into a row of points."""
