"""`RankTable`: the rows of an evaluation, independent of any metric."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.files import MAX_BYTES, Source
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Integers, Numbers, check_dense
from torchrankmetrics.ranking.ranks import Ranks, trusted
from torchrankmetrics.table.blocks import rows_of
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    SIDE_CODES,
    SIDE_WORDS,
    WIDTH,
    Columns,
    HasRows,
    canonical_rows,
    empty_rows,
    with_ids_apart,
)
from torchrankmetrics.table.task_facts import TaskFacts
from torchrankmetrics.validation import TaskSide, check_choice, check_int, shorten

# methods import what computes values: building rows loads neither metrics nor files
if TYPE_CHECKING:
    from pandas import DataFrame

    from torchrankmetrics.inference.clusters import Cluster
    from torchrankmetrics.inference.intervals import Intervals
    from torchrankmetrics.inference.standard_errors import Method
    from torchrankmetrics.metrics.breakdown import Breakdown
    from torchrankmetrics.metrics.names import MetricLike, Metrics
    from torchrankmetrics.metrics.summary import Summary
    from torchrankmetrics.rendering.tabular import Names


class RankTable(HasRows):
    """Ranks and facts of their tasks: int64 rows of ten columns, the state of every metric.

    Args:
        rows (Tensor): (n, 10) int64: optimistic, pessimistic, num_candidates, side, group, sample
            id, weight, count, query, gain; or without gain (n, 9), as in 0.2; or without query and
            gain (n, 8), as in 0.1.

    >>> import torch
    >>> from torchrankmetrics import RankTable, Ranks
    >>> table = RankTable.from_ranks(Ranks(torch.tensor([1, 3]), None, 14), side="tail")
    >>> table
    RankTable(2 tasks, sides: tail)
    """

    def __init__(self, rows: Tensor) -> None:
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64:
            raise TypeError(
                f"rows must be an int64 tensor, got {getattr(rows, 'dtype', type(rows).__name__)}"
            )
        check_dense(rows, "rows")
        if rows.ndim == 2 and rows.shape[1] in (WIDTH - 2, WIDTH - 1):
            later = torch.tensor([ABSENT, ONE], device=rows.device)[rows.shape[1] - WIDTH :]
            rows = torch.cat([rows, later.expand(len(rows), -1)], 1)
        if rows.ndim != 2 or rows.shape[1] != WIDTH:
            raise ValueError(f"rows must be (n, {WIDTH}), got {tuple(rows.shape)}")
        self.rows = rows

    @classmethod
    def from_ranks(
        cls,
        ranks: Ranks,
        *,
        side: TaskSide | None = None,
        group: Integers | None = None,
        weight: Numbers | None = None,
        sample_id: Integers | None = None,
        query: Integers | None = None,
        gain: Numbers | None = None,
    ) -> RankTable:
        """Return a table of ranks, one row per task; errors as in ``RankMetric.update``.

        Args:
            ranks (Ranks): one entry per task.
            side (str, default None): "head", "tail" or "relation", the predicted side.
            group (integers, default None): (tasks,) integers, or one.
            weight (numbers, default None): (tasks,) numbers >= 0, or one.
            sample_id (integers, default None): (tasks,) integers, unique within a side.
            query (integers, default None): (tasks,) integers >= 0; tasks of one query are its
                relevant items.
            gain (numbers, default None): (tasks,) relevance labels >= 0, or one; 0 drops the task.
        """
        return cls(rows_of(ranks, TaskFacts(side, group, weight, sample_id, query, gain)))

    @classmethod
    def concatenate(cls, tables: Sequence[RankTable], *, offset_ids: bool = False) -> RankTable:
        """Return one table with the rows of all, on the device of the first; empty for none.

        Args:
            tables (sequence of RankTable): of the same tasks or of others.
            offset_ids (bool, default False): True moves the sample ids of each table past those of
                the tables before it, so that equal ids of two datasets are two tasks.
        """
        if not isinstance(tables, Sequence) or not all(
            isinstance(table, RankTable) for table in tables
        ):
            raise TypeError(f"tables must be a sequence of RankTables, got {shorten(tables)}")
        if not tables:
            return cls(empty_rows())
        parts = [table.rows.to(tables[0].rows.device) for table in tables]
        return cls(torch.cat(with_ids_apart(parts) if offset_ids else parts))

    @classmethod
    def from_numpy(cls, arrays: Mapping[str, npt.ArrayLike]) -> RankTable:
        """Return a table of plain arrays by name, on the CPU; the inverse of ``to_numpy``.

        Args:
            arrays (mapping): the arrays of a file of ranks, each (tasks,): optimistic,
                and any of pessimistic, num_candidates, side, group, sample_id, count, query,
                weight, gain, nan, sampled, partial, filtered, raw, excluded and empty. A single
                number serves all rows, except for optimistic and sample_id.

        Raises:
            TypeError, ValueError: if a name is unknown or missing, or a dtype, shape or value is
                wrong.

        >>> from torchrankmetrics import RankTable
        >>> RankTable.from_numpy({"optimistic": [1, 3], "num_candidates": 14, "side": [1, 2]})
        RankTable(2 tasks, sides: head, tail)
        """
        from torchrankmetrics.table.arrays import from_arrays

        return cls(from_arrays(arrays))

    def to_numpy(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the columns as arrays (rows,) by name, as in ``from_numpy``, without defaults."""
        from torchrankmetrics.table.arrays import to_arrays

        return to_arrays(self.rows)

    @classmethod
    def from_pandas(cls, frame: DataFrame) -> RankTable:
        """Return a table of a data frame with the columns of a CSV file; inverts ``to_pandas``.

        Args:
            frame (DataFrame): ``rank``, or ``optimistic`` and ``pessimistic``, and any other
                columns of ``from_numpy``; more columns are ignored with a warning.
        """
        from torchrankmetrics.table.arrays import from_frame

        return cls(from_frame(frame))

    def to_pandas(self) -> DataFrame:
        """Return the columns as a ``pandas.DataFrame``, with words for sides and NA for no id."""
        from torchrankmetrics.table.arrays import to_frame

        return to_frame(self.rows)

    @classmethod
    def load(cls, path: Source, *, max_bytes: int = MAX_BYTES) -> RankTable:
        """Return the table of a file (or pipe) of ranks; nothing is executed.

        Args:
            path (path): of a file, .npz, Parquet, CSV or TSV; or of a folder of Parquet files.
            max_bytes (int, default 2^30): largest memory: its arrays, and 80 bytes per row; of CSV
                240 bytes per line and 96 per cell.

        Raises:
            OSError, ValueError: if it cannot be opened; if it is empty, damaged, of a later
                version, or too large.
        """
        from torchrankmetrics.table.files import read

        return cls(read(path, max_bytes))

    def save(self, path: Source) -> None:
        """Write a compressed .npz of the columns, completely or not at all.

        A file of that name keeps its mode.

        Args:
            path (path): of the new file; one that ends in .parquet is written by ``to_parquet``.

        Raises:
            OSError, IndexError, ValueError: if it cannot be written; for faults that an accelerator
                could only flag.
        """
        from torchrankmetrics.table.files import write

        write(path, self.rows)

    @classmethod
    def from_parquet(
        cls, source: Source | Iterable[Source], *, max_bytes: int = MAX_BYTES
    ) -> RankTable:
        """Return the table of one Parquet file, several, or a directory of them.

        Each file may lack columns that another has.

        Args:
            source (path or sequence of paths): in the order of the rows; columns as in
                ``from_numpy`` or ``rank``, in integers and floats of any width; words and nulls as
                in CSV files.
            max_bytes (int, default 2^30): largest memory: the files, and by their footers 80 bytes
                per row and the largest row group.

        Raises:
            ImportError: without pyarrow, which the extra ``parquet`` brings.
            OSError, ValueError: as ``load``, and for unknown columns and wrong values.
        """
        from torchrankmetrics.table.files import read_parquet

        return cls(read_parquet(source, max_bytes))

    def to_parquet(self, path: Source) -> None:
        """Write a Parquet file of the columns; errors as ``save``, ImportError without pyarrow.

        Args:
            path (path): of the new file.
        """
        from torchrankmetrics.table.files import write_parquet

        write_parquet(path, self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        codes = set(Columns(self.rows).side.tolist())
        sides = [word for word, code in SIDE_WORDS.items() if code in codes]
        kind = " of a sample" if self.is_partial else ""
        return f"RankTable({self.num_tasks} tasks{kind}, sides: {', '.join(sides) or 'none'})"

    @property
    def num_tasks(self) -> int:
        """Number of ranking tasks, repeats included; queries without a relevant item have none."""
        is_task = Columns(self.rows).flags & fault.EMPTY == 0
        return int(self.count[is_task].sum())

    @property
    def is_partial(self) -> bool:
        """Whether some tasks are the sample of a ``SequentialResult``."""
        return bool((Columns(self.rows).flags & fault.PARTIAL).any())

    @property
    def ranks(self) -> Ranks:
        """The ranks of the rows; a row may count for several tasks, see ``count``.

        A query without a relevant item has a row with ranks of 0.
        """
        return trusted(Columns(self.rows).ranks.T, Columns(self.rows).flags)

    @property
    def group(self) -> Tensor:
        """(n,) int64 group ids; rows without a group hold the smallest int64."""
        return Columns(self.rows).group

    @property
    def sample_id(self) -> Tensor:
        """(n,) int64 sample ids; rows without one hold the smallest int64."""
        return Columns(self.rows).sample_id

    @property
    def query(self) -> Tensor:
        """(n,) int64: tasks of one (side, query) are its relevant items; least int64: one row."""
        return Columns(self.rows).query

    @property
    def weight(self) -> Tensor:
        """(n,) float64 weight of one task."""
        return Columns(self.rows).weight_bits.contiguous().view(torch.float64)

    @property
    def count(self) -> Tensor:
        """(n,) int64, the number of tasks of each row."""
        return Columns(self.rows).count

    def select(self, *, side: TaskSide | None = None, group: int | None = None) -> RankTable:
        """Return the rows of a side, of a group, or of both.

        Args:
            side (str, default None): "head", "tail" or "relation"; None: all sides.
            group (int, default None): id of a group; None: all groups.
        """
        rows = self.rows
        check_choice("side", side, SIDE_CODES)
        if side is not None:
            rows = rows[Columns(rows).side == SIDE_CODES[side]]
        if group is not None:
            rows = rows[Columns(rows).group == check_int("group", group, ABSENT)]
        return RankTable(rows.clone() if rows is self.rows else rows)

    def with_group(self, group: Integers | None) -> RankTable:
        """Return a table of the same ranks in other groups.

        Args:
            group (integers): (n,) integers, one for all rows (for example a dataset), or None for
                no groups.
        """
        rows = self.rows.clone()
        Columns(rows).group = Columns(rows_of(self.ranks, TaskFacts(group=group))).group
        return RankTable(rows)

    def summary(self, metrics: Metrics | None = None) -> Summary:
        """Return base value, adjusted index and z-score of metrics by side; a ``Summary``.

        Args:
            metrics (sequence of str, default None): names of metrics, definitions, or a dict of key
                -> name or definition; None: the default metrics of ``RankCollection``.
        """
        from torchrankmetrics.metrics.table_results import summary_of

        return summary_of(self, metrics)

    def breakdown(self, metrics: Metrics | None = None, names: Names = None) -> Breakdown:
        """Return metrics by group, as ``RankCollection.breakdown`` does.

        Args:
            metrics (sequence of str, default None): names of metrics, definitions, or a dict of key
                -> name or definition; None: the default metrics of ``RankCollection``.
            names (mapping or sequence of str, default None): names of the groups by id; None: ids.
        """
        from torchrankmetrics.metrics.table_results import breakdown_of

        return breakdown_of(self, metrics, names)

    def query_values(self, metric: MetricLike) -> dict[int, float]:
        """Return the value of every query by its ``query``, as ``compare`` takes them.

        Args:
            metric (str, QueryDefinition or RankMetric): a metric in its base view, such as
                "ndcg@10", of one side.
        """
        from torchrankmetrics.metrics.table_results import query_values_of

        return query_values_of(self, metric)

    def confidence_intervals(
        self,
        metrics: Metrics | None = None,
        confidence_level: float = 0.95,
        method: Method = "normal",
        cluster: Cluster | None = "auto",
        *,
        n_resamples: int = 2000,
        seed: int = 0,
    ) -> Intervals:
        """Return an ``Interval`` per metric by its key, as in ``RankCollection``.

        Args:
            metrics (sequence of str, default None): names of metrics, definitions, or a dict of key
                -> name or definition; None: the default metrics of ``RankCollection``.
            confidence_level (float, default 0.95): in (0, 1).
            method (str, default "normal"): "normal" or "bootstrap".
            cluster (str or integers, default "auto"): "auto", "group", "sample_id" or "query":
                tasks that are dependent; None: all are independent; int64 keys have one per row of
                the table.
            n_resamples (int, default 2000): number of bootstrap samples.
            seed (int, default 0): random seed of the bootstrap.
        """
        from torchrankmetrics.inference.intervals import intervals_of

        options = confidence_level, method, cluster, n_resamples, seed
        return intervals_of(self, metrics, *options)

    def compact(self) -> RankTable:
        """Return the smallest table with the same values: sorted, merged, without repeats."""
        rows, _ = canonical_rows(self.rows.cpu().numpy())
        return RankTable(torch.from_numpy(rows).to(self.rows.device))
