"""Arguments of comparisons: ranks or values of models, aligned on the same tasks or queries."""

import math
import os
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from torchrankmetrics.definitions.protocol import ValueDefinition
from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.inference.clusters import Cluster, Clusters, canonical_clusters, clusters_of
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import as_measure
from torchrankmetrics.ranking.arrays import Integers, as_ids, as_tensor
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.blocks import has_repeats
from torchrankmetrics.table.columns import (
    ABSENT,
    SIDES_BY_CODE,
    Columns,
    Rows,
    canonical_rows,
    combined,
    gains,
    is_empty_query,
    weights,
)
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import is_int, one_number, shorten, truncate

_SHOWN = 3
_ROUNDING = (
    1e-6  # values of one query this close, relative to the larger, are equal: float32 has 6e-8
)


@runtime_checkable
class Collected(Protocol):
    """A ``RankCollection``, without a dependence on its class."""

    storage: str
    measures: Mapping[str, Measure]

    def table(self) -> RankTable:
        """All rows of all processes, sorted, distinct and counted."""

    def local_table(self) -> RankTable:
        """Rows of this process in input order, without synchronization."""


@runtime_checkable
class HasArray(Protocol):
    """A tensor, an array, a pandas Series or a data frame."""

    def __array__(self) -> npt.NDArray[Any]: ...


Evaluation = Ranks | RankTable | Collected
Values = Mapping[Any, float]
"""Values of a metric by query."""


def is_values(given: object) -> TypeGuard[Values]:
    """Whether this is a mapping of numbers."""
    return (
        isinstance(given, Mapping)
        and len(given) > 0
        and one_number(next(iter(given.values()))) is not None
    )


def is_values_by_metric(given: object) -> TypeGuard[Mapping[Any, Mapping[str, float]]]:
    """Whether this is a mapping of query -> {metric: value}."""
    return isinstance(given, Mapping) and len(given) > 0 and is_values(next(iter(given.values())))


def values_of_metric(given: Mapping[Any, Mapping[str, float]], metric: object, name: str) -> Values:
    """Return the values of one metric by query; a name of the package finds its canonical key."""
    keys = list(next(iter(given.values())))
    known = known_measure(metric) if isinstance(metric, str) else None
    key = metric if known is None or metric in keys else known.key
    found = {query: values[str(key)] for query, values in given.items() if key in values}
    if not found:
        raise ValueError(
            f"{name} must be a dict of query -> {{metric: value}} with the metric {shorten(key)}; "
            f"got {truncate(', '.join(map(str, keys)))}. Or pass one value per query, {{query: "
            "value}; of a run rank_run(qrels, run) of integrations.trec"
        )
    if len(found) < len(given):
        lacking = next(query for query in given if query not in found)
        raise ValueError(f"{name} has no value of {shorten(key)} for query {shorten(lacking)}")
    return found


def is_list_of_ranks(given: object) -> bool:
    """Whether this is a list of integers, the ranks of one model."""
    return isinstance(given, list | tuple) and len(given) > 0 and is_int(given[0])


def as_evaluation(given: object, name: str, instead: str = "") -> Evaluation:
    """Return ranks as ``Ranks`` (arrays, without numbers of candidates) or ``RankTable``."""
    if isinstance(given, HasArray) and hasattr(given, "columns"):
        return RankTable.from_pandas(cast("Any", given))
    if isinstance(given, HasArray) or is_list_of_ranks(given):
        ranks = as_tensor(cast("Any", given), name)
        if ranks.is_floating_point():
            raise TypeError(
                f"{name} must be integers, got {ranks.dtype}; for ties pass Ranks(optimistic, "
                "pessimistic). For values of queries pass {query: value}, such as series.to_dict() "
                "of pandas"
            )
        return Ranks(ranks)
    check_evaluation(given, name, instead)
    return cast("Evaluation", given)


