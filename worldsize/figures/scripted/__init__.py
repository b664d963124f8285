"""Pictures that a script brings to life: one HTML output with picture and script, and code that the scripts share."""
