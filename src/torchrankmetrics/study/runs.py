"""The runs of a study: found as files, read from them, and aligned on the tasks that they share."""

import hashlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.files import MAX_BYTES, natural
from torchrankmetrics.inference.pairing import paired_rows
from torchrankmetrics.inference.sources import Collected, Evaluation, as_table, check_complete
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import ABSENT, Columns, Rows, used
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.table.stored import read_length
from torchrankmetrics.validation import shortened, shown

FIELDS = ("dataset", "model", "seed")
_PART = re.compile(r"\{(\w*)\}|(\*)")


@dataclass(frozen=True)
class Found:
    """A file, its path below the folder that the pattern begins with, and what the fields stand for."""

    path: Path
    below: str
    fields: dict[str, str]


def find_files(pattern: str | os.PathLike[str]) -> list[Found]:
    """Find the files of a pattern, and folders *.parquet, in the order in which people count (seed 2 before seed 10).

    A field, and ``*``, stands for anything but "/", and takes as much as it can; a field that comes twice stands for
    the same.

    Raises:
        ValueError: if a field is unknown, there is none, or no file matches.
    """
    base, parts = _split(pattern)
    found = [
        Found(path, "/".join(names), fields)
        for path, names, fields in _matching(base, parts, (), {})
        if path.is_file() or path.suffix == ".parquet"  # which engines write as folders
    ]
    if not found:
        raise ValueError(f"no file matches {shown(os.fspath(pattern))}{_there(base)}")
    return sorted(found, key=lambda one: natural(one.below))


def paths_of(pattern: str | os.PathLike[str], runs: Sequence[dict[str, str]]) -> list[tuple[Path, str]]:
    """Path of the file of each run, and that below the folder that the pattern begins with.

    Raises:
        ValueError: if the pattern does not tell the runs apart, or a name cannot be part of a path.
    """
    base, parts = _split(pattern)
    if "*" in "/".join(parts):
        raise ValueError(f"pattern must not hold * where files are written, got {shown(os.fspath(pattern))}")
    for name in (name for run in runs for name in run.values()):
        if "/" in name or name in ("", ".", ".."):
            raise ValueError(f"the name {shown(name)} cannot be part of a path: add the run under another name")
    below = ["/".join(parts).format(**run) for run in runs]
    if len(set(below)) < len(runs):
        raise ValueError(
            f"pattern must tell all runs apart, as runs/{{dataset}}/{{model}}/{{seed}}.npz does; got {pattern}"
        )
    return [(base / name, name) for name in below]


def _split(pattern: str | os.PathLike[str]) -> tuple[Path, list[str]]:
    """The folder that a pattern begins with, and the components of the rest."""
    text = os.fspath(pattern)
    unknown = [match[1] for match in _PART.finditer(text) if match[2] is None and match[1] not in FIELDS]
    if unknown or not any(f"{{{field}}}" in text for field in FIELDS):
        got = f"the unknown field {{{shortened(unknown[0])}}}" if unknown else "no field"
        raise ValueError(
            f"pattern may name {{dataset}}, {{model}} and {{seed}}, at least one; got {got} in {shown(text)}"
        )
    first = _PART.search(text)
    assert first is not None
    folder = text[: text.rfind("/", 0, first.start()) + 1]
    return Path(folder or "."), text[len(folder) :].split("/")


def _matching(
    folder: Path, parts: list[str], names: tuple[str, ...], fields: dict[str, str]
) -> Iterator[tuple[Path, tuple[str, ...], dict[str, str]]]:
    """Files below a folder that the rest of a pattern describes."""
    if not parts:
        yield folder, names, fields
        return
    first, *rest = parts
    if _PART.search(first) is None:
        if (folder / first).exists():
            yield from _matching(folder / first, rest, (*names, first), fields)
        return
    expression = re.compile(_expression(first, fields), re.DOTALL)  # names may hold line breaks
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := expression.fullmatch(entry.name):
            yield from _matching(entry, rest, (*names, entry.name), fields | match.groupdict())


def _expression(part: str, known: dict[str, str]) -> str:
    """One component of the pattern as a regular expression."""
    out, end, seen = "", 0, set[str]()
    for match in _PART.finditer(part):
        out += re.escape(part[end : match.start()])
        field, end = match[1], match.end()
        if field is None:
            out += ".*"
        elif field in known:
            out += re.escape(known[field])
        else:
            out += f"(?P={field})" if field in seen else f"(?P<{field}>.+)"
            seen.add(field)
    return out + re.escape(part[end:])


def _there(base: Path) -> str:
    if not base.is_dir():
        return f": there is no folder {str(base)!r}"
    names = sorted((entry.name + "/" * entry.is_dir() for entry in base.iterdir()), key=natural)
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"; {str(base)!r} holds {shown or 'nothing'}"


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


@dataclass(frozen=True, eq=False)
class Read:
    """A run that was read.

    Attributes:
        run: what it is called.
        table: its ranks, as they are in the file.
        analysis: its canonical rows, and what was worked out from them.
        ordered: (n, 10) rows in the order of the tasks that all runs share; None where no such order is known.
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
