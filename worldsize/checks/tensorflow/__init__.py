"""Checks of labs 07, 08 and 09: towers, replicas, workers and servers of TensorFlow."""
