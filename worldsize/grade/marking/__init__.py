"""From a file that was handed in to its row of points."""
