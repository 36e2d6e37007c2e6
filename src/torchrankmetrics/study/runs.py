"""Runs of a study: files of a pattern, ranks or values from them, and runs on the same tasks."""

import glob
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from statistics import mode
from typing import Any, Literal, NamedTuple

import numpy as np

from torchrankmetrics.definitions.protocol import Side, ValueSample
from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.files import MAX_BYTES, natural
from torchrankmetrics.inference.clusters import query_order
from torchrankmetrics.inference.pairing import (
    Collected,
    Values,
    as_table,
    check_complete,
    paired_rows,
    value_rows,
)
from torchrankmetrics.inference.sources import PairedSource
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import ABSENT, Columns, Rows, is_empty_query, sorted_rows
from torchrankmetrics.table.files import num_stored_rows
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import shorten, truncate

FIELDS = ("model", "dataset", "seed")
_PART = re.compile(r"\{(\w*)\}|\*")


def find_files(pattern: str | os.PathLike[str]) -> list[tuple[Path, str, dict[str, str]]]:
    """Files of a pattern in natural order: path, path below the first folder, and fields.

    A field and ``*`` match anything except "/", and as much as they can; a repeated field matches
    the same text.
    """
    base, rest = _split(pattern)
    expression = re.escape(rest).replace(r"\*", "[^/]*")
    literals = _PART.split(rest)[::2]
    for name in FIELDS:
        part = re.escape(f"{{{name}}}")
        expression = expression.replace(part, f"(?P<{name}>[^/]+)", 1).replace(part, f"(?P={name})")
    found = [
        (base / below, below, match.groupdict())
        for below in glob.glob(
            "*".join(map(glob.escape, literals)), root_dir=base, include_hidden=True
        )
        if (match := re.fullmatch(expression, below))
        and ((base / below).is_file() or below.endswith(".parquet"))  # Dask and Spark write folders
    ]
    if not found:
        raise ValueError(_no_file(pattern, base))
    return sorted(found, key=lambda one: natural(one[1]))


def _no_file(pattern: str | os.PathLike[str], base: Path) -> str:
    """Message that no file matches, with the content of the directory."""
    start = f"no file matches {shorten(os.fspath(pattern))}"
    if not base.is_dir():
        return f"{start}: the directory {str(base)!r} does not exist"
    names = []
    for entry in base.iterdir():
        names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
    names.sort(key=natural)
    listed = ", ".join(names[:5]) or "nothing"
    return f"{start}; {str(base)!r} contains {listed}{', ...' if len(names) > 5 else ''}"


def paths_of(
    pattern: str | os.PathLike[str], runs: Sequence[Sequence[str]]
) -> list[tuple[Path, str]]:
    """Path of the file of each run (model, dataset, seed), and the same below the folder."""
    base, rest = _split(pattern)
    if "*" in rest:
        raise ValueError(
            f"pattern must not contain * for files to write, got {shorten(os.fspath(pattern))}"
        )
    for name in chain(*runs):
        if "/" in name or name in ("", ".", ".."):
            raise ValueError(
                f"the name {shorten(name)} cannot be part of a path: add the run under another name"
            )
    below = [rest.format(**dict(zip(FIELDS, names, strict=True))) for names in runs]
    if len(set(below)) < len(runs):
        example = "runs/{dataset}/{model}/{seed}.npz"
        raise ValueError(
            f"pattern must contain the fields that distinguish the runs, as {example} does; got "
            f"{pattern}"
        )
    return [(base / name, name) for name in below]


def _split(pattern: str | os.PathLike[str]) -> tuple[Path, str]:
    """Split a pattern into the folder that it begins with and the rest."""
    text = os.fspath(pattern)
    first, *parts = _PART.split(text)
    names = [name for name in parts[::2] if name is not None]
    unknown = [f"the unknown field {{{truncate(name)}}}" for name in names if name not in FIELDS]
    if unknown or not names:
        expected = "{dataset}, {model} and {seed}, at least one"
        raise ValueError(
            f"pattern may name {expected}; got {(unknown or ['no field'])[0]} in {shorten(text)}"
        )
    folder = first[: first.rfind("/") + 1]
    return Path(folder or "."), text[len(folder) :]


@dataclass(frozen=True)
class Run:
    """Ranks of a model on a dataset with a seed, or values of its queries by metric.

    ``file`` is a path below a folder.
    """

    model: str
    dataset: str
    seed: str
    source: RankTable | Path | None = field(repr=False)
    file: str | None
    num_rows: int
    values: dict[str, Values] = field(default_factory=dict)

    def load(self) -> RankTable:
        """Return the ranks, read from their file if they have one; ValueError for values."""
        if self.source is None:
            raise ValueError(
                f"{self.label} has values of queries, not ranks: only ranks have files"
            )
        return (
            RankTable.load(self.source, max_bytes=MAX_BYTES)
            if isinstance(self.source, Path)
            else self.source
        )

    @property
    def label(self) -> str:
        """Name in errors and notes."""
        return f"{self.model} on {self.dataset}, seed {self.seed}"


