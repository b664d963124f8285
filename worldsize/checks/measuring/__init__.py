"""Checks of labs 01 and 02 whose answers are numbers: timers, fits, metrics, memory."""
