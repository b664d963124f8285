"""Checks of lab 05: parameter servers, synchronous, asynchronous, bounded and with backup workers."""
