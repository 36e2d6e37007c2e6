"""How far a value can be trusted: what intervals and comparisons return, and tasks that share their negatives."""

from torchrankmetrics.evaluation.comparison import Comparison, Comparisons, PairwiseComparisons
from torchrankmetrics.evaluation.intervals import Interval, Intervals
from torchrankmetrics.theory.dependence import InflatedExpectation, variance_inflation
from torchrankmetrics.theory.inference.testing import holm

__all__ = [
    "Comparison",
    "Comparisons",
    "InflatedExpectation",
    "Interval",
    "Intervals",
    "PairwiseComparisons",
    "holm",
    "variance_inflation",
]
