"""Checks of lab 14: coded, sparse and low-rank averages with error feedback, local steps, and when they pay."""
