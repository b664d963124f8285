"""Checks of lab 03: stages and the schedules by which micro-batches pass through them."""
