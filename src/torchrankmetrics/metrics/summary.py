"""A printable table of an evaluation: three values of every metric, by side."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from torchrankmetrics.definitions.protocol import Side
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure, by_name
from torchrankmetrics.metrics.warnings import reversal
from torchrankmetrics.rendering import ROW, Cell, Column, Rendered, Styled, Tabular


@dataclass(frozen=True)
class SummaryRow:
    """One metric on one side; ``index`` and ``z`` are NaN without an expectation."""

    side: str
    metric: str
    base: float
    index: float
    z: float

    def cells(self) -> tuple[Cell, ...]:
        """Cells of the printed table; a mark at a value that is not better than random ranking."""
        base = Styled(self.base, mark="‡") if self.index <= 0 else self.base
        return self.side, self.metric, base, self.index, self.z


@dataclass(frozen=True)
class Summary(Rendered):
    """Rows of an evaluation with its notes; ``print(summary)`` shows the table.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> print(RankTable.from_ranks(Ranks([1, 2, 1, 3], None, 9)).summary(["mrr", "mr"]))
    side  metric    base  adjusted index  z-score
    ----  ------  ------  --------------  -------
    all   mrr     0.7083          0.5746      2.9
    all   mr      1.7500          0.8125      2.5
    4 ranks among 9 candidates
    """

    rows: tuple[SummaryRow, ...]
    notes: tuple[str, ...]

    def tabular(self) -> Tabular:
        """Columns, cells and notes; a mark at values that are not better than random ranking."""
        columns = (
            Column("side", key=True),
            Column("metric", key=True),
            Column("base", metric=ROW),
            Column("adjusted_index", "adjusted index"),
            Column("z_score", "z-score", digits=1),
        )
        rows = [row.cells() for row in self.rows]
        notes = list(self.notes)
        if any(row.index <= 0 for row in self.rows):
            notes.append("‡: not better than random ranking (the adjusted index is at most 0)")
        return Tabular(columns, rows, notes)


def summarize(analysis: Analysis, measures: Mapping[str, Measure]) -> Summary:
    """Tabulate the metrics of the measures for each side of the rows and for both together."""
    present = analysis.sides
    labels: dict[Side, str] = {"both": present[0] if present else "all"}
    if len(present) > 1:
        labels = {side: side for side in (*present, "both")}
    # one line per side for a metric in several views or sides
    lines = by_name(
        (key, replace(measure, view="base", side="both")) for key, measure in measures.items()
    )
    rows = [
        _row(label, name, replace(line, side=side), analysis)
        for side, label in labels.items()
        for name, line in lines.items()
    ]
    return Summary(tuple(rows), (*_notes(analysis), *_p_value_notes(analysis, measures.values())))


def _row(label: str, name: str, measure: Measure, analysis: Analysis) -> SummaryRow:
    views = measure.with_views("base", "adjusted_index", "z_score")
    return SummaryRow(label, name, *(_value(view, analysis) for view in views))


def _value(measure: Measure | None, analysis: Analysis) -> float:
    return math.nan if measure is None else measure.value_or_nan(analysis)


def _p_value_notes(analysis: Analysis, measures: Iterable[Measure]) -> Iterator[str]:
    """Notes on p-values with an error of more than 1%."""
    for measure in measures:
        p = measure.value_or_nan(analysis) if measure.view == "p_value" else 0.0
        if p > 0:
            error = measure.log_p_value(analysis)[1]
            if error > 0.01 * p:
                yield f"{measure.key} is {p:.2g} with an error of {error:.1g} (p_value_errors)"


def tasks_note(sample: RankSample) -> str:
    """Number of tasks, and range of the numbers of candidates."""
    if sample.num_candidates is None:
        return f"{sample.num_tasks} ranks, numbers of candidates unknown"
    counts = sample.candidate_counts.num_candidates
    most = f" to {counts[-1]}" * (len(counts) > 1)
    return f"{sample.num_tasks} ranks among {counts[0]}{most} candidates"


def sampled_notes(analysis: Analysis) -> list[str]:
    """Notes on ranks among sampled candidates, and on rows of a sequential evaluation."""
    notes = []
    if number := analysis.num_partial:
        notes += [
            f"{number} ranks are of a sample of the tasks that a sequential test ended: not values "
            "of all tasks"
        ]
    if number := analysis.num_sampled:
        notes += [
            f"{number} ranks are among sampled candidates: MRR, hits and similar metrics differ "
            "from the full candidate set;",
            "only the mean rank (Ranks.full_rank_estimate) and AUC estimate the full ones without "
            "bias",
        ]
    return notes


def _notes(analysis: Analysis) -> list[str]:
    sample = analysis.sample()
    if sample.num_tasks == 0:
        return ["no ranking tasks yet"]
    notes = [tasks_note(sample)]
    if analysis.has_queries:
        with suppress(ValueError):  # query metrics raise it
            notes.append(
                f"{analysis.num_queries} queries: mrr, mr and hits average over all "
                "relevant items, rr and success use the first of a query"
            )
    if sample.tie_mass > 0:
        gap = float((sample.mass * (sample.pessimistic - sample.optimistic)).sum() / sample.total)
        notes.append(
            f"{100 * sample.tie_mass / sample.total:.1f}% of the targets share their score "
            f"with others (mean pessimistic minus optimistic rank {gap:.2f}); scores in bfloat16 "
            "are a common cause"
        )
    if analysis.num_nan:
        notes.append(f"{analysis.num_nan} ranking tasks have NaN scores")
    if reversed_scores := reversal(analysis):
        notes.append(reversed_scores)
    return [*notes, *sampled_notes(analysis)]
