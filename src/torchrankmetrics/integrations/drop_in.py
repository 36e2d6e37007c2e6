"""`DropIn`: a metric with the arguments of another library, and the table of its ranks."""

import torch

from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.table.rank_table import RankTable


class DropIn(RankMetric):
    """A ``RankMetric`` that takes the place of a metric of another library."""

    def table(self) -> RankTable:
        """Return the ranks of all processes, for ``evaluate``, ``compare`` and intervals.

        Returns:
            A ``RankTable`` on the CPU, sorted, distinct and counted.
        """
        with self.sync_context(
            self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            rows = self.rows.analysis().all_rows
        return RankTable(torch.from_numpy(rows.copy(order="K")))
