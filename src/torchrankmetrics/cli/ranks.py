"""``report`` and ``compare``: values of saved ranks, and models on the same tasks."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from torchrankmetrics.cli.output import (
    SUFFIXES,
    ClusterOption,
    FirstArgument,
    FormatOption,
    FragmentOption,
    MaxBytesOption,
    MetricsOption,
    OutputOption,
    SecondArgument,
    busy,
    choices_of,
    emit,
    files_of,
    given,
    input_path,
    load,
    refuse,
    split_list,
    watch,
)
from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.validation import check_choice


def report_command(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES",
            help="Files of ranks (RankTable.save; .npz, .parquet), folders of them, or -.",
            show_default=False,
        ),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metric",
            "-m",
            help="Metrics, separated by commas: mrr, hits@10, amri, z_mrr, gmr ...; without it those of a collection.",
        ),
    ] = None,
    views: Annotated[
        str,
        typer.Option(
            "--view",
            help="Of base, normalized, adjusted_index, z_score, p_value: for metrics that do not say their own.",
        ),
    ] = "base",
    sides: Annotated[str, typer.Option("--side", help="Of both, head, tail, relation.")] = "both",
    rank_types: Annotated[
        str,
        typer.Option("--rank-type", help="Where scores are tied: of realistic, optimistic, pessimistic, expected."),
    ] = "realistic",
    confidence_level: Annotated[
        float | None, typer.Option("--confidence-level", help="Add confidence intervals of this level, such as 0.95.")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="Of the intervals: normal or bootstrap.")] = "normal",
    cluster: ClusterOption = None,
    by_group: Annotated[bool, typer.Option("--by-group", help="One line per group (relation, say).")] = False,
    names: Annotated[
        Path | None,
        typer.Option("--names", help="Names of the groups: a line for each id, or id TAB name.", callback=input_path),
    ] = None,
    max_bytes: MaxBytesOption = MAX_BYTES,
    form: FormatOption = None,
    fragment: FragmentOption = False,
    output: OutputOption = None,
) -> None:
    """Compute any metrics of saved ranks.

    For example

    `torchrankmetrics report ranks.npz --view base,adjusted_index --side both,head,tail`

    `torchrankmetrics report ranks.npz -m mrr,hits@10 --confidence-level 0.95 --cluster sample_id`

    `torchrankmetrics report ranks.npz -m mrr --by-group --names relations.txt --format csv`
    """
    from torchrankmetrics.cli import reading
    from torchrankmetrics.definitions.sample import RANK_TYPES
    from torchrankmetrics.inference.intervals import check_confidence_level
    from torchrankmetrics.inference.standard_errors import METHODS
    from torchrankmetrics.metrics.breakdown import break_down
    from torchrankmetrics.metrics.measure import SIDES
    from torchrankmetrics.metrics.selection import DEFAULT_METRICS, Selection
    from torchrankmetrics.metrics.summary import sampled_notes, tasks_note
    from torchrankmetrics.metrics.views import VIEWS
    from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION

    if confidence_level is not None:
        confidence_level = check_confidence_level(confidence_level)
    chosen = check_choice("--method", method, METHODS)
    if confidence_level is None:
        refuse(given(context, "method", "cluster"), "they are of the intervals, add --confidence-level")
    if by_group and confidence_level is not None:
        raise ValueError("--by-group has no intervals: leave out --confidence-level")
    if names is not None and not by_group:
        raise ValueError("--names are those of the groups: add --by-group")
    selection = Selection(
        choices_of(views, "--view", reading.GROUP_VIEWS if by_group else VIEWS),
        choices_of(rank_types, "--rank-type", RANK_TYPES),
        choices_of(sides, "--side", SIDES),
        DEFAULT_EXPECTATION,
    )
    names_of_metrics = DEFAULT_METRICS if metrics is None else split_list(metrics, "--metric")
    measures: reading.Measures = selection.measures(names_of_metrics)
    only = measures if by_group and given(context, "views") else None
    group_names = None if names is None else reading.read_names(names)
    files = [file for path in paths for file in files_of(Path("/dev/stdin") if str(path) == "-" else path)]
    several = len(files) > 1 or (files != paths and paths[0].is_dir())
    columns: tuple[str, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for path, name in watch(list(zip(files, _shown(files), strict=True)), len(files), "reading ranks"):
        analysis = reading.analysis_of(path, measures, max_bytes)
        if by_group:
            part = break_down(analysis, measures.values(), group_names)
            columns, lines = reading.columns_of(part, only)
        else:
            columns, lines = reading.values_of(analysis, measures, confidence_level, chosen, cluster)
        rows += [(name, *line) for line in lines] if several else lines
        notes += [f"{name}: {note}" for note in (tasks_note(analysis.sample()), *sampled_notes(analysis))]
    table = Tabular.named(("file", *columns) if several else columns, rows, tuple(notes), keys=1 + several)
    emit(table, form, output, title="Rank metrics", fragment=fragment)


def compare_command(
    context: typer.Context,
    a: FirstArgument,
    b: SecondArgument,
    others: Annotated[
        list[Path] | None, typer.Argument(help="Of more models: then every pair is compared.", show_default=False)
    ] = None,
    metrics: MetricsOption = "mrr",
    confidence_level: Annotated[
        float, typer.Option("--confidence-level", help="Of the interval of the difference.")
    ] = 0.95,
    cluster: ClusterOption = None,
    n_resamples: Annotated[int, typer.Option("--n-resamples", help="Of the bootstrap.")] = 2000,
    permutations: Annotated[int, typer.Option("--permutations", help="Of the sign-flip test.")] = 9999,
    seed: Annotated[int, typer.Option("--seed", help="Of both.")] = 0,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", help="Of three models and more, the one to compare with the others: its name, or best."
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option("--margin", help="Of two models: are they equal to within it, in the units of the metrics?"),
    ] = None,
    max_bytes: MaxBytesOption = MAX_BYTES,
    form: FormatOption = None,
    fragment: FragmentOption = False,
    output: OutputOption = None,
) -> None:
    """Compare models on the same tasks: difference, interval, p.

    Tasks are matched by side and sample id, else by order. With folders, training seeds are told apart from test tasks.
    Of two models p_adjusted is by Holm over the metrics; three and more are called by their files, and are one family
    with the metrics (max-T, or Holm for folders).

    For example

    `torchrankmetrics compare a.npz b.npz -m mrr,hits@10,amri --cluster sample_id`

    `torchrankmetrics compare ours.npz theirs.npz old.npz -m mrr,hits@10 --baseline best`

    `torchrankmetrics compare new.npz old.npz -m mrr --margin 0.01`
    """
    from torchrankmetrics.inference.compare import compare
    from torchrankmetrics.inference.equivalence import equivalence, equivalences

    paths = [a, b, *(others or [])]
    if len(paths) == 2:
        refuse(given(context, "baseline"), "of two models there is one pair")
    elif margin is not None:
        raise ValueError("--margin is of two models")
    names = split_list(metrics, "--metric")
    models = [load(path, max_bytes) for path in paths]
    options: dict[str, Any] = {"n_resamples": n_resamples, "permutations": permutations, "seed": seed}
    options |= {"confidence_level": confidence_level, "cluster": cluster}
    note = "a: {}, b: {}".format(*_shown(paths[:2]))
    with busy("resampling"):
        if margin is not None:
            table = equivalences([equivalence(models[0], models[1], name, margin=margin, **options) for name in names])
            table = replace(table, notes=("; ".join([*table.notes, note]),))
        elif len(models) == 2:
            table = compare(models[0], models[1], names, **options).tabular()
            table = replace(table, notes=("; ".join([*table.notes, note]),))
        else:
            table = compare(
                dict(zip(_names(paths), models, strict=True)), names, baseline=baseline, **options
            ).tabular()
    emit(table, form, output, title="Comparison of models", fragment=fragment)


def _shown(paths: list[Path]) -> list[str]:
    """Paths as in a published table: absolute ones become relative to their common folder."""
    absolute = [path for path in paths if path.is_absolute()]
    folder = os.path.commonpath([path.parent for path in absolute]) if absolute else ""
    return [path.relative_to(folder).as_posix() if path.is_absolute() else str(path) for path in paths]


def _names(paths: list[Path]) -> list[str]:
    """Names of models: of their files, where these differ, else the whole paths.

    Raises:
        ValueError: if a path comes twice.
    """
    names = [path.name.removesuffix(path.suffix if path.suffix in SUFFIXES else "") for path in paths]
    if len(set(names)) < len(names):
        names = _shown(paths)
    if len(set(names)) < len(names):
        raise ValueError(f"models must be different files; got {', '.join(names)}")
    return names
