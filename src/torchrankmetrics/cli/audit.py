"""``audit``: which laws an evaluator keeps."""

import importlib
import os
import sys
from typing import Annotated, Any

import typer

from torchrankmetrics.cli.output import FormatOption, OutputOption, busy, emit
from torchrankmetrics.rendering import Cell, Tabular

BROKEN = 1


def audit_command(
    evaluator: Annotated[
        str, typer.Argument(help="package.module:function, of (scores, target, exclude) -> ranks or metrics.")
    ],
    ties: Annotated[
        str | None, typer.Option("--ties", help="Demand optimistic, realistic, pessimistic or expected.")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="It takes exclude as (2, P) pairs of (row, column), not as a mask.")
    ] = False,
    max_candidates: Annotated[
        int | None, typer.Option("--max-candidates", help="Leave out cases with more; without it the largest.")
    ] = None,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Tell which laws an evaluator keeps and which it breaks.

    It is asked small cases with known answers; what is wrong is told with both numbers. The function is imported from
    the working folder or from what is installed, and called. The exit code is 1 if a law failed or raised an error.

    For example

    `torchrankmetrics audit mypackage.evaluation:ranks --ties realistic`
    """
    from torchrankmetrics.audit import audit
    from torchrankmetrics.audit.auditor import MAX_CANDIDATES

    function = _load(evaluator)
    with busy("audit"):
        most = MAX_CANDIDATES if max_candidates is None else max_candidates
        report = audit(function, ties=ties, pairs=pairs, max_candidates=most)
    columns = ("law", "status", "case", "quantity", "got", "expected", "message")
    rows: list[tuple[Cell, ...]] = [
        tuple(None if (cell := getattr(finding, column)) == "" else cell for column in columns)
        for finding in report.findings
    ]
    rule = " or ".join(report.ties) or "none, or not known"
    note = f"{len(report.failures)} of {len(rows)} laws failed; ties: {rule}"
    emit(Tabular.named(columns, rows, (note,), keys=2), form, output)
    if report.failures:
        raise typer.Exit(BROKEN)


def _load(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(f"evaluator must be package.module:function, got {name!r}")
    folder = os.getcwd()
    if folder not in sys.path:  # the console script, unlike python -m, does not look there
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"evaluator {name!r} cannot be imported: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"evaluator {name!r} is not there: no {part!r} in {getattr(found, '__name__', module)}")
        found = getattr(found, part)
    return found