def check_evaluation(evaluation: object, name: str, instead: str = "") -> None:
    """Raise a TypeError unless an argument contains ranks; ``instead``: further allowed types."""
    if not isinstance(evaluation, Ranks | RankTable | Collected):
        is_pykeen = hasattr(getattr(evaluation, "metric_results", evaluation), "table")
        remedy = (
            "result.metric_results.table"
            if is_pykeen
            else "ranks as Ranks(ranks, None, num_candidates)"
        )
        if isinstance(evaluation, str | os.PathLike):
            path = shorten(os.fspath(evaluation))
            raise TypeError(
                f"{name} must be ranks, got a path: pass RankTable.load({path}), or if it is "
                f"a run rank_run(qrels, {path}) of integrations.trec"
            )
        if one_number(evaluation) is not None:
            raise TypeError(
                f"{name} must be ranks of tasks, or one value per query as {{query: value}}, got "
                f"{shorten(evaluation)}. Two averages cannot be compared"
            )
        if isinstance(evaluation, Mapping):
            remedy = (
                "one value per query, {query: value}; of a run rank_run(qrels, run) of "
                "integrations.trec"
            )
        raise TypeError(
            f"{name} must be a RankTable, a RankCollection, Ranks or an array of ranks{instead}, "
            f"got {type(evaluation).__name__}; pass {remedy}"
        )


def check_complete(table: RankTable, name: object) -> None:
    """Raise a ValueError for a table without tasks, or of a sequential evaluation."""
    if not table.num_tasks:
        raise ValueError(f"{name} contains no ranking tasks")
    if table.is_partial:
        raise ValueError(f"{name} is the sample of a sequential evaluation: rank all tasks")


def as_table(evaluation: Evaluation) -> RankTable:
    """Return all ranks of an evaluation; a collection is synchronized."""
    if isinstance(evaluation, Ranks):
        return RankTable.from_ranks(evaluation)
    return evaluation if isinstance(evaluation, RankTable) else evaluation.table()


def _have_ids(runs: Sequence[Rows], names: Sequence[str]) -> bool:
    """Whether the tasks of all runs have sample ids; ValueError if those of some have."""
    without = [Columns(rows).sample_id == ABSENT for rows in runs]
    if all(absent.all() for absent in without):
        return False
    for name, absent in zip(names, without, strict=True):
        if absent.any():
            raise ValueError(
                f"{name} has tasks without a sample_id, others have them: pass sample_id= to "
                "every update of both (to a file, a column sample_id)"
            )
    return True


def _check_order(run: Evaluation, rows: Rows, num_tasks: int, name: str, first: str) -> None:
    """Check that rows without sample ids are as many as in the first run, and not reordered."""
    if not _has_order(run, rows):
        raise ValueError(
            f"{name} has no sample ids and its rows are sorted or merged, as table(), "
            "compact() and storage='counts' return them: their order may not be that of the "
            "tasks. Pass sample_id= to every update (to a file, a column sample_id), or "
            "compare Ranks or the collections"
        )
    if len(rows) != num_tasks:
        raise ValueError(
            f"{name} has {len(rows)} tasks, {first} has {num_tasks}; without sample "
            "ids tasks are aligned by order: pass sample_id= to every update (to a file, a "
            "column sample_id), or ranks of the same tasks in the same order"
        )


def paired_rows(
    runs: Sequence[Evaluation], names: Sequence[str], cluster: Cluster | None = None
) -> tuple[list[Rows], Clusters | None]:
    """Rows of every run in one order of tasks, by (side, sample id) or as given; and clusters.

    Behind the tasks are the queries without a relevant item.
    """
    given = []
    for run, name in zip(runs, names, strict=True):
        table = as_table(run.local_table() if isinstance(run, Collected) else run)
        check_complete(table, name)
        given.append(table.rows.cpu().numpy())
    ranked = [rows[~is_empty_query(rows)] for rows in given]
    by_id = _have_ids(ranked, names)
    # an analysis warns of NaN scores and of repeats that differ, and raises errors that an
    # accelerator has flagged
    analyses = [Analysis([torch.from_numpy(rows)]) for rows in given]
    ordered = ranked
    if by_id:
        ordered = [one.table_rows for one in analyses]
    for run, rows, name in zip(runs, ordered, names, strict=True):
        if by_id:
            _check_same_ids(ordered[0], rows, names[0], name)
        else:
            _check_order(run, rows, len(ordered[0]), name, names[0])
            _check_same_names(ordered[0], rows, names[0], name)
        check_same_tasks(ordered[0], rows, names[0], name)
    if not isinstance(cluster, str | None):
        if not by_id:
            cluster = _of_tasks(cluster, given[0])
        elif not isinstance(runs[0], Collected):
            cluster = canonical_clusters(cluster, given[0], names[0])
    # queries without a relevant item come last
    ordered = [_with_empty(rows, one.empty) for rows, one in zip(ordered, analyses, strict=True)]
    return ordered, clusters_of(cluster, ordered, names[0])


