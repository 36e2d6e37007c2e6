"""``study``: models, data sets and seeds in one table or on one page; ``verify``: such a page against the ranks."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from torchrankmetrics.checks import check_choice
from torchrankmetrics.cli.options import ClusterOption, MetricsOption
from torchrankmetrics.cli.output import Format, FormatOption, OutputOption, busy, emit, given, refuse, split_list

DIFFERS = 1
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
    tasks: Annotated[
        int, typer.Option("--tasks", help="On the page, how many of the worst and the best tasks of a data set.")
    ] = 0,
    triples: Annotated[
        str | None,
        typer.Option("--triples", help="Files of the test triples, with {dataset}: they name the tasks of --tasks."),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Of the page.")] = "Rank study",
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Put models, data sets and seeds into one table; as HTML into a page with figures that `verify` checks.

    The best of a data set is bold, what cannot be told from it is marked. CSV and JSON have a row per cell.

    For example

    `torchrankmetrics study "runs/{dataset}/{model}/{seed}.npz" --metric mrr,hits@10 --output report.html`

    `torchrankmetrics study "runs/{dataset}.{model}.npz" -m amri --format latex`
    """
    from torchrankmetrics.study import RankStudy
    from torchrankmetrics.theory.views import VIEWS

    check_choice("--view", view, VIEWS[:-1])
    check_choice("--rows", rows, _ROWS)
    names = split_list(metrics, "--metric")
    study = RankStudy.open(pattern)
    options: dict[str, Any] = {"view": view, "confidence_level": confidence_level, "cluster": cluster}
    to_file = output is not None and str(output) != "-"
    suffix = output.suffix.lower() if output is not None else ""
    with busy("study"):
        if across:
            refuse(
                given(context, "margin", "rows", "values_only", "tasks", "triples", "title"), "--across writes averages"
            )
            emit(study.summary(names, **options).tabular(), form, output)
        elif form is Format.html or (form is None and suffix == ".html"):
            refuse(given(context, "rows", "values_only"), "they are of tables, and html is a page")
            try:
                named: dict[str, Any] = {"title": title, "tasks": tasks, "triples": triples}
                page = study.report(output if to_file else None, names, margin=margin, **named, **options)
            except ImportError as error:
                raise ValueError(str(error)) from error
            sys.stdout.write(page or "")
        else:
            refuse(given(context, "tasks", "triples", "title"), "it is of a page: add --format html")
            table = study.table(names, margin=margin, **options)
            programs = form in (Format.csv, Format.json) or (form is None and suffix in (".csv", ".json"))
            shown = table.shown(rows="models" if rows == "models" else "datasets", intervals=not values_only)
            emit(table.records() if programs else shown.tabular(), form, output)


def verify_command(
    report: Annotated[Path, typer.Argument(help="A page that study has written.")],
    folder: Annotated[Path, typer.Argument(help="The folder of its tables: where its pattern began.")],
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Check a page of a study against the ranks: find its tables, compute every number again, say which differ.

    The exit code is 1 if something differs.

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
    raise typer.Exit(DIFFERS)
