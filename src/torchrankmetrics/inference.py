"""Public functions for p-values of given values, intervals and comparisons."""

from torchrankmetrics.evaluation.chance import clustered_p_value
from torchrankmetrics.evaluation.comparison import Comparison, Comparisons, PairwiseComparisons
from torchrankmetrics.evaluation.equivalence import Equivalence, equivalence
from torchrankmetrics.evaluation.intervals import Interval, Intervals
from torchrankmetrics.theory.inference.testing import holm
from torchrankmetrics.theory.tails.significance import has_p_value, log_p_value, p_value

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
