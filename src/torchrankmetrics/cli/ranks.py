"""Commands of ranks: ``report``, ``compare``, ``study`` and ``verify``."""

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import click

import torchrankmetrics as trm
from torchrankmetrics.cli.output import (
    Cluster,
    Form,
    Level,
    Output,
    arg,
    emit,
    opt,
    reject,
    split_list,
)
from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.validation import shorten, visible

Paths = list[Path] | None
Models = Annotated[
    Paths, arg("Ranks of models: files, or directories with a file per training run.", nargs=-1)
]
Metrics = Annotated[
    str | None, opt("Metrics: mrr,hits@10,amri,z_mrr ...; several by commas.", "--metric", "-m")
]
Qrels = Annotated[Path | None, opt("Relevance of documents, for --run: TREC, BEIR or JSON.")]
Runs = Annotated[
    Paths, opt("Scores of documents: TREC, BEIR or JSON; repeatable.", "--run", multiple=True)
]
Documents = Annotated[int | None, opt("Size of the collection, for chance-adjusted views of runs.")]
Threshold = Annotated[float, opt("Smallest label of a relevant document, for binary metrics.")]
EmptyQueries = Annotated[
    Literal["skip", "zero", "error"] | None,
    opt("Queries without a relevant item; default: zero for runs (as trec_eval), else skip."),
]
IdenticalIds = Annotated[
    bool,
    opt("Leave out documents of a run whose id is the query's, as BEIR does.", is_flag=True),
]
MaxBytes = Annotated[
    int,
    opt("Maximum memory of a file of ranks; larger files are an error.", type=click.IntRange(1)),
]
Rule = Literal["worse", "not-better", "not-equivalent"]
_SUFFIXES = (".npz", ".parquet", ".csv", ".tsv")
_TINY = 1e-300  # smaller floats have fewer digits


