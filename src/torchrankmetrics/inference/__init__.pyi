from .compare import equivalence as equivalence
from .comparison import (
    Comparison as Comparison,
    Comparisons as Comparisons,
    Equivalence as Equivalence,
    PairwiseComparisons as PairwiseComparisons,
)
from .intervals import Interval as Interval, Intervals as Intervals
from .testing import clustered_p_value as clustered_p_value, holm as holm
