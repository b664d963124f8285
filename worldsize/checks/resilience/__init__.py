"""Checks of lab 15: files that outlive a kill, exact resume, the accounting of failures, an epoch with fewer ranks."""
