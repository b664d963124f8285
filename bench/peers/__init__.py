"""The engines that bench/launch.py compares, and the work that it gives them."""
