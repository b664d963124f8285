"""The replay: recorded runs played side by side on one clock, with a still of the whole film."""
