"""Ranks on several machines: the hosts, the ways to them, and the line to each. The face is `worldsize.hosts`."""
