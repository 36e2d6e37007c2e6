"""``study``, ``verify`` and ``audit``: tables and pages of many models, and checks of pages and evaluators."""

import os
import pkgutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from torchrankmetrics.cli import common
from torchrankmetrics.cli.common import opt
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.validation import check_choice, shorten


def study_command(
    context: typer.Context,
    pattern: Annotated[str, typer.Argument(help="Paths of files of ranks, with {dataset}, {model} and {seed}.")],
    metrics: common.MetricsOption = "mrr,hits@10",
    view: Annotated[str, opt("View: base, normalized, adjusted_index or z_score.")] = "base",
    confidence_level: common.LevelOption = 0.95,
    cluster: common.ClusterOption = None,
    margin: Annotated[float | None, opt("Mark models that no other model exceeds by this margin.")] = None,
    values_only: Annotated[bool, opt("Print no intervals.", "--values-only")] = False,
    across: Annotated[bool, opt("Print averages over the datasets and how often models win.", "--across")] = False,
    form: common.FormatOption = None,
    output: common.OutputOption = None,
) -> None:
    """Put models, datasets and seeds into one table, or into an HTML page with figures that `verify` checks.

    The best value of a dataset is bold; models that are not significantly different from it are marked. CSV and
    JSON have one row per cell.

    For example

    `torchrankmetrics study "runs/{dataset}/{model}/{seed}.npz" --metric mrr,hits@10 --output report.html`

    `torchrankmetrics study "runs/{model}.csv" -m amri --format latex`
    """
    from torchrankmetrics.metrics.views import VIEWS
    from torchrankmetrics.study import RankStudy

    check_choice("--view", view, VIEWS[:-1])
    names = common.split_list(metrics, "--metric")
    study = RankStudy.open(pattern)
    options: dict[str, Any] = {"view": view, "confidence_level": confidence_level, "cluster": cluster}
    written = common.format_of(form, output)
    about: dict[str, Any] = {"files": [str(run.source) for run in study.runs.values()]}
    about["confidence_level"] = confidence_level
    with common.busy("study"):
        if across:
            common.require(context, "with --across", "margin", "values_only")
            common.emit(study.summary(names, **options).tabular(), form, output, **about)
        elif written is common.Format.html:
            common.require(context, "with --format html", "values_only")
            target = None if str(output) == "-" else output
            sys.stdout.write(study.report(target, names, margin=margin, **options) or "")
        else:
            table = study.table(names, margin=margin, **options)
            machine = written in (common.Format.csv, common.Format.json)
            printed = table.records() if machine else table.with_layout(intervals=not values_only).tabular()
            common.emit(printed, form, output, **about)


def verify_command(
    report: Annotated[Path, typer.Argument(help="HTML page that study has written.")],
    folder: Annotated[Path, typer.Argument(help="Directory that the paths of the page are relative to.")],
    form: common.FormatOption = None,
    output: common.OutputOption = None,
) -> None:
    """Compute the manifest of a study page again from its files of ranks, and print what differs.

    The displayed text of the page is not verified. The exit code is 1 if something differs.

    For example

    `torchrankmetrics verify report.html runs/`
    """
    from torchrankmetrics.study import verify

    with common.busy("verify"):
        found = verify(report, folder)
    if found and form is None and output is None:
        typer.echo("\n".join(found.notes))
    else:
        common.emit(found.tabular(), form, output)
    raise typer.Exit(0 if found else 1)


def audit_command(
    evaluator: Annotated[str, typer.Argument(help="package.module:function of (scores, target, exclude).")],
    ties: Annotated[str | None, opt("Required tie rule: optimistic, realistic, pessimistic or expected.")] = None,
    pairs: Annotated[bool, opt("Pass exclude as (2, P) pairs instead of a mask.", "--pairs")] = False,
    max_candidates: Annotated[int | None, opt("Skip cases with more candidates than this.")] = None,
    form: common.FormatOption = None,
    output: common.OutputOption = None,
) -> None:
    """Check an evaluator on small cases with known results.

    The function is imported from the working directory or an installed package. The command prints one line per check
    and exits with 1 if a check failed or raised an exception.

    For example

    `torchrankmetrics audit mypackage.evaluation:ranks --ties realistic`
    """
    from torchrankmetrics.audit import MAX_CANDIDATES, audit

    if ":" not in evaluator:
        raise ValueError(f"evaluator must be package.module:function, got {shorten(evaluator)}")
    if os.getcwd() not in sys.path:  # python -m adds the working directory, the console script does not
        sys.path.insert(0, os.getcwd())
    try:
        function = pkgutil.resolve_name(evaluator)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"evaluator {shorten(evaluator)} cannot be imported: {error}") from error
    with common.busy("audit"):
        report = audit(function, ties=ties, pairs=pairs, max_candidates=max_candidates or MAX_CANDIDATES)
    columns = ("check", "status", "case", "quantity", "got", "expected", "message")
    rows: list[tuple[Cell, ...]] = [
        tuple(None if (cell := getattr(finding, column)) == "" else cell for column in columns)
        for finding in report.findings
    ]
    rule = " or ".join(report.ties) or "none or unknown"
    note = f"{len(report.failures)} of {len(rows)} checks failed; ties: {rule}"
    common.emit(Tabular.named(columns, rows, (note,), keys=2), form, output)
    raise typer.Exit(1 if report.failures else 0)
