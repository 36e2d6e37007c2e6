from .evaluation import SequentialEvaluation as SequentialEvaluation
from .testing import SequentialResult as SequentialResult
from .triples import rank_sequentially as rank_sequentially
