"""``report``: any metrics of saved ranks, by view, side, rank type, group, with intervals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from torchrankmetrics.cli.output import (
    Cell,
    Format,
    FormatOption,
    OutputOption,
    Records,
    choice_of,
    choices_of,
    emit,
    split_list,
    watch,
)
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.breakdown import break_down
from torchrankmetrics.metrics.collection import DEFAULT_METRICS, RankCollection
from torchrankmetrics.metrics.intervals import Method, check_level, confidence_intervals
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.recipe import SIDES
from torchrankmetrics.metrics.summary import sampled_notes, tasks_note
from torchrankmetrics.ranking.table import RankTable
from torchrankmetrics.theory.sample import RANK_TYPES
from torchrankmetrics.theory.views import VIEWS

METHODS: tuple[Method, ...] = ("normal", "bootstrap")
Members = Mapping[str, RankMetric]
Lines = tuple[tuple[str, ...], list[tuple[Cell, ...]]]


def report_command(
    files: Annotated[list[Path], typer.Argument(help="Files of ranks (RankTable.save, .npz).", show_default=False)],
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
        Path | None, typer.Option("--names", help="Names of the groups: a line for each id, or id TAB name.")
    ] = None,
    form: FormatOption = Format.table,
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
    chosen = choice_of(method, "--method", METHODS)
    if cluster is not None:
        choice_of(cluster, "--cluster", ("group", "sample_id"))
    if by_group and level is not None:
        raise ValueError("--by-group has no intervals: leave out --level")
    if names is not None and not by_group:
        raise ValueError("--names are those of the groups: add --by-group")
    collection = RankCollection(
        split_list(metrics, "--metric"),
        views=choices_of(views, "--view", VIEWS),
        sides=choices_of(sides, "--side", SIDES),
        rank_types=choices_of(rank_types, "--rank-type", RANK_TYPES),
    )
    members = {key: metric for key, metric in collection.items(copy_state=False) if isinstance(metric, RankMetric)}
    group_names = None if names is None else _read_names(names)
    columns: tuple[str, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for path in watch(files, len(files), "reading ranks"):
        analysis = _analysis(path, members)
        if by_group:
            part = break_down(analysis, members.values(), "group", group_names)
            columns = part.columns
            lines: list[tuple[Cell, ...]] = list(part.rows)
        else:
            columns, lines = _values(analysis, members, level, chosen, cluster)
        rows += [(str(path), *line) for line in lines] if len(files) > 1 else lines
        notes += [f"{path}: {note}" for note in (tasks_note(analysis.sample()), *sampled_notes(analysis))]
    emit(Records(("file", *columns) if len(files) > 1 else columns, rows, tuple(notes)), form, output)


def _values(analysis: Analysis, members: Members, level: float | None, method: Method, cluster: str | None) -> Lines:
    if level is None:
        return ("metric", "value"), [(key, metric._number(analysis)) for key, metric in members.items()]
    intervals = confidence_intervals(analysis, members, level, method, cluster, 2000, 0)
    rows: list[tuple[Cell, ...]] = [(row.metric, row.value, row.low, row.high) for row in intervals.rows]
    return ("metric", "value", "low", "high"), rows


def _analysis(path: Path, members: Members) -> Analysis:
    table = RankTable.load(path)
    if not table.num_tasks:
        raise ValueError(f"{path} holds no ranking tasks")
    analysis = Analysis([table.rows])
    for side in {metric.side for metric in members.values()} - {None, *analysis.sides}:
        there = " and ".join(analysis.sides) or "no"
        raise ValueError(f"{path} has no ranks of side {side!r}: it has {there} sides; use --side both")
    return analysis


def _read_names(path: Path) -> dict[int, str]:
    """Names of groups by id: of lines "id TAB name", or of the line number from 0."""
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    parts = [line.split("\t") for line in lines]
    if {len(part) for part in parts} == {1}:
        return dict(enumerate(lines))
    named: dict[int, str] = {}
    for number, part in enumerate(parts, 1):
        if len(part) != 2 or not part[0].strip().lstrip("-").isdigit():
            raise ValueError(f"{path} line {number}: expected a name, or id TAB name; got {chr(9).join(part)[:60]!r}")
        named[int(part[0])] = part[1]
    return named
