"""Checks of labs 04 and 10: shards, replicas, samplers, training with DistributedDataParallel."""
