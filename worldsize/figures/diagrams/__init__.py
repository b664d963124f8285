"""Pictures that explain, from formulas or from a run in steps: sizes and shapes rather than times."""
