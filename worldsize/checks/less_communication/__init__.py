"""Checks of lab 14: sparse and low-rank averages with error feedback, local steps, and when less communication pays."""
