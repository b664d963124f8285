"""The fabric's face."""
