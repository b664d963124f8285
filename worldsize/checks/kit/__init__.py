"""Tools that checks share: judging a run, comparing values, reading transfers."""