def report(
    files: Annotated[
        Paths, arg("Files of ranks, directories of such files, or -.", nargs=-1)
    ] = None,
    metrics: Metrics = None,
    view: Annotated[
        str | None, opt("Views: base, normalized, adjusted_index, z_score, p_value.")
    ] = None,
    side: Annotated[str, opt("Sides: both, head, tail, relation.")] = "both",
    rank_type: Annotated[
        str, opt("Ranks of ties: realistic, optimistic, pessimistic, expected.")
    ] = "realistic",
    confidence_level: Annotated[
        float | None, opt("Confidence level of intervals; default: no intervals.")
    ] = None,
    method: Annotated[Literal["normal", "bootstrap"], opt("Method of the intervals.")] = "normal",
    cluster: Cluster = "auto",
    by_group: Annotated[bool, opt("Print one line per group.", is_flag=True)] = False,
    fail_under: Annotated[
        str | None, opt("Exit with code 1 below a limit: mrr=0.3,amri=0.8.")
    ] = None,
    qrels: Qrels = None,
    runs: Runs = None,
    num_candidates: Documents = None,
    relevance_threshold: Threshold = 1.0,
    empty_queries: EmptyQueries = None,
    ignore_identical_ids: IdenticalIds = False,
    max_bytes: MaxBytes = MAX_BYTES,
    form: Form = None,
    output: Output = None,
) -> int:
    """Compute metrics of saved ranks, or of retrieval runs.

    For example
    `torchrankmetrics report ranks.npz --view base,adjusted_index --side both,head,tail`
    `torchrankmetrics report ranks.npz -m mrr,hits@10 --confidence-level 0.95 --cluster sample_id`
    `torchrankmetrics report ranks.npz -m mrr --by-group --format csv`
    `torchrankmetrics report --qrels test.tsv --run bm25.run.gz -m ndcg@10,recall@100`
    """
    from torchrankmetrics.definitions.protocol import VIEWS
    from torchrankmetrics.definitions.sample import RANK_TYPES
    from torchrankmetrics.inference.intervals import confidence_intervals
    from torchrankmetrics.inference.pairing import check_complete
    from torchrankmetrics.integrations.trec import DEFAULT_RUN_METRICS
    from torchrankmetrics.metrics.analysis import Analysis
    from torchrankmetrics.metrics.breakdown import break_down
    from torchrankmetrics.metrics.measure import SIDES
    from torchrankmetrics.metrics.names import as_measure
    from torchrankmetrics.metrics.selection import DEFAULT_METRICS, Selection
    from torchrankmetrics.metrics.summary import sampled_notes, tasks_note

    if confidence_level is None:
        reject("without --confidence-level", method=method != "normal", cluster=cluster != "auto")
    if by_group:
        reject("with --by-group", confidence_level=confidence_level)
    offered = ("base", "adjusted_index", "z_score") if by_group else VIEWS
    views = split_list("base" if view is None else view, "--view", offered)
    rank_types = split_list(rank_type, "--rank-type", RANK_TYPES)
    sides = split_list(side, "--side", SIDES)
    names: Any = DEFAULT_RUN_METRICS if runs else DEFAULT_METRICS
    names = names if metrics is None else split_list(metrics, "--metric")
    names = _of_runs(names) if runs else names
    # a RankCollection would import torchmetrics, which is slow and looks for a writable directory
    empty = empty_queries or ("zero" if runs else "skip")
    measures = Selection(
        views, rank_types, sides, relevance_threshold=relevance_threshold, empty_queries=empty
    ).measures(names)
    limits = []
    for part in [] if fail_under is None else split_list(fail_under, "--fail-under"):
        if not (match := re.fullmatch(r"([^=]*)=(-?\d*\.?\d+(?:e-?\d+)?)", part)):
            raise ValueError(
                "--fail-under must be metrics with limits, such as mrr=0.3,amri=0.8; got "
                f"{shorten(part)}"
            )
        (name,) = _of_runs([match[1]]) if runs else [match[1]]
        limits.append((as_measure(name, empty_queries=empty), float(match[2])))
        if not limits[-1][0].higher_is_better:
            raise ValueError(
                f"--fail-under must name metrics where higher is better, got {shorten(match[1])}"
            )
    requested = [*measures.values(), *(measure for measure, _ in limits)]
    identical = ignore_identical_ids or None
    models, load = _sources(
        files, qrels, runs, num_candidates, max_bytes, cluster, requested, identical
    )
    paths = [part for _, parts in models for part in parts]
    listed = _displayed(paths)
    several = len(paths) > 1 or models[0] != (paths[0], paths)
    cells = dict[str, Sequence[Cell]]()
    rows = list[Sequence[Cell]]()
    notes = list[str]()
    failed = list[str]()
    tasks = 0
    for path, name in zip(paths, listed, strict=True):
        table = load(path)
        check_complete(table, path)
        analysis = Analysis([table.rows])
        chosen = measures
        for missing in {measure.side for measure in measures.values()} - {"both", *analysis.sides}:
            there = " and ".join(analysis.sides) or "no"
            raise ValueError(
                f"{path} has no ranks of side {missing!r}: it has {there} sides; use --side both"
            )
        sample = analysis.sample()
        if metrics is None and sample.num_candidates is None:
            chosen = {key: measure for key, measure in measures.items() if measure.view == "base"}
        if by_group:
            part = break_down(analysis, chosen.values(), None)
            cells = {
                one: part[one]
                for i, one in enumerate(part.columns)
                if i < 2 or not view or one in chosen
            }
        else:
            cells = {
                "metric": list(chosen),
                "value": [_cell(measure, analysis) for measure in chosen.values()],
            }
        if confidence_level is not None:
            intervals = confidence_intervals(
                analysis, chosen, confidence_level, method, _cluster(cluster), 2000, 0
            ).rows
            for end in ("low", "high"):
                ends = {row.metric: getattr(row, end) for row in intervals}
                cells[end] = [ends.get(key) for key in chosen]  # p-values have none
        rows += [(name, *line) if several else line for line in zip(*cells.values(), strict=True)]
        notes += [f"{name}: {note}" for note in (tasks_note(sample), *sampled_notes(analysis))]
        tasks += sample.num_tasks
        values = [(measure.key, measure.value(analysis), limit) for measure, limit in limits]
        failed += [
            f"{name}: {key} is {x:.6g}, below {limit:g}"
            for key, x, limit in values
            if not x >= limit
        ]
    result = Tabular.named(["file"] * several + list(cells), rows, notes, keys=1 + several)
    about = {"files": listed, "tasks": tasks, "confidence_level": confidence_level}
    return emit(result, form, output, "Rank metrics", failed, **about)


