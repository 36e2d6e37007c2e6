from .testing import (
    SequentialEvaluation as SequentialEvaluation,
    SequentialResult as SequentialResult,
)
from .triples import rank_sequentially as rank_sequentially
