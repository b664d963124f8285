"""The source of ranks: the agent that owns them, and a rank's own side, for torch and for TensorFlow."""