def _with_empty(rows: Rows, empty: Rows) -> Rows:
    return np.concatenate([rows, empty]) if len(empty) else rows


def _of_tasks(cluster: Integers, rows: Rows) -> Rows:
    """Leave out the clusters of queries without a relevant item, if there is one for each row."""
    is_empty = is_empty_query(rows)
    keys = as_ids(cluster, "cluster").cpu().numpy()
    return keys[~is_empty] if len(keys) == len(rows) else keys


def _has_order(run: Evaluation, rows: Rows) -> bool:
    """Whether rows without sample ids are in input order, which compact() and table() lose."""
    if (
        isinstance(run, RankTable)
        and len(rows) > 1
        and np.array_equal(canonical_rows(rows)[0], rows)
    ):
        return False
    return not (isinstance(run, Collected) and run.storage == "counts") and bool(
        (Columns(rows).count == 1).all()
    )


def _check_same_ids(a: Rows, b: Rows, name_a: str, name_b: str) -> None:
    ids = [np.stack([Columns(rows).side, Columns(rows).sample_id], 1) for rows in (a, b)]
    if not np.array_equal(ids[0], ids[1]):
        of_a, of_b = (set(map(tuple, one.tolist())) for one in ids)
        lacking = _lacking(name_a, of_a, name_b, of_b, _task)
        raise ValueError(
            f"{name_a} and {name_b} are not of the same tasks (side, sample_id): {lacking}. Rank "
            "the same tasks with both (rank_run: with the same qrels)"
        )


def _check_same_names(a: Rows, b: Rows, name_a: str, name_b: str) -> None:
    """Raise a ValueError if tasks without sample ids have other names of queries."""
    one = Columns(a).query
    other = Columns(b).query
    different = np.flatnonzero((one != other) & (one >= 0) & (other >= 0))
    # names that are all different, as of a counter that goes on, cannot show another order
    if np.isin(one[different], other).any():
        at = different[0]
        raise ValueError(
            f"{name_a} and {name_b} have the queries {one[at]} and {other[at]} at task {at}, but "
            "without sample ids tasks are aligned by order: pass the same queries in the same "
            "order, or sample_id= (an id for each task) to every update of both"
        )


def _lacking(name_a: str, a: Set[Any], name_b: str, b: Set[Any], show: Callable[[Any], str]) -> str:
    """Describe which entries of two sets are in one only."""
    lost = {name_a: sorted(map(show, b - a)), name_b: sorted(map(show, a - b))}
    parts = []
    for name, found in lost.items():
        if found:
            more = ", ..." if len(found) > _SHOWN else ""
            parts.append(f"{name} lacks {len(found)}: {', '.join(found[:_SHOWN])}{more}")
    return "; ".join(parts)


def _task(place: tuple[int, int]) -> str:
    return f"({SIDES_BY_CODE[place[0]]}, {place[1]})"


def check_same_tasks(a: Rows, b: Rows, name_a: str, name_b: str) -> None:
    """Raise a ValueError if tasks of rows (n, 10), in one order, differ except in their ranks.

    The names of queries may differ, but not the tasks that are of one query.
    """
    one = Columns(a)
    other = Columns(b)
    columns = {
        name: (getattr(one, name), getattr(other, name))
        for name in ("side", "num_candidates", "group")
    }
    for name, (x, y) in {
        **columns,
        "weight": (weights(a), weights(b)),
        "gain": (gains(a), gains(b)),
    }.items():
        different = np.flatnonzero(x != y)
        if len(different):
            at = different[0]
            sample = int(one.sample_id[different[0]])
            task = str(at) if sample == ABSENT else _task((int(one.side[at]), sample))
            raise ValueError(
                f"{name_a} and {name_b} differ in {name} at {len(different)} tasks, first task "
                f"{task}: {x[at]} and {y[at]}; use the same tasks, filter and weights for all "
                "models"
            )
    _check_same_queries(one, other, name_a, name_b)


