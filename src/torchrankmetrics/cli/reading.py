"""What commands read and compute; imported when a command runs because it imports torch."""

import csv
import io
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from torchrankmetrics.cli.common import split_list
from torchrankmetrics.datasets import candidate_counts, dataset_facts
from torchrankmetrics.datasets.facts import Entities, Split
from torchrankmetrics.datasets.triple_files import read_text
from torchrankmetrics.definitions.candidates import CandidateCounts
from torchrankmetrics.inference.intervals import confidence_intervals
from torchrankmetrics.inference.sources import check_complete
from torchrankmetrics.inference.standard_errors import Method
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import as_measure
from torchrankmetrics.rendering import Cell, PValue
from torchrankmetrics.table.parquet import is_one_table
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import ENTITY_SIDES, EntitySide, shorten

Side = Literal["both", EntitySide]
SIDES: tuple[Side, ...] = get_args(Side)
HISTOGRAM = ("split", "entities", "side", "num_candidates", "count")
"""Columns of the CSV that ``candidates --histogram`` writes and ``adjust --counts`` reads."""
SUFFIXES = (".npz", ".parquet", ".csv", ".tsv")
TINY = 1e-300  # smaller floats have fewer digits
Measures = Mapping[str, Measure]
Lines = tuple[tuple[str, ...], list[tuple[Cell, ...]]]


def counts_of(source: str | Path, split: Split, side: Side, entities: Entities) -> tuple[CandidateCounts, str]:
    """Read candidate counts of a dataset, or of a CSV histogram if the source is a Path, and describe them."""
    if isinstance(source, str):
        title = dataset_facts(source).title
        counts = candidate_counts(source, split, None if side == "both" else side, entities)
    else:
        title, expected, found = str(source), ",".join(HISTOGRAM), []
        try:
            lines = list(csv.reader(io.StringIO(read_text(source, f"expected {expected}"))))
        except csv.Error as error:
            raise ValueError(f"{source} is not a CSV file with the columns {expected}: {error}") from error
        if not lines or tuple(lines[0]) != HISTOGRAM:
            raise ValueError(f"{source} must start with the columns {expected} (candidates --histogram -f csv)")
        for number, line in enumerate(lines[1:], 2):
            if len(line) != len(HISTOGRAM) or not all(cell.isdecimal() and len(cell) < 19 for cell in line[3:]):
                raise ValueError(f"{source} line {number}: expected {expected}, the last two integers below 10^18")
            if line[:2] == [split, entities] and line[2] in (ENTITY_SIDES if side == "both" else (side,)):
                found.append((int(line[3]), int(line[4])))
        if not found:
            raise ValueError(f"{source} has no tasks of split {split!r}, side {side!r}, entities {entities!r}")
        counts = CandidateCounts.of([n for n, _ in found], count=[count for _, count in found])
    sides = "both sides" if side == "both" else f"{side} side"
    kind = "all entities" if entities == "all" else "entities of train only"
    low, high = counts.num_candidates[0], counts.num_candidates[-1]
    tasks = f"{counts.num_tasks} tasks among {low} to {high} candidates"
    return counts, f"{title}: {split} split, {sides}, {kind}: {tasks}"


def files_of(path: Path) -> list[Path]:
    """List the tables of a directory by name; a file, or a directory that is one table, is itself."""
    if not path.is_dir() or is_one_table(path):
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not files:
        raise ValueError(f"{path} is a directory without files of ranks ({', '.join(SUFFIXES)})")
    return files


def displayed(paths: list[Path]) -> list[str]:
    """Write paths for a table that is published: absolute ones relative to their common directory."""
    absolute = [path for path in paths if path.is_absolute()]
    folder = os.path.commonpath([path.parent for path in absolute]) if absolute else ""
    return [path.relative_to(folder).as_posix() if path.is_absolute() else str(path) for path in paths]


def analysis_of(path: Path, measures: Measures, max_bytes: int) -> Analysis:
    """Read a file of ranks; ValueError if it has no tasks or lacks the side of a measure."""
    table = RankTable.load(path, max_bytes=max_bytes)
    check_complete(table, path)
    analysis = Analysis([table.rows])
    for side in {measure.side for measure in measures.values()} - {"both", *analysis.sides}:
        there = " and ".join(analysis.sides) or "no"
        raise ValueError(f"{path} has no ranks of side {shorten(side)}: it has {there} sides; use --side both")
    return analysis


def values_of(
    analysis: Analysis, measures: Measures, confidence_level: float | None, method: Method, cluster: str | None
) -> Lines:
    """Compute the metrics, with the ends of their intervals if a level is given; p-values and counts have none."""
    values: dict[str, Cell] = {}
    for key, measure in measures.items():
        value = values[key] = measure.value(analysis)
        if measure.view == "p_value" and not math.isnan(value):
            log10 = math.log10(value) if value > TINY else measure.log_p_value(analysis) / math.log(10)
            values[key] = PValue(value, log10)
    if confidence_level is None:
        return ("metric", "value"), list(values.items())
    intervals = confidence_intervals(analysis, measures, confidence_level, method, cluster, 2000, 0)
    ends = {row.metric: (row.low, row.high) for row in intervals.rows}
    return ("metric", "value", "low", "high"), [
        (key, value, *ends.get(key, (None, None))) for key, value in values.items()
    ]


def limits_of(text: str | None) -> list[tuple[Measure, float]]:
    """Read the limits of --fail-under."""
    limits = []
    for part in [] if text is None else split_list(text, "--fail-under"):
        name, _, number = part.partition("=")
        if not re.fullmatch(r"-?\d*\.?\d+(e-?\d+)?", number):
            raise ValueError(f"--fail-under must be metrics with limits, such as mrr=0.3,amri=0.8; got {shorten(part)}")
        measure = as_measure(name)
        if not measure.higher_is_better:
            raise ValueError(f"--fail-under must name metrics where higher is better, got {shorten(name)}")
        limits.append((measure, float(number)))
    return limits
