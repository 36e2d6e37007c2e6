"""Runs of a study: files found by a pattern, tables read from them, and datasets of runs on the same tasks."""

import glob
import hashlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.files import MAX_BYTES, natural
from torchrankmetrics.inference.pairing import Collected, Values, as_table, check_complete, paired_rows
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import ABSENT, Columns, Rows
from torchrankmetrics.table.files import num_stored_rows
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import shorten, truncate

FIELDS = ("dataset", "model", "seed")
_PART = re.compile(r"\{(\w*)\}|\*")


def find_files(pattern: str | os.PathLike[str]) -> list[tuple[Path, str, dict[str, str]]]:
    """Find the files and the folders *.parquet of a pattern, in natural order (seed 2 before seed 10).

    A field and ``*`` match anything except "/", and as much as they can; a repeated field matches the same text.

    Returns:
        path of each file, the same below the folder that the pattern begins with, and the values of the fields.

    Raises:
        ValueError: if a field is unknown, there is none, or no file matches.
    """
    base, rest = _split(pattern)
    literals, fields = _PART.split(rest)[::2], _PART.split(rest)[1::2]
    expression, seen = re.escape(literals[0]), set[str]()
    for field_name, literal in zip(fields, literals[1:], strict=True):
        if field_name is None:
            expression += "[^/]*"
        else:
            expression += f"(?P={field_name})" if field_name in seen else f"(?P<{field_name}>[^/]+)"
            seen.add(field_name)
        expression += re.escape(literal)
    found = [
        (base / below, below, match.groupdict())
        for below in glob.glob("*".join(map(glob.escape, literals)), root_dir=base, include_hidden=True)
        if (match := re.fullmatch(expression, below))
        and ((base / below).is_file() or below.endswith(".parquet"))  # Dask and Spark write folders
    ]
    if not found:
        raise ValueError(f"no file matches {shorten(os.fspath(pattern))}{_existing(base)}")
    return sorted(found, key=lambda one: natural(one[1]))


def paths_of(pattern: str | os.PathLike[str], runs: Sequence[dict[str, str]]) -> list[tuple[Path, str]]:
    """Path of the file of each run, and the same below the folder that the pattern begins with.

    Raises:
        ValueError: if two runs would have one file, or a name cannot be part of a path.
    """
    base, rest = _split(pattern)
    if "*" in rest:
        raise ValueError(f"pattern must not contain * for files to write, got {shorten(os.fspath(pattern))}")
    for name in (name for run in runs for name in run.values()):
        if "/" in name or name in ("", ".", ".."):
            raise ValueError(f"the name {shorten(name)} cannot be part of a path: add the run under another name")
    below = [rest.format(**run) for run in runs]
    if len(set(below)) < len(runs):
        raise ValueError(
            "pattern must contain the fields that distinguish the runs, as runs/{dataset}/{model}/{seed}.npz does; got "
            f"{pattern}"
        )
    return [(base / name, name) for name in below]


def _split(pattern: str | os.PathLike[str]) -> tuple[Path, str]:
    """Split a pattern into the folder that it begins with and the rest."""
    text = os.fspath(pattern)
    named = [match[1] for match in _PART.finditer(text) if match[1] is not None]
    unknown = [name for name in named if name not in FIELDS]
    if unknown or not named:
        got = f"the unknown field {{{truncate(unknown[0])}}}" if unknown else "no field"
        raise ValueError(
            f"pattern may name {{dataset}}, {{model}} and {{seed}}, at least one; got {got} in {shorten(text)}"
        )
    first = _PART.search(text)
    assert first is not None
    folder = text[: text.rfind("/", 0, first.start()) + 1]
    return Path(folder or "."), text[len(folder) :]


def _existing(base: Path) -> str:
    if not base.is_dir():
        return f": the directory {str(base)!r} does not exist"
    names = sorted((entry.name + "/" * entry.is_dir() for entry in base.iterdir()), key=natural)
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"; {str(base)!r} contains {listed or 'nothing'}"


