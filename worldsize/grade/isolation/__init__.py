"""What holds a submission: bubblewrap's mounts, namespaces, rules on system calls, limits."""
