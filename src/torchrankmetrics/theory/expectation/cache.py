"""Moments that have been computed once: the second epoch on the same tasks pays nothing."""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torchrankmetrics.theory.candidates import CandidateCounts, Moments
from torchrankmetrics.theory.definitions import RankDefinition


class MomentsCache:
    """The moments asked for last, by definition and content of the candidate counts; a pickle carries none.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[tuple[RankDefinition, bytes], Moments] = OrderedDict()

    def get(
        self,
        definition: RankDefinition,
        counts: CandidateCounts,
        compute: Callable[[RankDefinition, CandidateCounts], Moments],
    ) -> Moments:
        """Moments as kept, or as computed now, of the tasks on which the metric has a value; NaN without any."""
        counts = counts.at_least(definition.min_candidates)
        if counts.num_tasks == 0:
            return Moments(math.nan, 0.0)
        key = (definition, counts.digest)
        if key not in self._kept:
            self._kept[key] = compute(definition, counts)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def __getstate__(self) -> dict[str, Any]:
        return {"_size": self._size, "_kept": OrderedDict()}
