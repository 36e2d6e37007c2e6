"""Public functions for p-values of given values, intervals and comparisons."""

from torchrankmetrics.inference.clustered import clustered_p_value
from torchrankmetrics.inference.comparison import Comparison, Comparisons, PairwiseComparisons
from torchrankmetrics.inference.equivalence import Equivalence, equivalence
from torchrankmetrics.inference.intervals import Interval, Intervals
from torchrankmetrics.inference.testing import holm
from torchrankmetrics.null.tails.significance import has_p_value, log_p_value, p_value

__all__ = [
    "Comparison",
    "Comparisons",
    "Equivalence",
    "Interval",
    "Intervals",
    "PairwiseComparisons",
    "clustered_p_value",
    "equivalence",
    "has_p_value",
    "holm",
    "log_p_value",
    "p_value",
]
