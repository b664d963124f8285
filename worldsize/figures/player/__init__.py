"""The player of moving views: one HTML output with a picture, data and a script; a view's own script only draws."""
