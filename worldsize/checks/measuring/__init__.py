"""Checks of labs 01, 02 and 12 whose answers are numbers: timers, fits, memory."""
