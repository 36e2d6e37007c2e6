"""What ``report`` reads and computes."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from torchrankmetrics.datasets.triple_files import read_text
from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.breakdown import Breakdown
from torchrankmetrics.evaluation.intervals import confidence_intervals
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.evaluation.sources import check_complete
from torchrankmetrics.rendering import Cell, PValue
from torchrankmetrics.theory.inference.estimates import Method
from torchrankmetrics.theory.views import View

GROUP_VIEWS: tuple[View, ...] = ("base", "adjusted_index", "z_score")
TINY = 1e-300  # below, floats lose digits
Measures = Mapping[str, Measure]
Lines = tuple[tuple[str, ...], list[tuple[Cell, ...]]]


def columns_of(part: Breakdown, only: Measures | None) -> Lines:
    """Columns of a table by group: of all its views, or only those that were asked for."""
    kept = [i for i, column in enumerate(part.columns) if i < 2 or only is None or column in only]
    return tuple(part.columns[i] for i in kept), [tuple(row[i] for i in kept) for row in part.rows]


def values_of(
    analysis: Analysis, measures: Measures, confidence_level: float | None, method: Method, cluster: str | None
) -> Lines:
    """Values of the metrics, with the ends of their intervals if a level is given."""
    values = {key: _value(measure, analysis) for key, measure in measures.items()}
    if confidence_level is None:
        return ("metric", "value"), list(values.items())
    intervals = confidence_intervals(analysis, measures, confidence_level, method, cluster, 2000, 0)
    found: dict[str, tuple[Cell, ...]] = {row.metric: (row.value, row.low, row.high) for row in intervals.rows}
    # a p-value and a count are no estimates: they have no bounds
    rows: list[tuple[Cell, ...]] = [(key, *found.get(key, (value, None, None))) for key, value in values.items()]
    return ("metric", "value", "low", "high"), rows


def _value(measure: Measure, analysis: Analysis) -> Cell:
    value = measure.value(analysis)
    if measure.view != "p_value" or math.isnan(value):
        return value
    return PValue(value, math.log10(value) if value > TINY else measure.log_p_value(analysis) / math.log(10))


def analysis_of(path: Path, measures: Measures, max_bytes: int) -> Analysis:
    """Read a file of ranks that has all sides that are asked for.

    Raises:
        ValueError: if it has not, or holds no tasks.
    """
    table = RankTable.load(path, max_bytes=max_bytes)
    check_complete(table, path)
    analysis = Analysis([table.rows])
    for side in {measure.side for measure in measures.values()} - {"both", *analysis.sides}:
        there = " and ".join(analysis.sides) or "no"
        raise ValueError(f"{path} has no ranks of side {side!r}: it has {there} sides; use --side both")
    return analysis


def read_names(path: Path) -> dict[int, str]:
    """Names of groups by id: of lines "id TAB name", or of the line number from 0."""
    expected = "expected a name, or id TAB name"
    lines = read_text(path, f"{expected} in a line").removesuffix("\n").split("\n")
    parts = [line.split("\t") for line in lines]
    if {len(part) for part in parts} == {1}:
        return dict(enumerate(lines))
    named: dict[int, str] = {}
    for number, part in enumerate(parts, 1):
        if len(part) != 2 or not re.fullmatch(r"\s*-?\d{1,19}\s*", part[0]):
            raise ValueError(f"{path} line {number}: {expected}; got {chr(9).join(part)[:60]!r}")
        if named.setdefault(int(part[0]), part[1]) != part[1]:
            raise ValueError(f"{path} line {number}: group {int(part[0])} has another name above")
    return named
