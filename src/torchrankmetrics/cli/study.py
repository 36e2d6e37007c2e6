"""``study``, ``verify`` and ``audit``: tables and pages of many models, and checks of pages and evaluators."""

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from torchrankmetrics.cli.output import (
    ClusterOption,
    Format,
    FormatOption,
    MetricsOption,
    OutputOption,
    busy,
    emit,
    given,
    refuse,
    split_list,
)
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.validation import check_choice, shown

FAILED = 1  # exit code
_ROWS = ("models", "datasets")


def study_command(
    context: typer.Context,
    pattern: Annotated[
        str,
        typer.Argument(help="Files of ranks, with {dataset}, {model} and {seed} in their paths.", show_default=False),
    ],
    metrics: MetricsOption = "mrr,hits@10",
    view: Annotated[str, typer.Option("--view", help="base, normalized, adjusted_index or z_score.")] = "base",
    confidence_level: Annotated[
        float, typer.Option("--confidence-level", help="Of the intervals, and of the family of the marks.")
    ] = 0.95,
    cluster: ClusterOption = None,
    margin: Annotated[
        float | None,
        typer.Option("--margin", help="Mark models that no other is better than by so much, in the metrics' units."),
    ] = None,
    rows: Annotated[str, typer.Option("--rows", help="What is a row: models or datasets.")] = "models",
    values_only: Annotated[bool, typer.Option("--values-only", help="Leave out the intervals.")] = False,
    across: Annotated[
        bool,
        typer.Option("--across", help="Averages over the data sets, which count once each, and how often models win."),
    ] = False,
    title: Annotated[str, typer.Option("--title", help="Of the page.")] = "Rank study",
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Put models, data sets and seeds into one table; as HTML into a page with figures that `verify` checks.

    The best of a dataset is bold; models that are not significantly different from it are marked. CSV and
    JSON have a row per cell.

    For example

    `torchrankmetrics study "runs/{dataset}/{model}/{seed}.npz" --metric mrr,hits@10 --output report.html`

    `torchrankmetrics study "runs/{dataset}.{model}.npz" -m amri --format latex`
    """
    from torchrankmetrics.metrics.views import VIEWS
    from torchrankmetrics.study import RankStudy

    check_choice("--view", view, VIEWS[:-1])
    check_choice("--rows", rows, _ROWS)
    names = split_list(metrics, "--metric")
    study = RankStudy.open(pattern)
    options: dict[str, Any] = {"view": view, "confidence_level": confidence_level, "cluster": cluster}
    to_file = output is not None and str(output) != "-"
    suffix = output.suffix.lower() if output is not None else ""
    with busy("study"):
        if across:
            refuse(given(context, "margin", "rows", "values_only", "title"), "--across writes averages")
            emit(study.summary(names, **options).tabular(), form, output)
        elif form is Format.html or (form is None and suffix == ".html"):
            refuse(given(context, "rows", "values_only"), "they are of tables, and html is a page")
            try:
                named: dict[str, Any] = {"title": title}
                page = study.report(output if to_file else None, names, margin=margin, **named, **options)
            except ImportError as error:
                raise ValueError(str(error)) from error
            sys.stdout.write(page or "")
        else:
            refuse(given(context, "title"), "it is of a page: add --format html")
            table = study.table(names, margin=margin, **options)
            programs = form in (Format.csv, Format.json) or (form is None and suffix in (".csv", ".json"))
            shown = table.shown(rows="models" if rows == "models" else "datasets", intervals=not values_only)
            emit(table.records() if programs else shown.tabular(), form, output)


def verify_command(
    report: Annotated[Path, typer.Argument(help="Page that study has written.")],
    folder: Annotated[Path, typer.Argument(help="Directory below which the files of ranks are.")],
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Compute the manifest of a study page again from its files of ranks, and print what differs.

    The displayed text of the page is not verified. The exit code is 1 if something differs.

    For example

    `torchrankmetrics verify report.html runs/`
    """
    from torchrankmetrics.study import verify

    with busy("verify"):
        found = verify(report, folder)
    if found:
        for note in found.notes:
            typer.echo(note)
        return
    emit(found.tabular(), form, output)
    raise typer.Exit(FAILED)


def audit_command(
    evaluator: Annotated[
        str, typer.Argument(help="package.module:function, of (scores, target, exclude) -> ranks or metrics.")
    ],
    ties: Annotated[
        str | None, typer.Option("--ties", help="Required tie rule: optimistic, realistic, pessimistic or expected.")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Pass exclude as (2, P) pairs of (row, column) instead of a mask.")
    ] = False,
    max_candidates: Annotated[
        int | None, typer.Option("--max-candidates", help="Skip cases with more candidates than this.")
    ] = None,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Check an evaluator on small cases with known results.

    The function is imported from the working directory or an installed package. The command prints one line per check
    and exits with 1 if a check failed or raised an exception.

    For example

    `torchrankmetrics audit mypackage.evaluation:ranks --ties realistic`
    """
    from torchrankmetrics.audit import MAX_CANDIDATES, audit

    function = _load(evaluator)
    with busy("audit"):
        most = MAX_CANDIDATES if max_candidates is None else max_candidates
        report = audit(function, ties=ties, pairs=pairs, max_candidates=most)
    columns = ("check", "status", "case", "quantity", "got", "expected", "message")
    rows: list[tuple[Cell, ...]] = [
        tuple(None if (cell := getattr(finding, column)) == "" else cell for column in columns)
        for finding in report.findings
    ]
    rule = " or ".join(report.ties) or "none or unknown"
    note = f"{len(report.failures)} of {len(rows)} checks failed; ties: {rule}"
    emit(Tabular.named(columns, rows, (note,), keys=2), form, output)
    if report.failures:
        raise typer.Exit(FAILED)


def _load(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(f"evaluator must be package.module:function, got {shown(name)}")
    folder = os.getcwd()
    if folder not in sys.path:  # the console script, unlike python -m, does not look there
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"evaluator {shown(name)} cannot be imported: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(
                f"evaluator {shown(name)} is not there: no {shown(part)} in {getattr(found, '__name__', module)}"
            )
        found = getattr(found, part)
    return found
