from .comparison import (
    Comparison as Comparison,
    Comparisons as Comparisons,
    Equivalence as Equivalence,
    PairwiseComparisons as PairwiseComparisons,
)
from .equivalence import equivalence as equivalence
from .intervals import Interval as Interval, Intervals as Intervals
from .planning import (
    detectable_difference as detectable_difference,
    sample_size as sample_size,
)
from .testing import clustered_p_value as clustered_p_value, holm as holm
