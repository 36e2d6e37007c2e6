"""How far a value can be trusted: what intervals and comparisons return, and tasks that share their negatives."""

from torchrankmetrics.evaluation.comparison import Comparison, Comparisons, PairwiseComparisons
from torchrankmetrics.evaluation.equivalence import Equivalence, equivalence
from torchrankmetrics.evaluation.intervals import Interval, Intervals
from torchrankmetrics.evaluation.planning import Plan, plan
from torchrankmetrics.evaluation.sampled import FullBounds, full_bounds, sampled_metric
from torchrankmetrics.evaluation.superiority import Superiority, superiority
from torchrankmetrics.theory.dependence import InflatedExpectation, variance_inflation
from torchrankmetrics.theory.inference.testing import holm

__all__ = [
    "Comparison",
    "Comparisons",
    "Equivalence",
    "FullBounds",
    "InflatedExpectation",
    "Interval",
    "Intervals",
    "PairwiseComparisons",
    "Plan",
    "Superiority",
    "equivalence",
    "full_bounds",
    "holm",
    "plan",
    "sampled_metric",
    "superiority",
    "variance_inflation",
]
