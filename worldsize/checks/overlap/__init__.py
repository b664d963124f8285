"""Checks of lab 11: gradients averaged during backward, in buckets."""
