"""Every strategy of TensorFlow with every way to train, run: `make support` writes `datasets/support.json`."""
