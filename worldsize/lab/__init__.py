"""A lab in its notebook: predictions, measurements and points, its knobs, its commands and its checks."""
