"""What commands read and compute, apart from them because it imports torch: ranks, candidate counts, known graphs."""

import csv
import io
import math
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from torchrankmetrics.cli.output import watch
from torchrankmetrics.datasets import candidate_counts, dataset_facts
from torchrankmetrics.datasets.facts import Entities, Split
from torchrankmetrics.datasets.triple_files import read_text
from torchrankmetrics.definitions.candidates import CandidateCounts
from torchrankmetrics.inference.intervals import confidence_intervals
from torchrankmetrics.inference.sources import check_complete
from torchrankmetrics.inference.standard_errors import Method
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.breakdown import Breakdown
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import base_definition
from torchrankmetrics.metrics.views import View
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import ENTITY_SIDES, EntitySide, shown

Side = Literal["both", EntitySide]
SIDES: tuple[Side, ...] = get_args(Side)
HISTOGRAM = ("split", "entities", "side", "num_candidates", "count")
"""Columns of the CSV that ``candidates --histogram`` writes and ``adjust --counts`` reads."""


def counts_of_dataset(dataset: str, split: Split, side: Side, entities: Entities) -> tuple[CandidateCounts, str]:
    """Counts of a data set, and what they are in words."""
    counts = candidate_counts(dataset, split, None if side == "both" else side, entities)
    return counts, describe(dataset_facts(dataset).title, split, side, entities, counts)


def counts_of_file(path: Path, split: str, side: str, entities: str) -> tuple[CandidateCounts, str]:
    """Counts of a histogram in a CSV file, and what they are in words.

    Raises:
        OSError: if there is no such file to open.
        ValueError: if it is empty or ragged, or has no such tasks.
    """
    expected = ",".join(HISTOGRAM)
    try:
        lines = list(csv.reader(io.StringIO(read_text(path, f"expected {expected}"))))
    except csv.Error as error:
        raise ValueError(f"{path} is no CSV with the columns {expected}: {error}") from error
    if not lines or tuple(lines[0]) != HISTOGRAM:
        got = ",".join(lines[0]) if lines else "an empty file"
        raise ValueError(
            f"{path} must start with the columns {expected} (candidates --histogram -f csv); got {got[:80]}"
        )
    numbers, counts = [], []
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(HISTOGRAM) or not all(map(_is_count, line[3:])):
            raise ValueError(
                f"{path} line {number}: expected {expected}, the last two integers; got {','.join(line)[:60]}"
            )
        if line[0] == split and line[1] == entities and line[2] in (ENTITY_SIDES if side == "both" else (side,)):
            numbers.append(int(line[3]))
            counts.append(int(line[4]))
    if not numbers:
        raise ValueError(f"{path} has no tasks of split {shown(split)}, side {shown(side)}, entities {shown(entities)}")
    found = CandidateCounts.of(numbers, count=counts)
    return found, describe(str(path), split, side, entities, found)


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) < 19  # int64 holds all of 18 digits


def describe(title: str, split: str, side: str, entities: str, counts: CandidateCounts) -> str:
    """Say which tasks the counts are of."""
    sides = "both sides" if side == "both" else f"{side} side"
    kind = "all entities" if entities == "all" else "entities of train only"
    low, high = counts.num_candidates[0], counts.num_candidates[-1]
    return f"{title}: {split} split, {sides}, {kind}: {counts.num_tasks} tasks among {low} to {high} candidates"


Task = tuple[str, Split, Side, Entities]
_TASKS = ("dataset", "split", "side", "entities", "known")


def listed(tasks: list[Task]) -> Tabular:
    """Sizes of data sets, and the candidates of their tasks."""
    rows: list[tuple[Cell, ...]] = []
    for task in tasks:
        facts, counts = dataset_facts(task[0]), counts_of_dataset(*task)[0]
        mean = int((counts.num_candidates * counts.count).sum()) / counts.num_tasks
        low, high = int(counts.num_candidates[0]), int(counts.num_candidates[-1])
        sizes = (facts.num_entities[task[3]], facts.num_relations, counts.num_tasks)
        rows.append((*_task(task), *sizes, len(counts.num_candidates), low, mean, high))
    columns = (*_TASKS, "entities_known", "relations", "tasks", "distinct", "min", "mean", "max")
    note = "distinct, min, mean, max: of the filtered candidates of a task"
    return Tabular.named(columns, rows, (note,), keys=len(_TASKS))


def null_moments(tasks: list[Task], metrics: list[str]) -> Tabular:
    """Mean and variance of metrics by chance, on the tasks of data sets."""
    definitions = []
    for metric in metrics:
        definition = base_definition(metric)
        if not definition.has_null:
            raise ValueError(
                f"--metric must name metrics with an expectation, such as mrr or hits@10; got {shown(metric)}"
            )
        definitions.append(definition)
    rows: list[tuple[Cell, ...]] = []
    pairs = list(product(tasks, definitions))
    for task, definition in watch(pairs, len(pairs), "null moments"):
        counts, _ = counts_of_dataset(*task)
        found = DEFAULT_EXPECTATION.moments(definition, counts)
        rows.append((*_task(task), definition.name, found.mean, found.variance))
    note = "of the metric over all tasks, if every rank is uniform among its candidates, independently"
    return Tabular.named((*_TASKS, "metric", "mean", "variance"), rows, (note,), keys=len(_TASKS) + 1)


def provenance(names: list[str]) -> Tabular:
    """Source, licence and checksums of data sets."""
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        facts = dataset_facts(name)
        rows += [
            (name, split, number, facts.source, facts.licence, facts.protocol, facts.checksum[split])
            for split, number in facts.num_triples.items()
        ]
    note = "sha256: of the triples as lines of labels, head TAB relation TAB tail LF, sorted by code point"
    columns = ("dataset", "split", "triples", "source", "licence", "protocol", "sha256")
    return Tabular.named(columns, rows, (note,), keys=2)


def _task(task: Task) -> tuple[str, ...]:
    return (*task, "+".join(dataset_facts(task[0]).known[task[1]]))


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
        raise ValueError(f"{path} has no ranks of side {shown(side)}: it has {there} sides; use --side both")
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
            raise ValueError(f"{path} line {number}: {expected}; got {shown(chr(9).join(part)[:60])}")
        if named.setdefault(int(part[0]), part[1]) != part[1]:
            raise ValueError(f"{path} line {number}: group {int(part[0])} has another name above")
    return named
