"""Checks of lab 16: a forecast with its interval, an all-reduce on two levels, the steps of real clusters, the fastest plan."""