def _sources(
    files: Paths,
    qrels: Qrels,
    runs: Runs,
    num_candidates: Documents,
    max_bytes: MaxBytes,
    cluster: Any,
    metrics: Any,
    ignore_identical_ids: bool | None,
) -> tuple[list[tuple[Path, list[Path]]], Callable[[Path], "trm.RankTable"]]:
    """Return the path of each model with its files (several of a directory), and a function that loads their ranks."""
    from torchrankmetrics.integrations.trec import evaluate_run, rank_run, read_qrels, read_run
    from torchrankmetrics.table.files import is_one_table

    judged, *paths = (
        Path("/dev/stdin") if str(path) == "-" else path for path in (qrels, *(runs or files or ()))
    )
    models: Any = [(path, [path]) for path in paths]
    if (qrels is None) != (not runs):
        raise ValueError("--qrels and --run must be given together")
    if qrels is not None:
        if files:
            raise ValueError("files of ranks would do nothing with --run")
        reject("with --run", cluster=cluster != "auto", max_bytes=max_bytes != MAX_BYTES)
        relevance = read_qrels(judged)

        def load_run(path: Path) -> "trm.RankTable":
            run = read_run(path)
            # an error for metrics that the lists of a run do not determine
            options: Any = {
                "num_candidates": num_candidates,
                "ignore_identical_ids": ignore_identical_ids,
            }
            empty = metrics[0].empty_queries
            evaluate_run(relevance, run, metrics, empty_queries=empty, **options)
            return rank_run(relevance, run, **options)

        return models, load_run
    reject(
        "without --run", num_candidates=num_candidates, ignore_identical_ids=ignore_identical_ids
    )
    if not files:
        raise ValueError("files of ranks must be given, or --qrels and --run")
    for path, parts in models:
        if path.is_dir() and not is_one_table(path):
            parts[:] = sorted(one for one in path.iterdir() if one.suffix in _SUFFIXES)
            if not parts and any(path.rglob("*.parquet")):
                parts.append(path)  # partitioned: the error has the remedy
        if not parts:
            raise ValueError(
                f"{path} is a directory without files of ranks ({', '.join(_SUFFIXES)})"
            )
    return models, lambda path: trm.RankTable.load(path, max_bytes=max_bytes)


def _cluster(option: str) -> Any:
    """Argument cluster= of an option."""
    return None if option == "none" else option


def _of_runs(names: Any) -> list[Any]:
    """Read the names of metrics of runs, where ``mrr`` means ``rr``."""
    from torchrankmetrics.errors import warn
    from torchrankmetrics.integrations.trec.runs import RR_NOTE, run_metrics

    read, has_mrr = run_metrics(list(names))
    if has_mrr:
        warn(RR_NOTE)
    return list(read)


def _displayed(paths: list[Path]) -> list[str]:
    """Write paths for a table that is published: absolute ones relative to their common directory."""
    absolute = [path for path in paths if path.is_absolute()]
    folder = os.path.commonpath([path.parent for path in absolute]) if absolute else ""
    return [
        path.relative_to(folder).as_posix() if path.is_absolute() else str(path) for path in paths
    ]


