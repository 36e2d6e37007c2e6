from .clustered import clustered_p_value as clustered_p_value
from .comparison import Comparison as Comparison, Comparisons as Comparisons, PairwiseComparisons as PairwiseComparisons
from .equivalence import Equivalence as Equivalence, equivalence as equivalence
from .intervals import Interval as Interval, Intervals as Intervals
from .testing import holm as holm
