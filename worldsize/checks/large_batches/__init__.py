"""The checks of lab 13: rates, steps, noise and normalisation with large batches."""
