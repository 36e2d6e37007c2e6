"""What the rows of an evaluation say, worked out once and shared by every metric that asks."""

import copy
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.ranking import columns
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.canonical import canonical_rows
from torchrankmetrics.ranking.columns import ABSENT, RANKS, SIDE_CODES, Rows, side_codes, task_flags
from torchrankmetrics.ranking.rows import empty_rows
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.sample import RankSample, RankType
from torchrankmetrics.theory.values import base_value


class Analysis:
    """Canonical rows, samples by side and average, base values: each computed on first use, kept while the rows stay.

    Args:
        blocks: int64 (n_i, 8) blocks of rows, on any device.

    Raises:
        IndexError: for ids out of range that an accelerator could only flag.
        ValueError: for ranks, weights or restrictions that an accelerator could only flag.
    """

    def __init__(self, blocks: Sequence[Tensor]) -> None:
        # one copy to the host, here and nowhere before; by columns, as they are read from here on
        rows = torch.cat([block.T for block in blocks], 1).cpu().numpy().T if blocks else empty_rows().numpy()
        fault.raise_faults(task_flags(rows))
        self.rows, differing = canonical_rows(rows)
        self._samples: dict[tuple[str | None, bool], RankSample] = {}
        self._values: dict[tuple[RankDefinition, RankType, str | None, bool], float] = {}
        self._warned = False
        if differing:
            _warn(
                f"{differing} repeated (side, sample_id) came with different ranks; the smallest row of each "
                "is kept. Repeats should be the same task scored by the same model"
            )
        if self.num_nan:
            _warn(
                f"{self.num_nan} of {int(self.rows[:, columns.COUNT].sum())} ranking tasks have NaN scores; "
                "a NaN never helps: a NaN true score ranks last, a NaN candidate counts as better than the truth"
            )

    @property
    def num_nan(self) -> int:
        """Number of tasks with a NaN among their scores."""
        return self._num_flagged(fault.NAN)

    @property
    def num_sampled(self) -> int:
        """Number of tasks that were ranked among sampled candidates."""
        return self._num_flagged(fault.SAMPLED)

    @property
    def sides(self) -> list[str]:
        """The sides that occur: a subset of head, tail, relation."""
        present = np.unique(side_codes(self.rows))
        return [name for name, code in SIDE_CODES.items() if name is not None and code in present]

    def sample(self, side: str | None = None, macro: bool = False) -> RankSample:
        """Tasks of a side (None: of both), with weights that sum to one per group if macro.

        Raises:
            ValueError: if a macro average is asked for and a task has no group.
        """
        key = (side, macro)
        if key not in self._samples:
            rows = self.rows if side is None else self.rows.T[:, side_codes(self.rows) == SIDE_CODES[side]].T
            self._samples[key] = sample_of(rows, macro)
        return self._samples[key]

    def value(self, definition: RankDefinition, rank_type: RankType, side: str | None, macro: bool) -> float:
        """Base value of a metric on the tasks of a side."""
        key = (definition, rank_type, side, macro)
        if key not in self._values:
            self._values[key] = base_value(definition, self.sample(side, macro), rank_type)
        return self._values[key]

    def by_group(self) -> Iterator[tuple[int, "Analysis"]]:
        """The tasks of each group apart, by ascending id.

        Raises:
            ValueError: if a task has no group.
        """
        group = self.rows[:, columns.GROUP]
        if (group == ABSENT).any():
            raise ValueError("a breakdown needs a group for every task: pass group= to every update")
        order = np.argsort(group, kind="stable")
        ids, first = np.unique(group[order], return_index=True)
        for one, left, right in zip(ids.tolist(), first, [*first[1:], len(order)][: len(ids)], strict=True):
            part = copy.copy(self)
            part.rows, part._samples, part._values = self.rows[order[left:right]], {}, {}
            yield one, part

    def _num_flagged(self, flag: int) -> int:
        hit = task_flags(self.rows) & flag > 0
        return int(self.rows[hit, columns.COUNT].sum())

    def warn_undefined(self, key: str) -> None:
        """Tell once that a view is NaN because chance leaves it no room."""
        if not self._warned:
            self._warned = True
            _warn(
                f"{key} is undefined (NaN): under random ranking its value is a constant, for example because every "
                "task has a single candidate, or k is not below any number of candidates"
            )


def sample_of(rows: Rows, macro: bool = False) -> RankSample:
    """Read canonical rows as a sample of ranks."""
    weight = columns.weights(rows)
    count = rows[:, columns.COUNT]
    if macro:
        group = rows[:, columns.GROUP]
        if (group == ABSENT).any():
            raise ValueError("average='macro' needs a group for every task: pass group= to every update")
        _, index = np.unique(group, return_inverse=True)
        total = np.bincount(index, weight * count)
        # a group whose weights are all zero is dropped like its tasks
        weight = np.divide(weight, total[index], out=np.zeros_like(weight), where=total[index] > 0)
    optimistic, pessimistic, num_candidates = rows[:, RANKS].T
    return RankSample(optimistic, pessimistic, num_candidates, weight, count)


def _warn(message: str) -> None:
    warnings.warn(message, RankMetricWarning, stacklevel=2)
