"""``report``: metrics of saved ranks and of retrieval runs."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from torchrankmetrics.cli.options import (
    Documents,
    EmptyQueriesOption,
    IdenticalIds,
    MaxBytes,
    Metrics,
    Qrels,
    Runs,
    Threshold,
)
from torchrankmetrics.cli.output import (
    Cluster,
    Digits,
    Form,
    Output,
    arg,
    argument_of_cluster,
    emit,
    opt,
    reject,
    split_lists,
    with_digits,
)
from torchrankmetrics.cli.sources import RunOptions, Sources, displayed, open_sources
from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.validation import shorten

_TINY = 1e-300  # smaller floats have fewer digits
_GROUP_VIEWS = ("base", "adjusted_index", "z_score")


def report(
    files: Annotated[
        list[Path], arg("Files or directories of ranks; or qrels and runs; or -.", nargs=-1)
    ] = [],  # noqa: B006
    metrics: Metrics = (),
    view: Annotated[
        Sequence[str],
        opt("Views: base, normalized, adjusted_index, z_score, p_value.", multiple=True),
    ] = (),
    side: Annotated[Sequence[str], opt("Sides: both, head, tail, relation.", multiple=True)] = (),
    rank_type: Annotated[
        Sequence[str],
        opt("Ranks of ties: realistic, optimistic, pessimistic, expected.", multiple=True),
    ] = (),
    confidence_level: Annotated[
        float | None, opt("Confidence level of intervals; default: no intervals.")
    ] = None,
    method: Annotated[Literal["normal", "bootstrap"], opt("Method of the intervals.")] = "normal",
    cluster: Cluster = "auto",
    by_group: Annotated[bool, opt("Print one line per group.", is_flag=True)] = False,
    per_query: Annotated[
        bool, opt("Print one line per query.", "--per-query", "-q", is_flag=True)
    ] = False,
    fail_under: Annotated[
        Sequence[str],
        opt("Exit with code 1 below a limit: mrr=0.3,amri=0.8.", multiple=True),
    ] = (),
    qrels: Qrels = None,
    runs: Runs = (),
    num_candidates: Documents = None,
    relevance_threshold: Threshold = 1.0,
    empty_queries: EmptyQueriesOption = None,
    ignore_identical_ids: IdenticalIds = False,
    max_bytes: MaxBytes = MAX_BYTES,
    digits: Digits = None,
    form: Form = None,
    output: Output = None,
) -> int:
    """Compute metrics of saved ranks, or of retrieval runs.

    For example
    `torchrankmetrics report ranks.npz --view base,adjusted_index --side both,head,tail`
    `torchrankmetrics report ranks.npz -m mrr -m hits@10 --confidence-level 0.95`
    `torchrankmetrics report ranks.npz -m mrr --by-group --format csv`
    `torchrankmetrics report qrels.tsv bm25.run.gz -m ndcg@10,recall@100`
    `torchrankmetrics report qrels.tsv bm25.run.gz -m ndcg@10 -q --format csv`
    """
    if confidence_level is None:
        reject("without --confidence-level", method=method != "normal", cluster=cluster != "auto")
    if by_group:
        reject("with --by-group", confidence_level=confidence_level, per_query=per_query)
    elif per_query:
        reject("with --per-query", confidence_level=confidence_level, fail_under=fail_under or None)
    options = RunOptions(num_candidates, relevance_threshold, empty_queries, ignore_identical_ids)
    sources = open_sources(files, qrels, list(runs), options, max_bytes, cluster)
    offered = _GROUP_VIEWS if by_group else None
    measures = _measures(sources, options, metrics, view, rank_type, side, offered)
    limits = _limits(sources, fail_under, relevance_threshold)
    about: dict[str, Any] = {
        "files": displayed(sources.files),
        "confidence_level": confidence_level,
    }
    if per_query:
        table = _of_queries(sources, measures)
        return emit(with_digits(table, digits), form, output, "Values of queries", **about)

    intervals = _IntervalOptions(confidence_level, method, argument_of_cluster(cluster))
    printed = _FileReports(measures, limits, intervals, metrics == (), bool(view), by_group)
    printed.read(sources)
    is_one_file = sources.files == sources.paths[:1]
    table = printed.table(with_names=not is_one_file)
    about |= {"tasks": printed.num_tasks, "cluster": cluster, "method": method}
    return emit(with_digits(table, digits), form, output, "Rank metrics", printed.failed, **about)


def _measures(
    sources: Sources,
    options: RunOptions,
    metrics: Sequence[str],
    view: Sequence[str],
    rank_type: Sequence[str],
    side: Sequence[str],
    offered: Sequence[str] | None,
) -> dict[str, Any]:
    """The requested metrics in all views, rank types and sides, by key."""
    from torchrankmetrics.definitions.protocol import VIEWS
    from torchrankmetrics.definitions.sample import RANK_TYPES
    from torchrankmetrics.metrics.measure import SIDES
    from torchrankmetrics.metrics.selection import Selection

    # a RankCollection would import torchmetrics, which is slow and looks for a writable directory
    selection = Selection(
        split_lists(view or ["base"], "--view", offered or VIEWS),
        split_lists(rank_type or ["realistic"], "--rank-type", RANK_TYPES),
        split_lists(side or ["both"], "--side", SIDES),
        relevance_threshold=options.relevance_threshold,
        empty_queries=sources.empty_queries,
    )
    names = split_lists(metrics, "--metric") if metrics else list(sources.default_metrics)
    return dict(selection.measures(sources.read_names(names)))


def _limits(
    sources: Sources, fail_under: Sequence[str], relevance_threshold: float
) -> list[tuple[Any, float]]:
    """Read metrics with their limits."""
    from torchrankmetrics.metrics.names import as_measure

    limits = []
    for part in split_lists(fail_under, "--fail-under") if fail_under else []:
        match = re.fullmatch(r"([^=]*)=(-?\d*\.?\d+(?:e-?\d+)?)", part)
        if match is None:
            raise ValueError(
                "--fail-under must be metrics with limits, such as mrr=0.3,amri=0.8; got "
                f"{shorten(part)}"
            )
        (name,) = sources.read_names([match[1]])
        measure = as_measure(name, empty_queries=sources.empty_queries)
        if not measure.definition.entries_are_rows:  # a metric of queries
            definition = measure.definition.at_threshold(relevance_threshold)
            measure = replace(measure, definition=definition)
        if not measure.higher_is_better:
            raise ValueError(
                f"--fail-under must name metrics where higher is better, got {shorten(match[1])}"
            )
        limits.append((measure, float(match[2])))
    return limits


def _of_queries(sources: Sources, measures: dict[str, Any]) -> Tabular:
    """One row for each file, query and metric."""
    rows: list[tuple[Cell, ...]] = []
    for path, name in zip(sources.files, displayed(sources.files), strict=True):
        for query, values in sources.query_values(path, list(measures.values())).items():
            rows += [(name, query, key, value) for key, value in values.items()]
    columns = ["file", "query", "metric", "value"]
    if len(sources.files) == 1:
        rows = [row[1:] for row in rows]
        columns = columns[1:]
    return Tabular.named(columns, rows, keys=len(columns) - 1)


@dataclass(frozen=True)
class _IntervalOptions:
    """Options of confidence intervals; no intervals without a level."""

    confidence_level: float | None
    method: Any
    cluster: Any

    def columns(self, analysis: Any, measures: dict[str, Any]) -> dict[str, Sequence[Cell]]:
        """Both ends of the interval of each metric; p-values have none."""
        from torchrankmetrics.inference.intervals import confidence_intervals

        if self.confidence_level is None:
            return {}
        rows = confidence_intervals(
            analysis, measures, self.confidence_level, self.method, self.cluster, 2000, 0
        ).rows
        low = {row.metric: row.low for row in rows}
        high = {row.metric: row.high for row in rows}
        return {"low": list(map(low.get, measures)), "high": list(map(high.get, measures))}


@dataclass
class _FileReports:
    """The table of several files, line after line."""

    measures: dict[str, Any]
    limits: list[tuple[Any, float]]
    intervals: _IntervalOptions
    is_default: bool  # no metric was requested: those that need candidate counts are optional
    has_views: bool
    by_group: bool
    num_tasks: int = 0
    failed: list[str] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _columns: list[str] = field(default_factory=list)
    _rows: list[tuple[Cell, ...]] = field(default_factory=list)

    def read(self, sources: Sources) -> None:
        """Add the lines of all files."""
        from torchrankmetrics.inference.pairing import check_complete
        from torchrankmetrics.metrics.analysis import Analysis

        requested = [*self.measures.values(), *(measure for measure, _ in self.limits)]
        for path, name in zip(sources.files, displayed(sources.files), strict=True):
            table = sources.load(path, requested)
            check_complete(table, path)
            analysis = Analysis([table.rows])
            _check_sides(path, analysis, self.measures)
            self._add(name, analysis)
            self._check_limits(name, analysis)

    def _add(self, name: str, analysis: Any) -> None:
        """Add the lines of a file."""
        from torchrankmetrics.metrics.summary import sampled_notes, tasks_note

        sample = analysis.sample()
        measures = self.measures
        if self.is_default and sample.num_candidates is None:
            measures = {key: one for key, one in measures.items() if one.view == "base"}
        cells = self._groups(analysis, measures) if self.by_group else _values(analysis, measures)
        cells |= self.intervals.columns(analysis, measures)
        self._columns = list(cells)
        self._rows += [(name, *line) for line in zip(*cells.values(), strict=True)]
        notes = [tasks_note(sample), *sampled_notes(analysis)]
        self._notes += [f"{name}: {note}" for note in notes]
        self.num_tasks += sample.num_tasks

    def _check_limits(self, name: str, analysis: Any) -> None:
        """Note which metrics of a file are below their limits."""
        for measure, limit in self.limits:
            value = measure.value(analysis)
            if not value >= limit:
                self.failed.append(f"{name}: {measure.key} is {value:.6g}, below {limit:g}")

    def _groups(self, analysis: Any, measures: dict[str, Any]) -> dict[str, Sequence[Cell]]:
        """The columns of each group; with --view only those views."""
        from torchrankmetrics.metrics.breakdown import break_down

        part = break_down(analysis, measures, None)
        first = list(part.columns)[:2]  # group and number of tasks
        columns = [
            one for one in part.columns if one in first or one in measures or not self.has_views
        ]
        return {one: part[one] for one in columns}

    def table(self, with_names: bool) -> Tabular:
        """The table; the first column has the names of files."""
        if with_names:
            return Tabular.named(["file", *self._columns], self._rows, self._notes, keys=2)
        return Tabular.named(self._columns, [row[1:] for row in self._rows], self._notes, keys=1)


def _check_sides(path: Path, analysis: Any, measures: dict[str, Any]) -> None:
    """Raise for a side of which a file has no ranks."""
    there = " and ".join(analysis.sides) or "no"
    for side in {measure.side for measure in measures.values()} - {"both", *analysis.sides}:
        raise ValueError(
            f"{path} has no ranks of side {side!r}: it has {there} sides; use --side both"
        )


def _values(analysis: Any, measures: dict[str, Any]) -> dict[str, Sequence[Cell]]:
    values = [_cell(measure, analysis) for measure in measures.values()]
    return {"metric": list(measures), "value": values}


def _cell(measure: Any, analysis: Any) -> Cell:
    """Value of a measure, with its logarithm if it is a p-value."""
    value: float = measure.value(analysis)
    if measure.view != "p_value" or math.isnan(value):
        return value
    if value > _TINY:
        return PValue(value, math.log10(value))
    return PValue(value, measure.log_p_value(analysis)[0] / math.log(10))
