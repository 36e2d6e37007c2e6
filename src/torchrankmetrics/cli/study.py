"""``study`` and ``verify``: many models, datasets and seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from torchrankmetrics.cli.output import (
    Cluster,
    Digits,
    Form,
    Level,
    Output,
    arg,
    argument_of_cluster,
    emit,
    opt,
    reject,
    split_lists,
    with_digits,
)
from torchrankmetrics.validation import visible


def study(
    pattern: Annotated[str, arg("Paths of files of ranks, with {dataset}, {model} and {seed}.")],
    metrics: Annotated[
        Sequence[str],
        opt("Metrics; default: mrr, hits@10.", "--metric", "-m", multiple=True),
    ] = (),
    view: Annotated[
        Literal["base", "normalized", "adjusted_index", "z_score"], opt("View of all metrics.")
    ] = "base",
    confidence_level: Level = 0.95,
    cluster: Cluster = "auto",
    values_only: Annotated[bool, opt("Print no intervals.", is_flag=True)] = False,
    across: Annotated[
        bool, opt("Print averages over the datasets and how often models win.", is_flag=True)
    ] = False,
    digits: Digits = None,
    form: Form = None,
    output: Output = None,
) -> int:
    """Put models, datasets and seeds into one table, or into an HTML page that `verify` checks.

    The best value of a dataset is bold; models that are not significantly different from it are
    marked. CSV and JSON have one row per cell.

    For example
    `torchrankmetrics study "runs/{dataset}/{model}/{seed}.npz" --metric mrr,hits@10 --output
    report.html` `torchrankmetrics study "runs/{model}.csv" -m amri --format latex`
    """
    from torchrankmetrics.study import RankStudy

    names = split_lists(metrics or ["mrr,hits@10"], "--metric")
    runs = RankStudy.open(pattern)
    tests: dict[str, Any] = {
        "view": view,
        "confidence_level": confidence_level,
        "cluster": argument_of_cluster(cluster),
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
        is_complete = form in ("csv", "json")
        printed = table.with_layout(intervals=not values_only)
        result = table.records() if is_complete else printed.tabular()
    about: dict[str, Any] = {
        "files": files,
        "confidence_level": confidence_level,
        "cluster": cluster,
    }
    return emit(with_digits(result, digits), form, output, **about)


def verify(
    report: Annotated[Path, arg("HTML page that study has written.")],
    folder: Annotated[Path, arg("Directory that the paths of the page are relative to.")],
    form: Form = None,
    output: Output = None,
) -> int:
    """Check that the numbers of a study page follow from its rank files.

    The exit code is 1 if not; what differs is printed. The displayed text of the page is not
    checked.

    For example
    `torchrankmetrics verify report.html runs/`
    """
    from torchrankmetrics import study

    found = study.verify(report, folder)
    if found and form == "table" and output is None:
        print("\n".join(map(visible, found.notes)))
        return 0
    return emit(found.tabular(), form, output) or int(not found)
