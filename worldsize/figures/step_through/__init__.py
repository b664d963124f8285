"""The step-through: a run cut into steps, laid out, put into words, drawn as a still and as a player."""