def source_of(ranks: object) -> tuple[RankTable | Path, int]:
    """Table or path of ``RankStudy.add``, and its number of rows, of a file from its headers."""
    if isinstance(ranks, str | os.PathLike):
        return Path(ranks), num_stored_rows(ranks)
    result = getattr(ranks, "metric_results", ranks)  # of PyKEEN's pipeline, and of its evaluators
    table = (
        as_table(ranks)
        if isinstance(ranks, RankTable | Ranks | Collected)
        else getattr(result, "table", None)
    )
    if not isinstance(table, RankTable):
        expected = (
            "a RankTable, a RankCollection, Ranks, results of a RankCollectionEvaluator or the "
            "path of a file"
        )
        raise TypeError(
            f"table must be {expected} that RankTable.save wrote; got {type(ranks).__name__}"
        )
    return table, len(table)


class _GivenValues(PairedSource):
    """Values of a metric of one run, with the attributes of ``Analysis`` that a study reads."""

    sides: tuple[Side, ...] = ()
    num_nan = num_sampled = 0

    def value_sample(self, column: int) -> ValueSample:  # type: ignore[override]
        """The values."""
        return super().value_sample(column)[0][0]

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Compute a result."""
        return compute()


class LoadedRun:
    """A run that was read, with warnings from reading it; of values of queries those of a metric.

    ``analysis`` has its canonical rows and results computed from them, and ``rows`` are in the
    order of the tasks that all runs share, or canonical if the order is not known. Runs with the
    same digest ``order`` of all columns except the ranks are aligned row by row; it is "" without
    an order. Runs with the same digest ``tasks`` have the same tasks in any order.
    """

    def __init__(self, run: Run, metric: str) -> None:
        self.run = run
        self.order = ""
        self.notes = list[str]()
        if metric:
            (self.rows,) = value_rows([run.values[metric]], [run.label])
            self.order = repr(sorted(map(str, run.values[metric])))
            self.analysis: Analysis = _GivenValues([self.rows])  # type: ignore[assignment]
            return
        table = run.load()
        check_complete(table, run.label)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RankMetricWarning)
            self.analysis = Analysis([table.rows])
            self.rows = self.analysis.all_rows
            has_order = True
            if (Columns(self.analysis.task_rows).sample_id == ABSENT).any():
                try:
                    self.rows = paired_rows([table], [run.label])[0][0]
                except ValueError:
                    self.rows = self.analysis.task_rows
                    has_order = False
        self.notes += dict.fromkeys(
            str(one.message) for one in caught if issubclass(one.category, RankMetricWarning)
        )
        if has_order:
            rows = self.rows[~is_empty_query(self.rows)]
            self.order = _digest([*_columns_of_tasks(rows), _queries_of(rows)])

    @cached_property
    def tasks(self) -> str:
        """Digest of the tasks without their order and queries."""
        rows = self.rows[~is_empty_query(self.rows)]
        columns = _columns_of_tasks(rows)
        order, starts = sorted_rows(columns)
        number = np.add.reduceat(Columns(rows).count[order], starts)
        return _digest([*(column[order[starts]] for column in columns), number])


def _columns_of_tasks(rows: Rows) -> list[Rows]:
    """All columns of tasks (n, 10) except the ranks and the query."""
    about = Columns(rows)
    places = [about.side, about.sample_id, about.group, about.num_candidates]
    return [*places, about.weight_bits, about.gain_bits]


def _digest(columns: list[Rows]) -> str:
    return hashlib.blake2b(np.stack(columns).tobytes(), digest_size=16).hexdigest()


def _queries_of(rows: Rows) -> Rows:
    """Query of each task (n,), so that runs with the same queries have the same numbers.

    With sample ids, the number is the place of the first task of the query, because the names of
    queries may differ between runs. Without them the names confirm the order of the tasks, except
    names that were made from the ranks.
    """
    query = Columns(rows).query
    if (Columns(rows).sample_id == ABSENT).any():
        return np.where((query < 0) & (query != ABSENT), -1, query)
    order, starts = query_order([rows])
    first = np.empty_like(order)
    first[order] = np.repeat(order[starts], np.diff(np.append(starts, len(rows))))
    return np.where(query == ABSENT, ABSENT, first)


class Facts(NamedTuple):
    """Numbers of tasks and candidates (0 if unknown), and shares of ties (none for values)."""

    tasks: int
    fewest: int
    most: int
    tie_rates: Mapping[str, float]

    @property
    def candidates(self) -> str:
        """Range of the numbers of candidates; "" if unknown."""
        return f"{self.fewest} to {self.most}" if self.fewest < self.most else str(self.most or "")

    @property
    def ties(self) -> str:
        """Range of the shares of ties of the models, in percent."""
        low, high = (100 * end(self.tie_rates.values(), default=0.0) for end in (min, max))
        return f"{low:.1f} to {high:.1f}" if high - low >= 0.05 else f"{high:.1f}"

    def __str__(self) -> str:
        if not self.tie_rates:
            return f"{self.tasks} queries"
        candidates = self.candidates or "an unknown number of"
        return f"{self.tasks} tasks among {candidates} candidates, {self.ties}% ties"


class DataSet:
    """The runs of a dataset by model, read and aligned; with values of one ``metric``, or ranks."""

    def __init__(self, given: Sequence[Run], metric: str) -> None:
        runs = [LoadedRun(run, metric) for run in given if not metric or metric in run.values]
        # in the order of their models
        self.metric = metric
        self.runs = runs
        by_model = groupby(runs, key=lambda run: run.run.model)
        self.models = {name: list(group) for name, group in by_model}
        # the tasks that most runs share, in a known order if there is one
        ordered = [run for run in runs if run.order]
        digests = [run.order or run.tasks for run in ordered or runs]
        self.reference = (ordered or runs)[digests.index(mode(digests))]
        self.aligned = self._models_like("order") if ordered else {}
        # models with values of the same tasks
        self.comparable = self.aligned if ordered == runs else self._models_like("tasks")
        if metric:  # read together, so that differences of rounding are zero
            aligned = [run for runs in self.aligned.values() for run in runs]
            values = [run.run.values[metric] for run in aligned]
            rows = value_rows(values, [run.run.label for run in aligned])
            for run, own in zip(aligned, rows, strict=True):
                run.rows = own

    def _models_like(self, digest: Literal["order", "tasks"]) -> dict[str, list[LoadedRun]]:
        """Models whose runs all have a digest of the reference."""
        expected = getattr(self.reference, digest)
        return {
            model: runs
            for model, runs in self.models.items()
            if all(getattr(run, digest) == expected for run in runs)
        }

    @cached_property
    def facts(self) -> Facts:
        """Numbers of tasks and candidates, and shares of ties."""
        if self.metric:
            return Facts(max(len(run.rows) for run in self.runs), 0, 0, {})
        sample = self.reference.analysis.sample()
        counts = (0, 0) if sample.num_candidates is None else sample.candidate_counts.num_candidates
        ties = {}
        for model, runs in self.models.items():
            own = [run.analysis.sample() for run in runs]
            ties[model] = sum(one.tie_mass / one.total for one in own) / len(own)
        return Facts(sample.num_tasks, int(counts[0]), int(counts[-1]), ties)

    def notes(self, seeds: Sequence[str]) -> list[str]:
        """Reasons to doubt a model, each once after the names of its models."""
        found: dict[str, list[str]] = {}
        for model, runs in self.models.items():
            for reason in self._reasons(model, runs, seeds):
                found.setdefault(reason, []).append(model)
        return [f"{', '.join(models)}: {reason}" for reason, models in found.items()]

    def _reasons(self, model: str, runs: list[LoadedRun], seeds: Sequence[str]) -> list[str]:
        """Reasons to doubt one model."""
        reasons = []
        if model not in self.comparable:
            reasons.append(f"not compared, because {self._misfit(runs)}")
        elif len(self.models) > 1 and model not in self.aligned:
            reasons.append(f"not tested, because {self._misfit(runs)}")
        present = [run.run.seed for run in runs]
        if lost := [seed for seed in seeds if seed not in present]:
            reasons.append(f"seed {', '.join(lost)} is missing")
        if nan := sum(run.analysis.num_nan for run in runs):
            reasons.append(f"NaN scores in {nan} tasks, which never help")
        if sampled := sum(run.analysis.num_sampled for run in runs):
            limit = "only mr and auc estimate the values among all candidates"
            reasons.append(f"ranked among sampled candidates in {sampled} tasks: {limit}")
        reasons += dict.fromkeys(note for run in runs for note in run.notes if "NaN" not in note)
        if not self.metric:
            most = [int(Columns(run.analysis.task_rows).num_candidates.max()) for run in runs]
            if 1 in most:
                reasons.append("all tasks have a single candidate")
        return reasons

    def _misfit(self, runs: list[LoadedRun]) -> str:
        if self.metric:
            return f"the queries with {self.metric} differ from those of most models"
        reference = self.reference
        others = [run for run in runs if run.order != reference.order] or runs
        odd = next((run for run in others if run.tasks != reference.tasks), others[0])
        if odd.tasks != reference.tasks and not (odd.order and reference.order):
            columns = "side, num_candidates, group, weight or gain"
            return f"the tasks differ from those of most models in {columns}"
        first = f"{reference.run.model}, seed {reference.run.seed},"
        try:
            with warnings.catch_warnings():  # they were recorded when the runs were read
                warnings.simplefilter("ignore", RankMetricWarning)
                paired_rows([reference.run.load(), odd.run.load()], [first, "this run"])
        except ValueError as error:
            return str(error)
        return (
            f"{first} and this run differ in the names of queries, or in which tasks are of one "
            "query: pass the same query= for both"
        )
