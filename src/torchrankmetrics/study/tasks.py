"""One data set: the runs of all its models, read and aligned once."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.pairing import paired_rows
from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.evaluation.sources import check_complete
from torchrankmetrics.study.runs import Run
from torchrankmetrics.table.columns import ABSENT, Columns, Rows, used


@dataclass(frozen=True, eq=False)
class Read:
    """A run that was read.

    Attributes:
        run: what it is called.
        table: its ranks, as they are in the file.
        analysis: its canonical rows, and what was worked out from them.
        ordered: (n, 9) rows in the order of the tasks that all runs share; None where no such order is known.
        tasks: digest of all but the ranks: runs of equal digest are aligned row by row; "" without an order.
        notes: what was warned of when it was read.
    """

    run: Run
    table: RankTable
    analysis: Analysis
    ordered: Rows | None
    tasks: str
    notes: tuple[str, ...]

    @property
    def rows(self) -> Rows:
        """Its rows, in the common order if there is one."""
        return self.analysis.rows if self.ordered is None else self.ordered


def read_run(run: Run) -> Read:
    """Read a run, and put its tasks in order: by (side, sample id), else as they are, if nobody has sorted them.

    Raises:
        OSError, ValueError: if its file cannot be read, or holds no ranking tasks.
    """
    table = run.load()
    check_complete(table, run.words)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RankMetricWarning)
        analysis = Analysis([table.rows])
        ordered: Rows | None = analysis.table_rows
        if (Columns(analysis.rows).sample_id == ABSENT).any():
            try:
                ordered = paired_rows([table], [run.words])[0][0]
            except ValueError:
                ordered = None
    notes = tuple(dict.fromkeys(str(one.message) for one in told if issubclass(one.category, RankMetricWarning)))
    return Read(run, table, analysis, ordered, "" if ordered is None else _digest(ordered), notes)


def _digest(rows: Rows) -> str:
    columns, digest = Columns(rows), hashlib.blake2b(digest_size=16)
    for column in (columns.side, columns.sample_id, columns.num_candidates, columns.group, columns.weight_bits):
        digest.update(column.tobytes())
    return digest.hexdigest()


class DataSet:
    """The runs of a data set by model.

    Args:
        name: of the data set.
        runs: of it, in any order.

    Raises:
        OSError, ValueError: if a file cannot be read, or holds no ranking tasks.
    """

    def __init__(self, name: str, runs: Sequence[Run]) -> None:
        self.name = name
        self.models: dict[str, list[Read]] = {}
        for run in runs:
            self.models.setdefault(run.model, []).append(read_run(run))

    @property
    def num_rows(self) -> int:
        """Number of rows of all its tables."""
        return sum(len(read.analysis.rows) for read in self.reads)

    @cached_property
    def reads(self) -> list[Read]:
        """All its runs, those of a model next to each other."""
        return [read for reads in self.models.values() for read in reads]

    @cached_property
    def tasks(self) -> str:
        """The digest of the tasks that most runs share; "" if no run has an order of its own."""
        shared = Counter(read.tasks for read in self.reads if read.tasks)
        return shared.most_common(1)[0][0] if shared else ""

    @cached_property
    def aligned(self) -> dict[str, list[Read]]:
        """The models whose runs are all of the shared tasks: these can be compared."""
        same = {model: all(read.tasks == self.tasks for read in reads) for model, reads in self.models.items()}
        return {model: reads for model, reads in self.models.items() if self.tasks and same[model]}

    @cached_property
    def reference(self) -> Read:
        """A run of the shared tasks, which stands for chance and for what is said of the tasks."""
        return next((read for read in self.reads if read.tasks == self.tasks), self.reads[0])

    @cached_property
    def misaligned(self) -> tuple[str, ...]:
        """Why models that are not among the aligned ones cannot be compared."""
        notes = []
        for model, reads in self.models.items():
            if model in self.aligned:
                continue
            odd = next(read for read in reads if read.tasks != self.tasks or not read.tasks)
            told = [f"{self.reference.run.model}, seed {self.reference.run.seed},", f"{model}, seed {odd.run.seed},"]
            try:
                with warnings.catch_warnings():  # told already, when it was read
                    warnings.simplefilter("ignore", RankMetricWarning)
                    if odd is self.reference:
                        paired_rows([odd.table], told[:1])
                    else:
                        paired_rows([self.reference.table, odd.table], told)
                why = "the order of its tasks is not known"
            except ValueError as error:
                why = str(error)
            notes.append(f"{model} is not compared: {why}")
        return tuple(notes)

    def counted(self, side: str, min_candidates: int) -> bool:
        """Whether the shared tasks have any of a side with so many candidates."""
        return bool(used(self.reference.rows, side, min_candidates).any())  # type: ignore[arg-type]