@dataclass(frozen=True)
class Run:
    """Ranks of a model on a dataset with a seed.

    Attributes:
        model, dataset, seed: its names.
        source: its table, or the path of its file.
        file: path of the file relative to a folder that readers have as well; None without a file.
        num_rows: of its table.
    """

    model: str
    dataset: str
    seed: str
    source: RankTable | Path | dict[str, Values] = field(repr=False)
    file: str | None
    num_rows: int

    def load(self) -> RankTable:
        """Return the ranks, read from their file if they have one; ValueError for values of queries."""
        if isinstance(self.source, dict):
            raise ValueError(f"{self.label} has values of queries, not ranks: pages and files of a study need ranks")
        return RankTable.load(self.source, max_bytes=MAX_BYTES) if isinstance(self.source, Path) else self.source

    @property
    def label(self) -> str:
        """Name in errors and notes."""
        return f"{self.model} on {self.dataset}, seed {self.seed}"


def source_of(ranks: object) -> tuple[RankTable | Path, int]:
    """Table or path of the ``table`` of ``RankStudy.add``, and its number of rows, of a file from its headers.

    Raises:
        OSError, ValueError: if a file does not exist or is not a file of ranks.
        TypeError: if it contains no ranks.
    """
    if isinstance(ranks, str | os.PathLike):
        return Path(ranks), num_stored_rows(ranks)
    if isinstance(ranks, RankTable | Ranks | Collected):
        table = as_table(ranks)
    else:  # results of PyKEEN's pipeline, and of its evaluators
        table = getattr(getattr(ranks, "metric_results", ranks), "table", None)  # type: ignore[assignment]
    if not isinstance(table, RankTable):
        raise TypeError(
            "table must be a RankTable, a RankCollection, Ranks, results of a RankCollectionEvaluator or the path of a "
            f"file that RankTable.save wrote; got {type(ranks).__name__}"
        )
    return table, len(table)


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A run that was read.

    Attributes:
        run: its names.
        table: its ranks, as they are in the file.
        analysis: its canonical rows and results computed from them.
        ordered: rows in the order of the tasks that all runs share; None if the order is not known.
        tasks: digest of all columns except the ranks: runs of equal digest are aligned row by row; "" without an order.
        notes: warnings from reading it.
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


def load_run(run: Run) -> LoadedRun:
    """Read a run and put its tasks in order: by (side, sample id), or as they are if the table is not sorted.

    Raises:
        OSError, ValueError: if its file cannot be read, or contains no ranking tasks.
    """
    table = run.load()
    check_complete(table, run.label)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RankMetricWarning)
        analysis = Analysis([table.rows])
        ordered: Rows | None = analysis.table_rows
        if (Columns(analysis.rows).sample_id == ABSENT).any():
            try:
                ordered = paired_rows([table], [run.label])[0][0]
            except ValueError:
                ordered = None
    notes = tuple(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, RankMetricWarning)))
    return LoadedRun(run, table, analysis, ordered, "" if ordered is None else _digest(ordered), notes)


def _digest(rows: Rows) -> str:
    columns, digest = Columns(rows), hashlib.blake2b(digest_size=16)
    for column in (columns.side, columns.sample_id, columns.num_candidates, columns.group, columns.weight_bits):
        digest.update(column.tobytes())
    return digest.hexdigest()


class Facts(NamedTuple):
    """Facts of a dataset.

    Attributes:
        tasks: number of ranking tasks.
        fewest, most: numbers of candidates, 0 if unknown.
        tie_rates: share of tied tasks by model; empty for values of queries.
    """

    tasks: int
    fewest: int
    most: int
    tie_rates: Mapping[str, float]

    @property
    def candidates(self) -> str:
        """Range of the numbers of candidates; "" if unknown."""
        return f"{self.fewest} to {self.most}" if self.fewest < self.most else str(self.most or "")

    def __str__(self) -> str:
        if not self.tie_rates:
            return f"{self.tasks} queries"
        return f"{self.tasks} tasks among {self.candidates or 'an unknown number of'} candidates, {self.ties}% ties"

    @property
    def ties(self) -> str:
        """Range of the shares of ties of the models, in percent."""
        low, high = (100 * end(self.tie_rates.values()) for end in (min, max))
        return f"{low:.1f} to {high:.1f}" if high - low >= 0.05 else f"{high:.1f}"


