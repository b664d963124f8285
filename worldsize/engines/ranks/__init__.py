"""Code in a rank's own process: from the fork to the result, its channel, and each framework's part."""
