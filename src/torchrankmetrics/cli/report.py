"""``report``: any metrics of saved ranks, by view, side, rank type, group, with intervals."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from torchrankmetrics.checks import check_choice
from torchrankmetrics.cli.output import (
    FormatOption,
    OutputOption,
    choices_of,
    emit,
    given,
    refuse,
    split_list,
    watch,
)
from torchrankmetrics.cli.tables import MaxBytesOption, files_of, input_path
from torchrankmetrics.datasets.files import read_text
from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.breakdown import Breakdown, break_down
from torchrankmetrics.evaluation.intervals import check_level, confidence_intervals
from torchrankmetrics.evaluation.measure import SIDES, Measure
from torchrankmetrics.evaluation.selection import DEFAULT_METRICS, Selection, measure_of
from torchrankmetrics.evaluation.summary import sampled_notes, tasks_note
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.table.table_io import MAX_BYTES
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.inference.estimates import METHODS, Method
from torchrankmetrics.theory.sample import RANK_TYPES
from torchrankmetrics.theory.views import VIEWS, View

GROUP_VIEWS: tuple[View, ...] = ("base", "adjusted_index", "z_score")
TINY = 1e-300  # below, floats lose digits
Measures = Mapping[str, Measure]
Lines = tuple[tuple[str, ...], list[tuple[Cell, ...]]]


def report_command(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Files of ranks (RankTable.save, .npz), folders of them, or -.", show_default=False
        ),
    ],
    metrics: Annotated[
        str, typer.Option("--metric", "-m", help="Metrics, separated by commas: mrr, hits@10, amri, z_mrr, gmr ...")
    ] = ",".join(DEFAULT_METRICS),
    views: Annotated[
        str, typer.Option("--view", help=f"Of {', '.join(VIEWS)}: for metrics that do not say their own.")
    ] = "base",
    sides: Annotated[str, typer.Option("--side", help="Of both, head, tail, relation.")] = "both",
    rank_types: Annotated[
        str, typer.Option("--rank-type", help=f"Where scores are tied: of {', '.join(RANK_TYPES)}.")
    ] = "realistic",
    level: Annotated[
        float | None, typer.Option("--level", help="Add confidence intervals of this level, such as 0.95.")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="Of the intervals: normal or bootstrap.")] = "normal",
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="What the intervals draw together: group or sample_id.")
    ] = None,
    by_group: Annotated[bool, typer.Option("--by-group", help="One line per group (relation, say).")] = False,
    names: Annotated[
        Path | None,
        typer.Option("--names", help="Names of the groups: a line for each id, or id TAB name.", callback=input_path),
    ] = None,
    max_bytes: MaxBytesOption = MAX_BYTES,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Compute any metrics of saved ranks.

    For example

    `torchrankmetrics report ranks.npz --view base,adjusted_index --side both,head,tail`

    `torchrankmetrics report ranks.npz -m mrr,hits@10 --level 0.95 --cluster sample_id`

    `torchrankmetrics report ranks.npz -m mrr --by-group --names relations.txt --format csv`
    """
    if level is not None:
        check_level(level)
    chosen = check_choice("--method", method, METHODS)
    if cluster is not None:
        check_choice("--cluster", cluster, ("group", "sample_id"))
    if level is None:
        refuse(given(context, "method", "cluster"), "they are of the intervals, add --level")
    if by_group and level is not None:
        raise ValueError("--by-group has no intervals: leave out --level")
    if names is not None and not by_group:
        raise ValueError("--names are those of the groups: add --by-group")
    selection = Selection(
        choices_of(views, "--view", GROUP_VIEWS if by_group else VIEWS),
        choices_of(rank_types, "--rank-type", RANK_TYPES),
        choices_of(sides, "--side", SIDES),
        DEFAULT_EXPECTATION,
    )
    measures = {key: measure_of(entry) for key, entry in selection.entries(split_list(metrics, "--metric"))}
    only = measures if by_group and given(context, "views") else None
    group_names = None if names is None else _read_names(names)
    files = [file for path in paths for file in files_of(Path("/dev/stdin") if str(path) == "-" else path)]
    several = len(files) > 1 or paths[0].is_dir()
    columns: tuple[str, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for path in watch(files, len(files), "reading ranks"):
        analysis = _analysis(path, measures, max_bytes)
        if by_group:
            part = break_down(analysis, measures.values(), group_names)
            columns, lines = _columns(part, only)
        else:
            columns, lines = _values(analysis, measures, level, chosen, cluster)
        rows += [(str(path), *line) for line in lines] if several else lines
        notes += [f"{path}: {note}" for note in (tasks_note(analysis.sample()), *sampled_notes(analysis))]
    table = Tabular.named(("file", *columns) if several else columns, rows, tuple(notes), keys=1 + several)
    emit(table, form, output)


def _columns(part: Breakdown, only: Measures | None) -> Lines:
    """Columns of a table by group: of all its views, or only those that were asked for."""
    kept = [i for i, column in enumerate(part.columns) if i < 2 or only is None or column in only]
    return tuple(part.columns[i] for i in kept), [tuple(row[i] for i in kept) for row in part.rows]


def _values(analysis: Analysis, measures: Measures, level: float | None, method: Method, cluster: str | None) -> Lines:
    values = {key: _value(measure, analysis) for key, measure in measures.items()}
    if level is None:
        return ("metric", "value"), list(values.items())
    intervals = confidence_intervals(analysis, measures, level, method, cluster, 2000, 0)
    found: dict[str, tuple[Cell, ...]] = {row.metric: (row.value, row.low, row.high) for row in intervals.rows}
    # a p-value and a count are no estimates: they have no bounds
    rows: list[tuple[Cell, ...]] = [(key, *found.get(key, (value, None, None))) for key, value in values.items()]
    return ("metric", "value", "low", "high"), rows


def _value(measure: Measure, analysis: Analysis) -> Cell:
    value = measure.value(analysis)
    if measure.view != "p_value" or math.isnan(value):
        return value
    return PValue(value, math.log10(value) if value > TINY else measure.log_p_value(analysis) / math.log(10))


def _analysis(path: Path, measures: Measures, max_bytes: int) -> Analysis:
    table = RankTable.load(path, max_bytes=max_bytes)
    if not table.num_tasks:
        raise ValueError(f"{path} holds no ranking tasks")
    analysis = Analysis([table.rows])
    for side in {measure.side for measure in measures.values()} - {"both", *analysis.sides}:
        there = " and ".join(analysis.sides) or "no"
        raise ValueError(f"{path} has no ranks of side {side!r}: it has {there} sides; use --side both")
    return analysis


def _read_names(path: Path) -> dict[int, str]:
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