def missing_seeds(present: Mapping[str, Sequence[str]], seeds: Sequence[str]) -> list[str]:
    """Notes on the models without a run of each seed."""
    lacking = {model: [seed for seed in seeds if seed not in own] for model, own in present.items()}
    return [f"{model} lacks seed {', '.join(lost)}" for model, lost in lacking.items() if lost]


class DataSet:
    """The runs of a dataset by model, read and aligned."""

    def __init__(self, runs: Iterable[LoadedRun]) -> None:
        self.models: dict[str, list[LoadedRun]] = {}
        for run in runs:
            self.models.setdefault(run.run.model, []).append(run)
        self.runs = [run for runs in self.models.values() for run in runs]
        self.num_rows = sum(len(run.analysis.rows) for run in self.runs)
        # the tasks that most runs share
        digests = Counter(run.tasks for run in self.runs if run.tasks)
        tasks = digests.most_common(1)[0][0] if digests else ""
        self.reference = next((run for run in self.runs if run.tasks == tasks), self.runs[0])
        same = {model: all(run.tasks == tasks for run in runs) for model, runs in self.models.items()}
        self.aligned = {model: runs for model, runs in self.models.items() if tasks and same[model]}

    def of(self, measure: Measure) -> "tuple[DataSet, Measure]":
        """Runs with a metric, and its measure: all runs, because ranks have every metric."""
        return self, measure

    @cached_property
    def facts(self) -> Facts:
        """Numbers of tasks and candidates, and shares of ties."""
        sample = self.reference.analysis.sample()
        counts = (0, 0) if sample.num_candidates is None else sample.candidate_counts.num_candidates
        samples = {model: [run.analysis.sample() for run in runs] for model, runs in self.models.items()}
        ties = {model: sum(one.tie_mass / one.total for one in found) / len(found) for model, found in samples.items()}
        return Facts(sample.num_tasks, int(counts[0]), int(counts[-1]), ties)

    def notes(self, seeds: Sequence[str]) -> list[str]:
        """Reasons why models are not compared, missing seeds, NaN, sampled candidates, and warnings from reading."""
        odd = [model for model in self.models if model not in self.aligned] if len(self.models) > 1 else []
        found = [self._misaligned(model) for model in odd]
        found += missing_seeds({model: [run.run.seed for run in runs] for model, runs in self.models.items()}, seeds)
        for model, runs in self.models.items():
            if nan := sum(run.analysis.num_nan for run in runs):
                found.append(f"{model} has NaN scores in {nan} tasks, which never help")
            if sampled := sum(run.analysis.num_sampled for run in runs):
                found.append(
                    f"{model} was ranked among sampled candidates in {sampled} tasks: only mr and auc estimate the "
                    "values among all candidates"
                )
            notes = dict.fromkeys(note for run in runs for note in run.notes if "NaN" not in note)
            found += [f"{model}: {note}" for note in notes]
            if any(int(Columns(run.analysis.rows).num_candidates.max()) == 1 for run in runs):
                found.append(f"all tasks of {model} have a single candidate")
        return found

    def _misaligned(self, model: str) -> str:
        reference = self.reference
        odd = next(run for run in self.models[model] if run.tasks != reference.tasks or not run.tasks)
        pair = [odd] if odd is reference else [reference, odd]
        reason = "the order of its tasks is not known"
        try:
            with warnings.catch_warnings():  # load_run has recorded them
                warnings.simplefilter("ignore", RankMetricWarning)
                paired_rows([run.table for run in pair], [f"{run.run.model}, seed {run.run.seed}," for run in pair])
        except ValueError as error:
            reason = str(error)
        return f"{model} is not compared: {reason}"
