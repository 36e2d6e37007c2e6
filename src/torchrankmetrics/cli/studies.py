"""``study``, ``verify`` and ``audit``: tables and pages of many models, and checks of pages and evaluators."""

import os
import pkgutil
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from torchrankmetrics.cli.output import Cluster, Form, Level, Output, arg, emit, format_of, opt, reject, split_list
from torchrankmetrics.rendering import Tabular
from torchrankmetrics.validation import shorten


def study(
    pattern: Annotated[str, arg("Paths of files of ranks, with {dataset}, {model} and {seed}.")],
    metrics: Annotated[str, opt("Metrics, separated by commas.", "--metric", "-m")] = "mrr,hits@10",
    view: Annotated[Literal["base", "normalized", "adjusted_index", "z_score"], opt("View of all metrics.")] = "base",
    confidence_level: Level = 0.95,
    cluster: Cluster = None,
    values_only: Annotated[bool, opt("Print no intervals.", "--values-only")] = False,
    across: Annotated[bool, opt("Print averages over the datasets and how often models win.", "--across")] = False,
    form: Form = None,
    output: Output = None,
) -> int:
    """Put models, datasets and seeds into one table, or into an HTML page with figures that `verify` checks.

    The best value of a dataset is bold; models that are not significantly different from it are marked. CSV and
    JSON have one row per cell.

    For example

    `torchrankmetrics study "runs/{dataset}/{model}/{seed}.npz" --metric mrr,hits@10 --output report.html`

    `torchrankmetrics study "runs/{model}.csv" -m amri --format latex`
    """
    from torchrankmetrics.study import RankStudy

    kind, names, runs = format_of(form, output), split_list(metrics, "--metric"), RankStudy.open(pattern)
    tests: dict[str, Any] = {"view": view, "confidence_level": confidence_level, "cluster": cluster}
    files = [str(run.source) for run in runs.runs.values()]
    if kind == "html" and not across:
        reject("with --format html", values_only=values_only)
        print(runs.report(None if str(output) == "-" else output, names, **tests) or "", end="")
        return 0
    if across:
        reject("with --across", values_only=values_only)
        result = runs.summary(names, **tests).tabular()
    else:
        table = runs.table(names, **tests)
        result = table.records() if kind in ("csv", "json") else table.with_layout(intervals=not values_only).tabular()
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
    if found and form is None and output is None:
        print("\n".join(found.notes))
        return 0
    return emit(found.tabular(), form, output) or int(not found)


def audit(
    evaluator: Annotated[str, arg("package.module:function of (scores, target, exclude).")],
    ties: Annotated[str | None, opt("Required tie rule: optimistic, realistic, pessimistic or expected.")] = None,
    pairs: Annotated[bool, opt("Pass exclude as (2, P) pairs instead of a mask.", "--pairs")] = False,
    max_candidates: Annotated[int | None, opt("Skip cases with more candidates than this.")] = None,
    form: Form = None,
    output: Output = None,
) -> int:
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
    report = audit(function, ties=ties, pairs=pairs, max_candidates=max_candidates or MAX_CANDIDATES)
    columns = ("check", "status", "case", "quantity", "got", "expected", "message")
    rows = [
        [None if (cell := getattr(finding, column)) == "" else cell for column in columns]
        for finding in report.findings
    ]
    rule = " or ".join(report.ties) or "none or unknown"
    note = f"{len(report.failures)} of {len(rows)} checks failed; ties: {rule}"
    return emit(Tabular.named(columns, rows, (note,), keys=2), form, output) or int(bool(report.failures))
