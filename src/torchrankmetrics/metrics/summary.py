"""A printable table of an evaluation: base value, adjusted index and z-score of every metric, by side."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.views import view_value
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.provider import ExpectationProvider, ExpectationUnavailableError
from torchrankmetrics.theory.sample import RankSample, RankType
from torchrankmetrics.theory.views import View, has_view


@dataclass(frozen=True)
class SummaryRow:
    """One metric on one side; ``index`` and ``z`` are NaN where they have no meaning or no expectation."""

    side: str
    metric: str
    base: float
    index: float
    z: float


@dataclass(frozen=True)
class Summary:
    """Rows of an evaluation with its notes; ``print(summary)`` shows the table."""

    rows: tuple[SummaryRow, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        head = ("side", "metric", "base", "adjusted index", "z-score")
        cells = [(row.side, row.metric, _text(row.base, 4), _text(row.index, 4), _text(row.z, 1)) for row in self.rows]
        width = [max(len(line[i]) for line in (head, *cells)) for i in range(5)]
        lines = [
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, width, strict=True))
            )
            for line in (head, *cells)
        ]
        lines.insert(1, "  ".join("-" * w for w in width))
        return "\n".join([*(line.rstrip() for line in lines), *self.notes])


@dataclass(frozen=True)
class Column:
    """A metric to tabulate: how its base value is made."""

    definition: RankDefinition
    rank_type: RankType
    macro: bool
    expectation: ExpectationProvider


def summarize(analysis: Analysis, metrics: Iterable[Column]) -> Summary:
    """Tabulate the metrics for head, tail and both sides, as far as the rows tell sides apart."""
    present = analysis.sides
    sides: list[str | None] = [*present, None] if len(present) == 2 else [None]
    metrics = list(metrics)
    rows = []
    for side in sides:
        label = side or (present[0] if len(present) == 1 else "both" if present else "all")
        for metric in metrics:
            value = analysis.value(metric.definition, metric.rank_type, side, metric.macro)
            sample = analysis.sample(side, metric.macro)
            index, z = (_view(metric, view, value, sample) for view in ("adjusted_index", "z_score"))
            rows.append(SummaryRow(label, _label(metric), value, index, z))
    return Summary(tuple(rows), tuple(_notes(analysis)))


def _label(metric: Column) -> str:
    kind = [] if metric.rank_type == "realistic" else [metric.rank_type]
    return "_".join([*(["macro"] if metric.macro else []), *kind, metric.definition.name])


def _view(metric: Column, view: View, value: float, sample: RankSample) -> float:
    if not has_view(metric.definition, view) or math.isnan(value):
        return math.nan
    try:
        return view_value(metric.definition, view, value, sample.candidate_counts, metric.expectation)
    except ExpectationUnavailableError:
        return math.nan


def _notes(analysis: Analysis) -> list[str]:
    sample = analysis.sample()
    if sample.num_tasks == 0:
        return ["no ranking tasks yet"]
    counts = sample.candidate_counts.num_candidates
    notes = [f"{sample.num_tasks} ranks among {counts[0]} to {counts[-1]} candidates"]
    if sample.tie_mass > 0:
        optimistic, pessimistic = sample.rank("optimistic"), sample.rank("pessimistic")
        gap = float((sample.mass * (pessimistic - optimistic)).sum() / sample.total)
        notes.append(
            f"{100 * sample.tie_mass / sample.total:.1f} % of the true candidates share their score with others "
            f"(mean pessimistic minus optimistic rank {gap:.2f})"
        )
    if analysis.num_nan:
        notes.append(f"{analysis.num_nan} ranking tasks have NaN scores")
    return notes


def _text(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
