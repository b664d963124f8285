"""Pictures of many measurements at once: distributions, residuals of a fit, races, and intervals of forecasts."""
