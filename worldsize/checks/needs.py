"""Needs of a check's cases that simulated time cannot meet, in words."""

GROUP = "a process group"
TENSORFLOW = "TensorFlow"
THREAD = "a thread"
BACKWARD = "a backward that waits for messages, which autograd runs one at a time in a process"
KILLED = "a process to kill"