def _cell(measure: Any, analysis: Any) -> Cell:
    """Value of a measure, with its logarithm if it is a p-value."""
    value: float = measure.value(analysis)
    if measure.view != "p_value" or math.isnan(value):
        return value
    return PValue(
        value,
        math.log10(value) if value > _TINY else measure.log_p_value(analysis)[0] / math.log(10),
    )


def compare(
    files: Models = None,
    metrics: Metrics = None,
    confidence_level: Level = 0.95,
    cluster: Cluster = "auto",
    baseline: Annotated[
        str | None, opt("Model to compare with the others: a name, or best.")
    ] = None,
    margin: Annotated[
        float | None, opt("Test whether two models are equal within this margin.")
    ] = None,
    fail_if: Annotated[
        Rule | None, opt("Exit with code 1 if a is worse, not-better or not-equivalent.")
    ] = None,
    qrels: Qrels = None,
    runs: Runs = None,
    num_candidates: Documents = None,
    relevance_threshold: Threshold = 1.0,
    empty_queries: EmptyQueries = None,
    ignore_identical_ids: IdenticalIds = False,
    max_bytes: MaxBytes = MAX_BYTES,
    form: Form = None,
    output: Output = None,
) -> int:
    """Compare models on the same tasks: difference, confidence interval, p-value.

    Tasks are matched by side and sample id, or by order without sample ids. For two models
    p_adjusted is Holm's over the metrics. Three or more models are named after their files; pairs
    and metrics are one family of tests (max-T, or Holm for directories of training runs).

    For example
    `torchrankmetrics compare a.npz b.npz -m mrr,hits@10,amri --cluster sample_id`
    `torchrankmetrics compare ours.npz theirs.npz old.npz -m mrr,hits@10 --baseline best`
    `torchrankmetrics compare new.npz old.npz -m mrr --fail-if worse`
    """
    from torchrankmetrics.inference.comparison import equivalences
    from torchrankmetrics.inference.equivalence import equivalence
    from torchrankmetrics.metrics.selection import Selection

    requested = split_list(
        ("ndcg_at_10" if runs else "mrr") if metrics is None else metrics, "--metric"
    )
    requested = _of_runs(requested) if runs else requested
    empty = empty_queries or ("zero" if runs else "skip")
    selection = Selection(relevance_threshold=relevance_threshold, empty_queries=empty)
    measures = list(selection.measures(requested).values())
    identical = ignore_identical_ids or None
    sources, load = _sources(
        files, qrels, runs, num_candidates, max_bytes, cluster, measures, identical
    )
    paths = [path for path, _ in sources]
    if len(paths) < 2:
        raise ValueError(f"two models or more must be given, got {len(paths)}")
    if len(paths) == 2:
        reject("with two models", baseline=baseline)
    else:
        reject("with three models or more", margin=margin, fail_if=fail_if)
    if fail_if is not None and (fail_if == "not-equivalent") != (margin is not None):
        raise ValueError("--fail-if not-equivalent and --margin must be given together")
    displayed = _displayed(paths)
    models: list[Any] = [
        load(path) if parts == [path] else list(map(load, parts)) for path, parts in sources
    ]
    tests: dict[str, Any] = {"confidence_level": confidence_level, "cluster": _cluster(cluster)}
    found: Any
    if len(models) > 2:
        names = [path.stem if path.suffix in _SUFFIXES else path.name for path in paths]
        names = names if len(set(names)) == len(names) else displayed
        if len(set(names)) < len(names):
            raise ValueError(f"models must be different files; got {', '.join(names)}")
        several = trm.compare(
            dict(zip(names, models, strict=True)), measures, baseline=baseline, **tests
        )
        table = several.tabular()
        found = several.rows
    else:
        if margin is None:
            pair = trm.compare(models[0], models[1], measures, **tests)
            table = pair.tabular()
            found = pair.rows
        else:
            found = [
                equivalence(models[0], models[1], measure, margin=margin, **tests)
                for measure in measures
            ]
            table = equivalences(found)
        table = replace(
            table, notes=("; ".join([*table.notes, f"a: {displayed[0]}, b: {displayed[1]}"]),)
        )
    failed = [text for row in found if fail_if and (text := _failure(row, fail_if))]
    about = {"files": displayed, "tasks": found[0].num_tasks, "confidence_level": confidence_level}
    return emit(table, form, output, "Comparison of models", failed, **about)


