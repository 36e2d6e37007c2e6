"""A run: the ranks of one model with one seed on one data set, in memory or still in their file."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.evaluation.sources import Collected, Evaluation, as_table
from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.stored import read_length


@dataclass(frozen=True)
class Run:
    """Ranks with the names of what made them.

    Attributes:
        model, dataset, seed: its names.
        source: its table, or the path of its file.
        file: path of the file for others, relative to a folder that they have as well; None: it has no file.
        num_rows: of its table.
    """

    model: str
    dataset: str
    seed: str
    source: RankTable | Path = field(repr=False)
    file: str | None
    num_rows: int

    def load(self, max_bytes: int = MAX_BYTES) -> RankTable:
        """The ranks, read from their file now if they have one.

        Raises:
            OSError, ValueError: as ``RankTable.load``.
        """
        return RankTable.load(self.source, max_bytes=max_bytes) if isinstance(self.source, Path) else self.source

    @property
    def words(self) -> str:
        """What errors and notes call it."""
        return f"{self.model} on {self.dataset}, seed {self.seed}"


class HoldsTable(Protocol):
    """What PyKEEN's evaluation gives with a ``RankCollectionEvaluator``."""

    table: RankTable


class HoldsResults(Protocol):
    """What PyKEEN's pipeline gives with one."""

    metric_results: HoldsTable


Given = Evaluation | HoldsTable | HoldsResults | str | os.PathLike[str]


def source_of(ranks: Given) -> RankTable | Path:
    """What ``RankStudy.add`` is given as a table, or as the path of one.

    Raises:
        TypeError: if it holds no ranks.
    """
    if isinstance(ranks, str | os.PathLike):
        return Path(ranks)
    if isinstance(ranks, RankTable | Ranks | Collected):
        return as_table(ranks)
    # what PyKEEN's pipeline and its evaluators give
    table = getattr(getattr(ranks, "metric_results", ranks), "table", None)
    if isinstance(table, RankTable):
        return table
    raise TypeError(
        "table must be a RankTable, a RankCollection, Ranks, results of a RankCollectionEvaluator or the path of a "
        f"file that RankTable.save wrote; got {type(ranks).__name__}"
    )


def rows_of_source(source: RankTable | Path) -> int:
    """Number of rows, of a file by its headers.

    Raises:
        OSError, ValueError: if a file is not there or not one of ranks.
    """
    return read_length(source) if isinstance(source, Path) else len(source)
