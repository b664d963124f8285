"""A lab in its notebook: what was predicted, measured and earned, its knobs, its commands and its checks."""