def _failure(row: Any, rule: Rule) -> str | None:
    """Explain why a comparison fails a rule; None if it does not."""
    from torchrankmetrics.metrics.names import as_measure

    if rule == "not-equivalent":
        return None if row.equivalent else f"a is not shown to be equivalent to b in {row.metric}"
    higher = as_measure(row.metric).higher_is_better
    if higher is None:
        raise ValueError(f"--fail-if needs metrics that have a better direction, got {row.metric}")
    alpha = 1 - row.confidence_level + 1e-12
    significant = (
        not row.low <= 0 <= row.high if row.p_adjusted is None else row.p_adjusted <= alpha
    )
    worse = significant and (row.difference < 0) == higher
    if not worse and (rule == "worse" or (significant and (row.difference > 0) == higher)):
        return None
    verdict = "significantly worse" if worse else "not significantly better"
    interval = f"{row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}]"
    return f"a is {verdict} than b in {row.metric}: a - b = {interval}"


def study(
    pattern: Annotated[str, arg("Paths of files of ranks, with {dataset}, {model} and {seed}.")],
    metrics: Annotated[str, opt("Metrics, separated by commas.", "--metric", "-m")] = "mrr,hits@10",
    view: Annotated[
        Literal["base", "normalized", "adjusted_index", "z_score"], opt("View of all metrics.")
    ] = "base",
    confidence_level: Level = 0.95,
    cluster: Cluster = "auto",
    values_only: Annotated[bool, opt("Print no intervals.", is_flag=True)] = False,
    across: Annotated[
        bool, opt("Print averages over the datasets and how often models win.", is_flag=True)
    ] = False,
    form: Form = None,
    output: Output = None,
) -> int:
    """Put models, datasets and seeds into one table, or into an HTML page with figures that `verify` checks.

    The best value of a dataset is bold; models that are not significantly different from it are
    marked. CSV and JSON have one row per cell.

    For example
    `torchrankmetrics study "runs/{dataset}/{model}/{seed}.npz" --metric mrr,hits@10 --output
    report.html` `torchrankmetrics study "runs/{model}.csv" -m amri --format latex`
    """
    from torchrankmetrics.study import RankStudy

    names = split_list(metrics, "--metric")
    runs = RankStudy.open(pattern)
    tests: dict[str, Any] = {
        "view": view,
        "confidence_level": confidence_level,
        "cluster": _cluster(cluster),
    }
    files = [str(run.source) for run in runs.runs.values()]
    if across:
        reject("with --across", values_only=values_only)
        result = runs.summary(names, **tests).tabular()
    elif form == "html":
        reject("with --format html", values_only=values_only)
        print(runs.report(output, names, **tests) or "", end="")
        return 0
    else:
        table = runs.table(names, **tests)
        result = (
            table.records()
            if form in ("csv", "json")
            else table.with_layout(intervals=not values_only).tabular()
        )
    return emit(result, form, output, files=files, confidence_level=confidence_level)


def verify(
    report: Annotated[Path, arg("HTML page that study has written.")],
    folder: Annotated[Path, arg("Directory that the paths of the page are relative to.")],
    form: Form = None,
    output: Output = None,
) -> int:
    """Compute the manifest of a study page again from its files of ranks, and print what differs.

    The displayed text of the page is not verified. The exit code is 1 if something differs.

    For example
    `torchrankmetrics verify report.html runs/`
    """
    from torchrankmetrics import study

    found = study.verify(report, folder)
    if found and form == "table" and output is None:
        print("\n".join(map(visible, found.notes)))
        return 0
    return emit(found.tabular(), form, output) or int(not found)
