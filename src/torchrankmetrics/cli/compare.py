"""``compare``: models on the same ranking tasks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torchrankmetrics as trm
from torchrankmetrics.cli.options import (
    Documents,
    EmptyQueriesOption,
    IdenticalIds,
    MaxBytes,
    Metrics,
    Qrels,
    Runs,
    Threshold,
)
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
from torchrankmetrics.cli.sources import SUFFIXES, RunOptions, Sources, displayed, open_sources
from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.rendering import Tabular

Rule = Literal["worse", "not-better", "not-equivalent"]


def compare(
    files: Annotated[
        list[Path],
        arg(
            "Models: files of ranks, or directories with a file per run; or qrels, runs.", nargs=-1
        ),
    ] = [],  # noqa: B006
    metrics: Metrics = (),
    confidence_level: Level = 0.95,
    cluster: Cluster = "auto",
    baseline: Annotated[
        str | None, opt("Model to compare with the others: a name, or best.")
    ] = None,
    margin: Annotated[
        float | None, opt("Test whether two models are equal within this margin.")
    ] = None,
    fail_if: Annotated[
        Rule | None,
        opt(
            "For CI: exit with code 1 if the first model is significantly worse than the second "
            "(worse), not significantly better (not-better), or not equal within --margin "
            "(not-equivalent)."
        ),
    ] = None,
    qrels: Qrels = None,
    runs: Runs = (),
    num_candidates: Documents = None,
    relevance_threshold: Threshold = 1.0,
    empty_queries: EmptyQueriesOption = None,
    ignore_identical_ids: IdenticalIds = False,
    max_bytes: MaxBytes = MAX_BYTES,
    digits: Digits = None,
    form: Form = None,
    output: Output = None,
) -> int:
    """Compare models on the same tasks: difference, confidence interval, p-value.

    Tasks are matched by side and sample id, or by order without sample ids. For two models
    p_adjusted is Holm's over the metrics. Three or more models are named after their files; pairs
    and metrics are one family of tests (max-T, or Holm for directories of training runs).

    For example
    `torchrankmetrics compare a.npz b.npz -m mrr,hits@10,amri`
    `torchrankmetrics compare ours.npz theirs.npz old.npz -m mrr,hits@10 --baseline best`
    `torchrankmetrics compare new.npz old.npz -m mrr --fail-if worse`
    `torchrankmetrics compare qrels.tsv bm25.run dense.run -m ndcg@10`
    """
    options = RunOptions(num_candidates, relevance_threshold, empty_queries, ignore_identical_ids)
    sources = open_sources(files, qrels, list(runs), options, max_bytes, cluster)
    _check_options(len(sources.paths), baseline, margin, fail_if)
    measures = _measures(sources, options, metrics)
    models = [_load(sources, i, measures) for i in range(len(sources.paths))]
    tests: dict[str, Any] = {
        "confidence_level": confidence_level,
        "cluster": argument_of_cluster(cluster),
    }
    if len(models) > 2:
        table, rows = _several(sources.paths, models, measures, baseline, tests)
    else:
        table, rows = _pair(sources.paths, models, measures, margin, tests)
    about = {
        "files": displayed(sources.paths),
        "tasks": rows[0].num_tasks,
        "confidence_level": confidence_level,
        "cluster": cluster,
        "method": getattr(rows[0], "test", None),
    }
    failed = _failures(rows, fail_if)
    return emit(with_digits(table, digits), form, output, "Comparison of models", failed, **about)


def _check_options(
    num_models: int, baseline: str | None, margin: float | None, fail_if: Rule | None
) -> None:
    if num_models < 2:
        raise ValueError(f"two models or more must be given, got {num_models}")
    if num_models == 2:
        reject("with two models", baseline=baseline)
    else:
        reject("with three models or more", margin=margin, fail_if=fail_if)
    if fail_if is not None and (fail_if == "not-equivalent") != (margin is not None):
        raise ValueError("--fail-if not-equivalent and --margin must be given together")


def _measures(sources: Sources, options: RunOptions, metrics: Sequence[str]) -> list[Any]:
    from torchrankmetrics.metrics.selection import Selection

    names = split_lists(metrics, "--metric") if metrics else [sources.default_metric]
    selection = Selection(
        relevance_threshold=options.relevance_threshold, empty_queries=sources.empty_queries
    )
    return list(selection.measures(sources.read_names(names)).values())


def _load(sources: Sources, i: int, measures: list[Any]) -> Any:
    """The ranks of model i: a table, or a list with one table for each training run."""
    tables = [sources.load(part, measures) for part in sources.parts[i]]
    return tables[0] if sources.parts[i] == [sources.paths[i]] else tables


def _names(paths: list[Path]) -> list[str]:
    """Names of three or more models: those of their files, or their paths if names repeat."""
    names = list(map(_name, paths))
    if len(set(names)) < len(names):
        names = displayed(paths)
    if len(set(names)) < len(names):
        raise ValueError(f"models must be different files; got {', '.join(names)}")
    return names


def _name(path: Path) -> str:
    return path.stem if path.suffix in SUFFIXES else path.name


def _several(
    paths: list[Path],
    models: list[Any],
    measures: list[Any],
    baseline: str | None,
    tests: dict[str, Any],
) -> tuple[Tabular, Sequence[Any]]:
    """The table of a comparison of three or more models, and its rows."""
    named = dict(zip(_names(paths), models, strict=True))
    found: Any = trm.compare(named, measures, baseline=baseline, **tests)
    return found.tabular(), found.rows


def _pair(
    paths: list[Path],
    models: list[Any],
    measures: list[Any],
    margin: float | None,
    tests: dict[str, Any],
) -> tuple[Tabular, Sequence[Any]]:
    """The table of a comparison of two models, and its rows."""
    from torchrankmetrics.inference.comparison import equivalences
    from torchrankmetrics.inference.equivalence import equivalence

    a, b = models
    rows: Sequence[Any]
    if margin is None:
        pair = trm.compare(a, b, measures, **tests)
        table = pair.tabular()
        rows = pair.rows
    else:
        rows = [equivalence(a, b, one, margin=margin, **tests) for one in measures]
        table = equivalences(rows)
    name_a, name_b = displayed(paths)
    notes = [*table.notes, f"a: {name_a}, b: {name_b}"]
    return replace(table, notes=("; ".join(notes),)), rows


def _failures(rows: Sequence[Any], rule: Rule | None) -> list[str]:
    """Explain which comparisons fail a rule."""
    if rule is None:
        return []
    texts = [_failure(row, rule) for row in rows]
    return [text for text in texts if text is not None]


def _failure(row: Any, rule: Rule) -> str | None:
    """Explain why a comparison fails a rule; None if it does not."""
    from torchrankmetrics.metrics.names import as_measure

    if rule == "not-equivalent":
        return None if row.equivalent else f"a is not shown to be equivalent to b in {row.metric}"
    higher = as_measure(row.metric).higher_is_better
    if higher is None:
        raise ValueError(f"--fail-if needs metrics that have a better direction, got {row.metric}")
    is_better = (row.difference > 0) == higher
    is_worse = (row.difference < 0) == higher
    if _is_significant(row) and is_worse:
        verdict = "significantly worse"
    elif rule == "worse" or (_is_significant(row) and is_better):
        return None
    else:
        verdict = "not significantly better"
    interval = f"{row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}]"
    return f"a is {verdict} than b in {row.metric}: a - b = {interval}"


def _is_significant(row: Any) -> bool:
    if row.p_adjusted is None:
        return not row.low <= 0 <= row.high
    return bool(row.p_adjusted <= 1 - row.confidence_level + 1e-12)
