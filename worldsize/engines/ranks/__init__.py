"""What runs in a rank's own process: its way from the fork to the result, its channel, and what a framework adds."""
