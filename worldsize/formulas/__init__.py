"""Formulas that the course evaluates before a run: costs of messages, schedules, replicas and shards, each with its source."""