def _check_same_queries(one: Columns[Rows], other: Columns[Rows], name_a: str, name_b: str) -> None:
    """Raise a ValueError if several tasks are of one query in one run only."""
    if np.array_equal(one.query, other.query):
        return
    _check_has_queries(one, name_a, other)
    _check_has_queries(other, name_b, one)
    has_names = (one.query >= 0) & (other.query >= 0)
    pairs = np.stack([one.side, one.query, other.query], 1)[has_names]
    num_pairs = len(np.unique(pairs, axis=0))
    num_queries = (len(np.unique(pairs[:, [0, i]], axis=0)) for i in (1, 2))
    if any(number < num_pairs for number in num_queries):
        raise ValueError(
            f"{name_a} and {name_b} differ in which tasks are of one query: pass the same query= "
            "for both"
        )


def _check_has_queries(run: Columns[Rows], name: str, other: Columns[Rows]) -> None:
    """Raise a ValueError if tasks without a query are several tasks of a query in another run."""
    only_there = (run.query == ABSENT) & (other.query != ABSENT)
    if has_repeats(combined(other.side, other.query)[only_there]):
        raise ValueError(
            f"{name} has tasks without a query, but in the other model several of them are of "
            "one query: pass query= for both, to every update, RankTable.from_ranks, or as a "
            "column of a file"
        )


def _check_values(model: Any, name: str, first: Mapping[Any, Any], reference: str) -> None:
    """Raise unless a model has finite values of the queries of the first one."""
    if not is_values(model):
        like = f", as {reference} is" if reference else ""
        raise TypeError(f"{name} must be a dict of query -> value{like}, got {shorten(model)}")
    if all(isinstance(query, str) and _is_metric(query) for query in model):
        raise ValueError(
            f"{name} must be a dict of query -> value, got averages of {shorten(', '.join(model))}"
            ". Averages cannot be compared: pass evaluate_run(..., per_query=True)"
        )
    for query, value in model.items():
        number = one_number(value)
        if number is None or not math.isfinite(number):
            raise ValueError(
                f"{name} must have finite values, got {shorten(value)} for query {shorten(query)}"
            )
    if model.keys() != first.keys():
        lacking = _lacking(reference, first.keys(), name, model.keys(), shorten)
        raise ValueError(f"{reference} and {name} have different queries: {lacking}")


def value_rows(models: Sequence[Any], names: Sequence[str]) -> list[Rows]:
    """Rows (Q, 1) of models in one order of queries: bits of float64 values."""
    given = zip(models, names, strict=True)
    first, reference = next(((model, name) for model, name in given if is_values(model)), ({}, ""))
    for model, name in zip(models, names, strict=True):
        _check_values(model, name, first, reference)
    order = sorted(first, key=str)
    columns = [map(model.__getitem__, order) for model in models]
    values = np.array(list(zip(*columns, strict=True)), dtype=np.float64)
    return list(np.split(without_rounding(values).view(np.int64), len(models), axis=1))


def without_rounding(values: FloatArray) -> FloatArray:
    """Make values (Q, models) of a query equal that differ by the rounding of float32 or 64."""
    order = np.argsort(values, axis=1, kind="stable")
    ascending = np.take_along_axis(values, order, 1)
    size = np.abs(ascending)
    close = np.diff(ascending, axis=1) <= _ROUNDING * np.maximum(size[:, 1:], size[:, :-1])
    for model in range(1, values.shape[1]):
        same = close[:, model - 1]
        ascending[same, model] = ascending[same, model - 1]
    equal = np.empty_like(values)
    np.put_along_axis(equal, order, ascending, 1)
    return equal


def value_measure(name: str | None, rows: Sequence[Rows], column: int = 0) -> Measure:
    """Measure of given values; a name of the package has its canonical key and direction."""
    if not isinstance(name, str | None):
        raise TypeError(f"metric must be the name of the values, got {shorten(name)}")
    values = [one[:, column].view(np.float64) for one in rows]
    is_share = all(np.isin(one, (0.0, 1.0)).all() for one in values)
    known = None if name is None else known_measure(name)
    about = (name or "value", True) if known is None else (known.key, known.higher_is_better)
    return Measure(ValueDefinition(*about, is_share, column))


def _is_metric(name: str) -> bool:
    """Whether a text is the name of a metric, and not an id such as p1."""
    known = known_measure(name)
    return known is not None and ("@" in name or name == known.key)


def known_measure(name: str) -> Measure | None:
    """Measure of a name of the package; None for a metric of another tool."""
    with suppress(ValueError):
        return as_measure(name)
    return None
