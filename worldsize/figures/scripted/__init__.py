"""A picture that a script brings to life: one HTML output that holds both, and what its scripts share."""
