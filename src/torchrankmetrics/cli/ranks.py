"""``report`` and ``compare``: values of saved ranks, and models on the same tasks."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchrankmetrics.cli import common
from torchrankmetrics.cli.common import opt
from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.validation import check_choice

if TYPE_CHECKING:
    from torchrankmetrics.inference.comparison import Comparison


def report_command(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files of ranks, directories of such files, or -.")],
    metrics: Annotated[
        str | None, opt("Metrics: mrr,hits@10,amri,z_mrr ...; default: eight.", "--metric", "-m")
    ] = None,
    view: Annotated[str, opt("Views: base, normalized, adjusted_index, z_score, p_value.")] = "base",
    side: Annotated[str, opt("Sides: both, head, tail, relation.")] = "both",
    rank_type: Annotated[str, opt("Ranks of ties: realistic, optimistic, pessimistic, expected.")] = "realistic",
    confidence_level: Annotated[float | None, opt("Confidence level of intervals; default: no intervals.")] = None,
    method: Annotated[str, opt("Method of the intervals: normal or bootstrap.")] = "normal",
    cluster: common.ClusterOption = None,
    by_group: Annotated[bool, opt("Print one line per group.", "--by-group")] = False,
    fail_under: Annotated[str | None, opt("Exit with code 1 below a limit: mrr=0.3,amri=0.8.")] = None,
    max_bytes: common.MaxBytesOption = MAX_BYTES,
    form: common.FormatOption = None,
    fragment: common.FragmentOption = False,
    output: common.OutputOption = None,
) -> None:
    """Compute metrics of saved ranks.

    For example

    `torchrankmetrics report ranks.npz --view base,adjusted_index --side both,head,tail`

    `torchrankmetrics report ranks.npz -m mrr,hits@10 --confidence-level 0.95 --cluster sample_id`

    `torchrankmetrics report ranks.npz -m mrr --by-group --format csv`
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

    chosen = check_choice("--method", method, METHODS)
    if confidence_level is None:
        common.require(context, "without --confidence-level", "method", "cluster")
    else:
        confidence_level = check_confidence_level(confidence_level)
    if by_group:
        common.require(context, "with --by-group", "confidence_level")
    views = common.choices_of(view, "--view", ("base", "adjusted_index", "z_score") if by_group else VIEWS)
    rank_types, sides = (
        common.choices_of(rank_type, "--rank-type", RANK_TYPES),
        common.choices_of(side, "--side", SIDES),
    )
    selection = Selection(views, rank_types, sides, DEFAULT_EXPECTATION)
    measures = selection.measures(DEFAULT_METRICS if metrics is None else common.split_list(metrics, "--metric"))
    all_views = not common.given(context, "view")
    limits = reading.limits_of(fail_under)
    paths = [path for one in files for path in reading.files_of(common.input_path(one))]
    several = len(paths) > 1 or files[0].is_dir()
    columns: tuple[str, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    lines: list[Any]
    notes: list[str] = []
    failed: list[str] = []
    tasks = 0
    for path, name in zip(paths, reading.displayed(paths), strict=True):
        analysis = reading.analysis_of(path, measures, max_bytes)
        if metrics is None and analysis.sample().num_candidates is None:
            measures = {key: measure for key, measure in measures.items() if measure.view == "base"}
        if by_group:
            part = break_down(analysis, measures.values(), None)
            used = [i for i, column in enumerate(part.columns) if i < 2 or all_views or column in measures]
            columns, lines = (
                tuple(part.columns[i] for i in used),
                [tuple(row[i] for i in used) for row in part.rows],
            )
        else:
            columns, lines = reading.values_of(analysis, measures, confidence_level, chosen, cluster)
        rows += [(name, *line) for line in lines] if several else lines
        notes += [f"{name}: {note}" for note in (tasks_note(analysis.sample()), *sampled_notes(analysis))]
        tasks += analysis.sample().num_tasks
        values = [(measure.key, measure.value(analysis), limit) for measure, limit in limits]
        failed += [
            f"{name}: {key} is {value:.6g}, below {limit:g}" for key, value, limit in values if not value >= limit
        ]
    table = Tabular.named(("file", *columns) if several else columns, rows, tuple(notes), keys=1 + several)
    about: dict[str, Any] = {"files": reading.displayed(paths), "tasks": tasks, "confidence_level": confidence_level}
    common.emit(table, form, output, title="Rank metrics", fragment=fragment, **about)
    common.fail(failed)


def compare_command(
    context: typer.Context,
    a: Annotated[Path, typer.Argument(help="Ranks of a model: a file, or a directory with a file per training run.")],
    b: Annotated[Path, typer.Argument(help="Ranks of the second model on the same tasks.")],
    others: Annotated[list[Path] | None, typer.Argument(help="Ranks of more models, to compare all pairs.")] = None,
    metrics: common.MetricsOption = "mrr",
    confidence_level: common.LevelOption = 0.95,
    cluster: common.ClusterOption = None,
    baseline: Annotated[str | None, opt("Model to compare with the others: a name, or best.")] = None,
    margin: Annotated[float | None, opt("Test whether two models are equal within this margin.")] = None,
    fail_if: Annotated[str | None, opt("Exit with code 1 if a is worse, not-better or not-equivalent.")] = None,
    max_bytes: common.MaxBytesOption = MAX_BYTES,
    form: common.FormatOption = None,
    fragment: common.FragmentOption = False,
    output: common.OutputOption = None,
) -> None:
    """Compare models on the same tasks: difference, confidence interval, p-value.

    Tasks are matched by side and sample id, or by order without sample ids. For two models p_adjusted is Holm's over
    the metrics. Three or more models are named after their files; pairs and metrics are one family of tests (max-T, or
    Holm for directories of training runs).

    For example

    `torchrankmetrics compare a.npz b.npz -m mrr,hits@10,amri --cluster sample_id`

    `torchrankmetrics compare ours.npz theirs.npz old.npz -m mrr,hits@10 --baseline best`

    `torchrankmetrics compare new.npz old.npz -m mrr --fail-if worse`
    """
    from torchrankmetrics.cli import reading
    from torchrankmetrics.inference.compare import compare
    from torchrankmetrics.inference.comparison import Comparisons
    from torchrankmetrics.inference.equivalence import equivalence, equivalences
    from torchrankmetrics.table.rank_table import RankTable

    paths = [common.input_path(path) for path in (a, b, *(others or []))]
    if len(paths) == 2:
        common.require(context, "with two models", "baseline")
    else:
        common.require(context, "with three models or more", "margin", "fail_if")
    if fail_if is not None:
        check_choice("--fail-if", fail_if, ("worse", "not-better", "not-equivalent"))
        if (fail_if == "not-equivalent") != (margin is not None):
            raise ValueError("--fail-if not-equivalent and --margin must be given together")
    metric_names = common.split_list(metrics, "--metric")
    models: list[Any] = []
    for path in paths:
        files = reading.files_of(path)
        tables = [RankTable.load(file, max_bytes=max_bytes) for file in files]
        models.append(tables[0] if files == [path] else tables)
    options: dict[str, Any] = {"confidence_level": confidence_level, "cluster": cluster}
    displayed = reading.displayed(paths)
    with common.busy("resampling"):
        if margin is not None:
            found: Any = [equivalence(models[0], models[1], name, margin=margin, **options) for name in metric_names]
            table = equivalences(found)
            failed = [f"a is not shown to be equivalent to b in {row.metric}" for row in found if not row.equivalent]
        elif len(models) == 2:
            found = compare(models[0], models[1], metric_names, **options).rows
            table, failed = Comparisons(found).tabular(), _failed(found, fail_if)
        else:
            names = [path.name.removesuffix(path.suffix if path.suffix in reading.SUFFIXES else "") for path in paths]
            names = names if len(set(names)) == len(names) else displayed
            if len(set(names)) < len(names):
                raise ValueError(f"models must be different files; got {', '.join(names)}")
            result = compare(dict(zip(names, models, strict=True)), metric_names, baseline=baseline, **options)
            table, found = result.tabular(), result.rows
    if len(models) == 2:
        table = replace(table, notes=("; ".join([*table.notes, f"a: {displayed[0]}, b: {displayed[1]}"]),))
    about: dict[str, Any] = {"files": displayed, "tasks": found[0].num_tasks, "confidence_level": confidence_level}
    common.emit(table, form, output, title="Comparison of models", fragment=fragment, **about)
    common.fail(failed if fail_if else [])


def _failed(rows: "tuple[Comparison, ...]", rule: str | None) -> list[str]:
    """Explain which metrics fail a rule."""
    from torchrankmetrics.metrics.registry import as_measure

    failed = []
    for row in rows if rule else ():
        higher = as_measure(row.metric).higher_is_better
        if higher is None:
            raise ValueError(f"--fail-if needs metrics that have a better direction, got {row.metric}")
        alpha = 1 - row.confidence_level + 1e-12
        significant = not row.low <= 0 <= row.high if row.p_adjusted is None else row.p_adjusted <= alpha
        better = significant and (row.difference > 0) == higher
        worse = significant and (row.difference < 0) == higher
        if worse or (rule == "not-better" and not better):
            verdict = "significantly worse" if worse else "not significantly better"
            interval = f"{row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}]"
            failed.append(f"a is {verdict} than b in {row.metric}: a - b = {interval}")
    return failed
