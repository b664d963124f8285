"""Rows written into nbgrader's gradebook and shown in its formgrader."""
