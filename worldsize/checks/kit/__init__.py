"""What several checks use: judging a run, comparing values, reading transfers."""
