"""Checks of lab 03: stages, and the schedules that pass micro-batches through them."""
