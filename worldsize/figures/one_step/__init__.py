"""Pictures of one training step: what a rank worked and sent in it, from one record or from two."""
