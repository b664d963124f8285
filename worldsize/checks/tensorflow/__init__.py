"""Checks of labs 07, 08 and 09: what runs in tasks of TensorFlow."""
