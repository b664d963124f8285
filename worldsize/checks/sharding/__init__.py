"""Checks of lab 12: tensor parallelism and the sharded optimizer."""
