"""Isolation of a submission: bubblewrap's mounts, namespaces, privileges, rules on system calls, limits."""
