"""Where ranks come from: the agent that owns them, and a rank's own side, for torch and for TensorFlow."""
