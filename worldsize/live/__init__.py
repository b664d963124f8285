"""What a person sees of a launch while it goes and when it has ended."""
