"""Checks of lab 17: attention over a ring of ranks, and experts that live on other ranks."""
