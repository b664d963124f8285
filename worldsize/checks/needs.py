"""What a check's cases may need that simulated time lacks, in words."""

GROUP = "a process group"
TENSORFLOW = "TensorFlow"
THREAD = "a thread"
BACKWARD = "a backward that waits for messages, which autograd runs one at a time in a process"
KILLED = "a process to kill"
