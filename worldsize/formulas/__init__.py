"""What the course computes before it runs: the costs of messages, schedules, replicas and shards, each with its source."""
