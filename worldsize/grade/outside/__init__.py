"""Outside the sandboxes: their servers, the broker that keeps the record, a run, and the arena on top."""
