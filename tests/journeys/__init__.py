"""The doors of the course, one after the other, as real processes: a journey types what a document prints and patches nothing."""
