"""Ranks on several machines: the hosts, the ways to them, and the line to each. Import from `worldsize.hosts`."""
