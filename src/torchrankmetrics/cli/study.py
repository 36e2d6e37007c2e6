"""``study``, ``verify`` and ``audit``: tables and pages of many models, and checks of pages and evaluators."""

import os
import pkgutil
import sys
from typing import Any

from torchrankmetrics.audit import MAX_CANDIDATES, audit
from torchrankmetrics.cli.options import AuditCommand, StudyCommand, VerifyCommand
from torchrankmetrics.cli.output import busy, emit, format_of, split_list
from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.study import RankStudy, verify
from torchrankmetrics.validation import check_choice, shorten


def study(options: StudyCommand) -> int:
    """Write the table, the averages or the page of a study."""
    check_choice("--view", options.view, VIEWS[:-1])
    names, runs, form = split_list(options.metrics, "--metric"), RankStudy.open(options.pattern), format_of(options)
    level = options.confidence_level
    tests: dict[str, Any] = {"view": options.view, "confidence_level": level, "cluster": options.cluster}
    about: dict[str, Any] = {"files": [str(run.source) for run in runs.runs.values()], "confidence_level": level}
    with busy("study"):
        if options.across:
            options.require("with --across", "margin", "values_only")
            emit(options, runs.summary(names, **tests).tabular(), **about)
        elif form == "html":
            options.require("with --format html", "values_only")
            path = None if str(options.output) == "-" else options.output
            sys.stdout.write(runs.report(path, names, margin=options.margin, **tests) or "")
        else:
            table = runs.table(names, margin=options.margin, **tests)
            machine = form in ("csv", "json")
            printed = table.records() if machine else table.with_layout(intervals=not options.values_only).tabular()
            emit(options, printed, **about)
    return 0


def verify_page(options: VerifyCommand) -> int:
    """Verify a page; the code is 1 if it differs from the files."""
    with busy("verify"):
        found = verify(options.report, options.folder)
    if found and options.form is None and options.output is None:
        print("\n".join(found.notes))
    else:
        emit(options, found.tabular())
    return 0 if found else 1


def audit_evaluator(options: AuditCommand) -> int:
    """Audit an evaluator; the code is 1 if a check failed or raised an exception."""
    if ":" not in options.evaluator:
        raise ValueError(f"evaluator must be package.module:function, got {shorten(options.evaluator)}")
    if os.getcwd() not in sys.path:  # python -m adds the working directory, the console script does not
        sys.path.insert(0, os.getcwd())
    try:
        function = pkgutil.resolve_name(options.evaluator)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"evaluator {shorten(options.evaluator)} cannot be imported: {error}") from error
    most = options.max_candidates or MAX_CANDIDATES
    with busy("audit"):
        report = audit(function, ties=options.ties, pairs=options.pairs, max_candidates=most)
    columns = ("check", "status", "case", "quantity", "got", "expected", "message")
    rows: list[tuple[Cell, ...]] = [
        tuple(None if (cell := getattr(finding, column)) == "" else cell for column in columns)
        for finding in report.findings
    ]
    rule = " or ".join(report.ties) or "none or unknown"
    note = f"{len(report.failures)} of {len(rows)} checks failed; ties: {rule}"
    emit(options, Tabular.named(columns, rows, (note,), keys=2))
    return 1 if report.failures else 0
