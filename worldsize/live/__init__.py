"""The display of a launch, while it runs and after it has ended."""
