"""``report`` and ``compare``: values of saved ranks, and models on the same tasks."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchrankmetrics.cli.options import CompareCommand, RanksCommand, ReportCommand
from torchrankmetrics.cli.output import busy, choices_of, emit, exit_code, input_path, split_list
from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.definitions.sample import RANK_TYPES
from torchrankmetrics.inference.compare import compare as compare_models
from torchrankmetrics.inference.comparison import Comparison, Comparisons
from torchrankmetrics.inference.equivalence import equivalence, equivalences
from torchrankmetrics.inference.intervals import check_confidence_level, confidence_intervals
from torchrankmetrics.inference.sources import check_complete
from torchrankmetrics.inference.standard_errors import METHODS, Method
from torchrankmetrics.integrations.trec import DEFAULT_RUN_METRICS, evaluate_run, rank_run
from torchrankmetrics.integrations.trec_files import read_qrels, read_run
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.breakdown import break_down
from torchrankmetrics.metrics.measure import SIDES, Measure
from torchrankmetrics.metrics.registry import DEFAULT_METRICS, Metrics, Selection, as_measure
from torchrankmetrics.metrics.summary import sampled_notes, tasks_note
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.table.parquet import is_one_table
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_choice, shorten

_SUFFIXES = (".npz", ".parquet", ".csv", ".tsv")
_TINY = 1e-300  # smaller floats have fewer digits
Lines = tuple[Sequence[str], Sequence[Sequence[Any]]]


def print_report(options: ReportCommand) -> int:
    """Compute metrics of one or several files."""
    method = check_choice("--method", options.method, METHODS)
    level = options.confidence_level
    if level is None:
        options.require("without --confidence-level", "method", "cluster")
    else:
        level = check_confidence_level(level)
    if options.by_group:
        options.require("with --by-group", "confidence_level")
    views = choices_of(options.view, "--view", ("base", "adjusted_index", "z_score") if options.by_group else VIEWS)
    rank_types = choices_of(options.rank_type, "--rank-type", RANK_TYPES)
    sides = choices_of(options.side, "--side", SIDES)
    selection = Selection(
        views, rank_types, sides, DEFAULT_EXPECTATION, relevance_threshold=options.relevance_threshold
    )
    names = DEFAULT_RUN_METRICS if options.runs else DEFAULT_METRICS
    measures = selection.measures(names if options.metrics is None else split_list(options.metrics, "--metric"))
    limits = _limits(options.fail_under)
    given = _given(options)
    paths = [path for one in given for path in ([one] if options.runs else _files_of(one))]
    displayed, several = _displayed(paths), len(paths) > 1 or given[0].is_dir()
    tables = _tables(options, paths, [*measures.values(), *(measure for measure, _ in limits)])
    columns: Sequence[str] = ()
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    failed: list[str] = []
    tasks = 0
    for path, name, ranks in zip(paths, displayed, tables, strict=True):
        analysis = _analysis_of(path, ranks, measures.values())
        chosen = measures
        if options.metrics is None and analysis.sample().num_candidates is None:
            chosen = {key: measure for key, measure in measures.items() if measure.view == "base"}
        if options.by_group:
            columns, lines = _by_group(analysis, chosen, all_views=not options.given("view"))
        else:
            columns, lines = _values(analysis, chosen, level, method, options.cluster)
        rows += [(name, *line) if several else tuple(line) for line in lines]
        notes += [f"{name}: {note}" for note in (tasks_note(analysis.sample()), *sampled_notes(analysis))]
        tasks += analysis.sample().num_tasks
        values = [(measure.key, measure.value(analysis), limit) for measure, limit in limits]
        failed += [f"{name}: {key} is {x:.6g}, below {limit:g}" for key, x, limit in values if not x >= limit]
    table = Tabular.named(("file", *columns) if several else columns, rows, notes, keys=1 + several)
    about: dict[str, Any] = {"files": displayed, "tasks": tasks, "confidence_level": level}
    emit(options, table, title="Rank metrics", fragment=options.fragment, **about)
    return exit_code(failed)


def _given(options: ReportCommand | CompareCommand) -> list[Path]:
    """Paths of runs or of files of ranks."""
    if (options.qrels is None) != (not options.runs):
        raise ValueError("--qrels and --run must be given together")
    if options.runs:
        options.require("with --run", "files", "cluster", "max_bytes")
    else:
        options.require("without --run", "num_candidates")
    if not (found := options.runs or options.files):
        raise ValueError("files of ranks must be given, or --qrels and --run")
    return [input_path(path) for path in found]


def _tables(options: RanksCommand, paths: Sequence[Path], metrics: Metrics) -> Iterator[RankTable]:
    """Load files of ranks, or rank runs; ValueError for metrics that the lists of a run do not determine."""
    if options.qrels is None:
        yield from (RankTable.load(path, max_bytes=options.max_bytes) for path in paths)
        return
    qrels = read_qrels(input_path(options.qrels))
    for path in paths:
        run = read_run(path)
        evaluate_run(qrels, run, metrics, num_candidates=options.num_candidates)
        yield rank_run(qrels, run, num_candidates=options.num_candidates)


def _files_of(path: Path) -> list[Path]:
    """List the tables of a directory by name; a file, or a directory that is one table, is itself."""
    if not path.is_dir() or is_one_table(path):
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise ValueError(f"{path} is a directory without files of ranks ({', '.join(_SUFFIXES)})")
    return files


def _displayed(paths: list[Path]) -> list[str]:
    """Write paths for a table that is published: absolute ones relative to their common directory."""
    absolute = [path for path in paths if path.is_absolute()]
    folder = os.path.commonpath([path.parent for path in absolute]) if absolute else ""
    return [path.relative_to(folder).as_posix() if path.is_absolute() else str(path) for path in paths]


def _analysis_of(path: Path, table: RankTable, measures: Iterable[Measure]) -> Analysis:
    """Analyze ranks; ValueError if there are no tasks or they lack the side of a measure."""
    check_complete(table, path)
    analysis = Analysis([table.rows])
    for side in {measure.side for measure in measures} - {"both", *analysis.sides}:
        there = " and ".join(analysis.sides) or "no"
        raise ValueError(f"{path} has no ranks of side {shorten(side)}: it has {there} sides; use --side both")
    return analysis


def _by_group(analysis: Analysis, measures: Mapping[str, Measure], all_views: bool) -> Lines:
    part = break_down(analysis, measures.values(), None)
    used = [i for i, column in enumerate(part.columns) if i < 2 or all_views or column in measures]
    return [part.columns[i] for i in used], [[row[i] for i in used] for row in part.rows]


def _values(
    analysis: Analysis, measures: Mapping[str, Measure], level: float | None, method: Method, cluster: Any
) -> Lines:
    """Compute the metrics, with the ends of their intervals if a level is given; p-values and counts have none."""
    values: dict[str, Cell] = {}
    for key, measure in measures.items():
        value = values[key] = measure.value(analysis)
        if measure.view == "p_value" and not math.isnan(value):
            log10 = math.log10(value) if value > _TINY else measure.log_p_value(analysis) / math.log(10)
            values[key] = PValue(value, log10)
    if level is None:
        return ("metric", "value"), list(values.items())
    intervals = confidence_intervals(analysis, measures, level, method, cluster, 2000, 0)
    ends = {row.metric: (row.low, row.high) for row in intervals.rows}
    lines = [(key, value, *ends.get(key, (None, None))) for key, value in values.items()]
    return ("metric", "value", "low", "high"), lines


def _limits(text: str | None) -> list[tuple[Measure, float]]:
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


def print_comparison(options: CompareCommand) -> int:
    """Compare two models, or several pair by pair."""
    paths = _given(options)
    if len(paths) < 2:
        raise ValueError(f"two models or more must be given, got {len(paths)}")
    if len(paths) == 2:
        options.require("with two models", "baseline")
    else:
        options.require("with three models or more", "margin", "fail_if")
    margin, rule = options.margin, options.fail_if
    if rule is not None:
        check_choice("--fail-if", rule, ("worse", "not-better", "not-equivalent"))
        if (rule == "not-equivalent") != (margin is not None):
            raise ValueError("--fail-if not-equivalent and --margin must be given together")
    requested = split_list(options.metrics or ("ndcg_at_10" if options.runs else "mrr"), "--metric")
    threshold = options.relevance_threshold
    selection = Selection("base", "realistic", "both", DEFAULT_EXPECTATION, relevance_threshold=threshold)
    metrics = list(selection.measures(requested).values())
    displayed = _displayed(paths)
    models: list[Any] = list(_tables(options, paths, metrics)) if options.runs else []
    for path in paths if not options.runs else ():
        files = _files_of(path)
        tables = list(_tables(options, files, metrics))
        models.append(tables[0] if files == [path] else tables)
    tests: dict[str, Any] = {"confidence_level": options.confidence_level, "cluster": options.cluster}
    failed: list[str] = []
    with busy("resampling"):
        if margin is not None:
            found: Any = [equivalence(models[0], models[1], name, margin=margin, **tests) for name in metrics]
            table = equivalences(found)
            failed = [f"a is not shown to be equivalent to b in {row.metric}" for row in found if not row.equivalent]
        elif len(models) == 2:
            found = compare_models(models[0], models[1], metrics, **tests).rows
            table, failed = Comparisons(found).tabular(), _failed(found, rule)
        else:
            names = [path.name.removesuffix(path.suffix if path.suffix in _SUFFIXES else "") for path in paths]
            names = names if len(set(names)) == len(names) else displayed
            if len(set(names)) < len(names):
                raise ValueError(f"models must be different files; got {', '.join(names)}")
            named = dict(zip(names, models, strict=True))
            result = compare_models(named, metrics, baseline=options.baseline, **tests)
            table, found = result.tabular(), result.rows
    if len(models) == 2:
        table = replace(table, notes=("; ".join([*table.notes, f"a: {displayed[0]}, b: {displayed[1]}"]),))
    about: dict[str, Any] = {"files": displayed, "tasks": found[0].num_tasks}
    about["confidence_level"] = options.confidence_level
    emit(options, table, title="Comparison of models", fragment=options.fragment, **about)
    return exit_code(failed if rule else [])


def _failed(rows: Iterable[Comparison], rule: str | None) -> list[str]:
    """Explain which metrics fail a rule."""
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
