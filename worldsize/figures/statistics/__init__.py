"""Pictures of many measurements at once: distributions, what a fit leaves over, and intervals of forecasts against the truth."""
