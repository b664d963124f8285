"""Checks of labs 00, 02 and 06: a message to the right, trees, all-to-all, rings."""
