"""The slow reference of the metrics over ranks is scikit-learn's, with equal scores too."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_score, recall_score

from worldsize.checks.measuring.metrics import metrics


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_the_reference_gives_what_scikit_learn_gives(levels):
    generator = np.random.default_rng(levels)
    for _ in range(20):
        scores = generator.integers(0, levels, 30) / levels
        labels = generator.random(30) < 0.3
        labels[0] = True
        found = scores >= 0.5
        recall, precision = recall_score(labels, found), precision_score(labels, found, zero_division=0.0)
        expected = recall, precision, average_precision_score(labels, scores)
        assert metrics(scores, labels, 0.5) == pytest.approx(expected)
