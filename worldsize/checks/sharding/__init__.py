"""Checks of lab 12: tensor parallelism and sharded optimizers."""
