"""`compare`: paired differences of two models, or of all pairs of several as one family."""

from __future__ import annotations  # help() shows the names of types

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast, overload

import numpy as np
import torch

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.definitions.protocol import EmptyQueries
from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.errors import warn
from torchrankmetrics.inference.clusters import Cluster, Clusters
from torchrankmetrics.inference.comparison import (
    Comparison,
    Comparisons,
    PairwiseComparisons,
    turned,
)
from torchrankmetrics.inference.flips import max_t_p_values
from torchrankmetrics.inference.intervals import check_confidence_level, warn_of_few_tasks
from torchrankmetrics.inference.paired import DEFAULT_DRAWS, Draws, PairedMeasure
from torchrankmetrics.inference.pairing import (
    Collected,
    Evaluation,
    HasArray,
    Values,
    as_evaluation,
    is_list_of_ranks,
    is_values,
    is_values_by_metric,
    paired_rows,
    value_measure,
    value_rows,
    values_of_metric,
)
from torchrankmetrics.inference.testing import holm
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure, by_key, measure_of
from torchrankmetrics.metrics.names import MetricLike, as_measure, parse_name
from torchrankmetrics.metrics.warnings import check_empty_queries
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import check_int, shorten

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition

BEST = "best"
Models = Evaluation | HasArray | Values | Sequence[Evaluation | HasArray | Values | int]


class _TestOptions(TypedDict, total=False):
    confidence_level: float
    cluster: Cluster | None
    n_resamples: int
    permutations: int
    seed: int


@overload
def compare(  # type: ignore[overload-overlap]  # a str is a sequence of str
    a: Models, b: Models, metric: MetricLike = ..., **options: Unpack[_TestOptions]
) -> Comparison: ...
@overload
def compare(
    a: Models, b: Models, metric: Sequence[MetricLike], **options: Unpack[_TestOptions]
) -> Comparisons: ...
@overload
def compare(
    a: Mapping[str, Models],
    b: MetricLike | Sequence[MetricLike] = ...,
    *,
    baseline: str | None = ...,
    **options: Unpack[_TestOptions],
) -> PairwiseComparisons: ...
@suggest_keywords
def compare(
    a: Models | Mapping[str, Models],
    b: Models | MetricLike | Sequence[MetricLike] | None = None,
    metric: MetricLike | Sequence[MetricLike] | None = None,
    *,
    baseline: str | None = None,
    confidence_level: float = 0.95,
    cluster: Cluster | None = "auto",
    n_resamples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
) -> Comparison | Comparisons | PairwiseComparisons:
    """Test whether model a is better than model b on the same tasks.

    - ``compare(a, b, "mrr")``: two models;
    - ``compare(a, b, ["mrr", "hits@10"])``: several metrics;
    - ``compare({"a": a, "b": b, "c": c}, "mrr")``: every pair of models;
    - ``compare([a1, a2, a3], [b1, b2, b3], "mrr")``: several training seeds for each model.

    Tasks are aligned by (side, sample id), or by order if none has sample ids. Of several metrics
    or models read ``p_adjusted``: all p-values are one family. It is adjusted by Holm for two
    models. For pairs of more models it is adjusted by max-T over sign flips of the tasks, or by
    Holm if a metric is of queries or the median, or a model has several runs.

    The p-value is from a sign-flip permutation test, or from McNemar's exact test for hits of
    independent tasks without weights. Both sides of a triple, or the tasks of one query, change
    their signs together (``cluster``). The interval contains the differences that the same test
    does not reject (for hits with Tango's test), so it contains 0 exactly if p is above
    1 - confidence_level. Metrics that are not a function of a mean, such as the median, have
    bootstrap percentiles and no p-value. For lists of runs, both are Student's t over new training
    seeds and new tasks, and ``seeds`` contains the variance components. Processes are not
    synchronized.

    Args:
        a (Ranks, RankTable, RankCollection, list or mapping): a model: also an array of ranks, a
            data frame, or a dict of query -> value of any metric, or of query -> {metric: value} as
            ``evaluate_run(..., per_query=True)`` returns it; or a list of them, one per training
            seed; or a dict of name -> model.
        b (as a, default None): the other model, of the same tasks; after a dict of models the
            metric.
        metric (str, RankDefinition, RankMetric or a list of them, default None): in any view except
            p_value, of values of queries the name of their metric; None: "mrr". With a list
            p-values are also adjusted by Holm. Views use the expectation of the metric; for a name,
            of the first metric of that definition in the collections.
        baseline (str, default None): after a dict, None: all pairs; the name of a model: its pairs;
            "best": the pairs of the best model of each metric, with p-values adjusted for all
            pairs.
        confidence_level (float, default 0.95): in (0, 1).
        cluster (str or integers, default "auto"): tasks that are dependent. "auto": of one sample
            id if one has two sides (both sides of a triple), else of one query if one has several
            tasks, else none. Or "group", "sample_id", "query", or int64 keys in the order of the
            tasks of ``a``: of the rows of ``table()`` for a collection with sample ids, else of the
            input. None: all tasks are independent, as values of queries always are.
        n_resamples (int, default 2000): number of bootstrap samples.
        permutations (int, default 9999): number of flips. A p-value below 1 / (permutations + 1) is
            an upper bound (Bentkus and Dzindzalieta 2015).
        seed (int, default 0): random seed of both.

    Returns:
        A ``Comparison``; ``Comparisons`` if metric is a list; after a dict ``PairwiseComparisons``.

    Raises:
        TypeError, ValueError: for invalid options, models of different tasks, and collections that
            differ in ``empty_queries``. Too few tasks are warned of.

    >>> from torchrankmetrics import compare
    >>> from torchrankmetrics import Ranks
    >>> a, b = Ranks([1, 2, 1, 3, 1, 2], None, 50), Ranks([4, 2, 3, 9, 5, 8], None, 50)
    >>> result = compare(a, b, "hits@3")
    >>> round(result.difference, 4), round(result.p_value, 3), result.test
    (0.6667, 0.125, 'exact McNemar')
    >>> result.direction
    'not significantly different; higher Hits@3 is better'
    >>> bm25 = {f"q{i}": i % 7 / 7 for i in range(40)}
    >>> dense = {f"q{i}": min(i % 5 / 4 + 0.05, 1.0) for i in range(40)}
    >>> result = compare(dense, bm25, "ndcg@10")
    >>> round(result.difference, 4), round(result.low, 2), round(result.high, 2)
    (0.1293, -0.01, 0.27)
    >>> round(result.p_value, 2)
    0.07
    """
    confidence_level = check_confidence_level(confidence_level)
    draws = checked_draws(confidence_level, n_resamples, permutations, seed)
    if isinstance(a, Mapping) and not is_values(a) and not isinstance(b, Mapping):
        if b is not None and metric is not None:
            raise TypeError(
                "after a dict of models the metric is the second argument: compare({...}, metric)"
            )
        models = cast("Mapping[Any, Models]", a)
        metrics = _entries(metric if b is None else b)
        return _compare_all(models, metrics, cluster, baseline, confidence_level, draws)
    if b is None:
        raise TypeError(
            "b is missing: compare(a, b), or compare({'a': ..., 'b': ...}) of any number of models"
        )
    if baseline is not None:
        raise ValueError("baseline must be None for two models: pass a dict of name -> model")
    metrics = _entries(metric)
    tests = paired(cast("Models", a), cast("Models", b), metrics, cluster, draws)
    rows = _adjusted([test.comparison(confidence_level) for test in tests])
    _warn(rows, confidence_level)
    return Comparisons(tuple(rows)) if isinstance(metric, list | tuple) else rows[0]


def paired(
    a: Models,
    b: Models,
    metrics: Sequence[Any],
    cluster: Cluster | None = "auto",
    draws: Draws = DEFAULT_DRAWS,
) -> list[PairedMeasure]:
    """Measure two models, or runs of each, on the same tasks; arguments as in ``compare``."""
    (rows_a, rows_b), clusters, measures = _aligned(["a", "b"], [a, b], metrics, cluster)
    return [PairedMeasure(measure, rows_a, rows_b, clusters, draws) for measure in measures]


def checked_draws(level: float, n_resamples: int, permutations: int, seed: int) -> Draws:
    """Check the options of resampling for tests that reject where an interval ends."""
    check_int("n_resamples", n_resamples, 100)
    check_int("permutations", permutations, 99)
    if (permutations + 1) * (1 - level) < 1 - 1e-9:
        raise ValueError(
            f"permutations must be at least {math.ceil(1 / (1 - level)) - 1} for intervals of "
            f"level {level:g}: with fewer flips no interval is bounded; got {permutations}"
        )
    return Draws(n_resamples, permutations, check_int("seed", seed, 0))


def _entries(metric: Any) -> list[Any]:
    if isinstance(metric, list | tuple) and not metric:
        raise ValueError("metric is empty: name at least one")
    return list(metric) if isinstance(metric, list | tuple) else [metric]


def _aligned(
    names: Sequence[str], models: Sequence[Models], metrics: Sequence[Any], cluster: Cluster | None
) -> tuple[list[list[Rows]], Clusters | None, list[Measure]]:
    """Rows of the runs of each model in one order of tasks, their clusters, and the measures.

    ``names`` are for errors.
    """
    runs = [_runs(model, name) for name, model in zip(names, models, strict=True)]
    sizes = list(map(len, runs))
    if 1 in sizes and max(sizes) > 1:
        raise ValueError(
            "all models must be lists of at least 2 runs if one is, for the variance of training "
            f"seeds; {names[sizes.index(1)]} has 1"
        )
    flat: list[Any] = list(itertools.chain(*runs))
    of_runs = names if 1 in sizes else _numbered(names, sizes)
    rows, measures, clusters = _flat_rows(flat, of_runs, metrics, cluster)
    rest = iter(rows)
    return [list(itertools.islice(rest, size)) for size in sizes], clusters, measures


def _flat_rows(
    flat: list[Any], names: Sequence[str], metrics: Sequence[Any], cluster: Cluster | None
) -> tuple[list[Rows], list[Measure], Clusters | None]:
    """Rows of runs, of ranks or of values of queries, in one order of tasks."""
    if any(is_values(run) or is_values_by_metric(run) for run in flat):
        if not (cluster is None or (isinstance(cluster, str) and cluster == "auto")):
            raise ValueError("cluster must be 'auto' or None for values of queries")
        return *_given_values(flat, names, metrics), None
    ranks = cast("list[Evaluation]", flat)
    rows, clusters = paired_rows(ranks, names, cluster)
    measures = list(by_key(_measure(one or "mrr", ranks) for one in metrics).values())
    _warn_of_empty_queries(rows, measures)
    return rows, measures, clusters


def _given_values(
    flat: list[Any], names: Sequence[str], metrics: Sequence[Any]
) -> tuple[list[Rows], list[Measure]]:
    """Rows of given values of queries with a column for each metric, and their measures."""
    if len(metrics) > 1 and any(map(is_values, flat)):
        raise ValueError(
            "metric must be one name for one value per query; for several metrics pass "
            "{query: {metric: value}}, as evaluate_run(..., per_query=True) returns it"
        )
    by_metric = []
    distinct = {value_measure(metric, ()).key: metric for metric in metrics}  # without synonyms
    for metric in distinct.values():
        values = [_values_of(run, name, metric) for run, name in zip(flat, names, strict=True)]
        by_metric.append(value_rows(values, names))
    rows = [np.concatenate(columns, axis=1) for columns in zip(*by_metric, strict=True)]
    measures = [value_measure(metric, rows, i) for i, metric in enumerate(distinct.values())]
    return rows, measures


def _warn_of_empty_queries(rows: Sequence[Rows], measures: Sequence[Measure]) -> None:
    """Warn if queries without a relevant item are left out, as ``evaluate`` does."""
    of_queries = [one for one in measures if not one.definition.entries_are_rows]
    if of_queries:
        analysis = Analysis([torch.from_numpy(rows[0].copy())])
    for one in of_queries:
        definition = cast("QueryDefinition", one.definition)
        check_empty_queries(analysis, definition, one.side, one.empty_queries)


def _numbered(names: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """Names of the runs of models with several runs."""
    return [f"{name}[{i}]" for name, size in zip(names, sizes, strict=True) for i in range(size)]


def _values_of(run: Any, name: str, metric: Any) -> Any:
    """Values of a metric in a run that has values of several metrics; else the run."""
    return values_of_metric(run, metric, name) if is_values_by_metric(run) else run


def _runs(models: Models, name: str) -> list[Any]:
    is_list = isinstance(models, list | tuple) and not is_list_of_ranks(models)
    runs: list[Any] = list(cast("Sequence[Any]", models)) if is_list else [models]
    if not runs:
        raise ValueError(f"{name} is an empty list: pass at least one run")
    return [_run(run, name) for run in runs]


def _run(run: Any, name: str) -> Any:
    if is_values(run) or is_values_by_metric(run):
        return run
    return as_evaluation(run, name, ", or a list of them")


def _measure(metric: Any, models: list[Evaluation]) -> Measure:
    """Requested measure; a name has expectation and empty queries of the first collection."""
    if (found := measure_of(metric)) is None:
        name = parse_name(metric)
        members = [
            list(model.measures.values()) for model in models if isinstance(model, Collected)
        ]
        known = list(itertools.chain(*members))
        # the expectations of members may differ
        own = [one for one in known if one.definition == name.definition] or known
        found = as_measure(name, own[0].expectation if own else None)
        if not found.definition.entries_are_rows:
            found = dataclasses.replace(found, empty_queries=_empty_queries(found, members))
    if not found.is_estimate:
        raise ValueError(
            f"{shorten(found.key)} cannot be compared; base, normalized, adjusted_index or z_score "
            "can"
        )
    return found


def _empty_queries(metric: Measure, members: list[list[Measure]]) -> EmptyQueries | None:
    """How the collections treat queries without relevant items; ValueError if they differ.

    A collection without the metric treats them as its other metrics of queries do.
    """
    found = []
    for measures in members:
        own = [one for one in measures if one.definition == metric.definition]
        of_queries = [one for one in measures if not one.definition.entries_are_rows]
        found.append([one.empty_queries for one in own or of_queries or measures])
    # None skips them with a warning
    different = {frozenset(value or "skip" for value in values) for values in found}
    if len(different) > 1:
        names = " and ".join(sorted(frozenset[str]().union(*different)))
        raise ValueError(
            f"the collections differ in empty_queries ({names}) for {shorten(metric.key)}: create "
            f"them with the same empty_queries=, or pass RankMetric({shorten(metric.key)}, "
            "empty_queries=...)"
        )
    return found[0][0] if found else None


def _compare_all(
    models: Mapping[Any, Models],
    metrics: list[Any],
    cluster: Cluster | None,
    baseline: Any,
    level: float,
    draws: Draws,
) -> PairwiseComparisons:
    """Compare every pair; adjust p-values by max-T if all tests are sign flips, else by Holm."""
    names, labels = _names_of(models)
    aligned, clusters, measures = _aligned(labels, list(models.values()), metrics, cluster)
    aligned_models = _AlignedModels(
        dict(zip(names, aligned, strict=True)), clusters, measures, draws
    )
    if baseline not in (None, BEST, *names):
        raise ValueError(
            f"baseline must be None, 'best' or one of the models {', '.join(labels)}; got "
            f"{shorten(baseline)}"
        )
    is_of_best = baseline == BEST and BEST not in names
    if is_of_best:
        _check_directions(measures)
    # the best model is chosen on the same data: the family contains every pair that it could have
    found = aligned_models.comparisons(_pairs(names, baseline), level)
    if is_of_best:
        found = list(itertools.chain(*(_of_best(measure, found) for measure in measures)))
    _warn(found, level)
    return PairwiseComparisons(tuple(found), tuple(names))


class _AlignedModels(NamedTuple):
    """Rows of the runs of each model in one order of tasks, and the measures to compare."""

    rows: dict[str, list[Rows]]
    clusters: Clusters | None
    measures: list[Measure]
    draws: Draws

    def comparisons(self, pairs: list[tuple[str, str]], level: float) -> list[Comparison]:
        """Compare every pair by every measure, with adjusted p-values."""
        found = []
        for measure, (a, b) in itertools.product(self.measures, pairs):
            row = self._test(measure, a, b).comparison(level)
            found.append(dataclasses.replace(row, models=(a, b)))
        return _adjusted(found, self._max_t(pairs) if self._has_sign_flips() else None)

    def _test(self, measure: Measure, a: str, b: str) -> PairedMeasure:
        return PairedMeasure(measure, self.rows[a], self.rows[b], self.clusters, self.draws)

    def _has_sign_flips(self) -> bool:
        """Whether all tests are sign flips of tasks."""
        has_one_run = max(map(len, self.rows.values())) == 1
        return has_one_run and all(map(_is_mean_over_rows, self.measures))

    def _max_t(self, pairs: list[tuple[str, str]]) -> FloatArray:
        """Adjusted p-values from sign flips of the differences from the first model."""
        reference, *others = self.rows
        index = np.arange(len(self.rows[reference][0]))
        number = np.ones_like(index)
        if self.clusters is not None:
            index, number = self.clusters.units(number)
        columns = []
        for measure, other in itertools.product(self.measures, others):
            columns.append(self._test(measure, other, reference).differences_of(index, number))
        terms = np.repeat(np.stack(columns, 1), number, axis=0)
        lines = _contrasts(list(self.rows), pairs, len(self.measures))
        return max_t_p_values(terms, lines, self.draws.permutations, self.draws.seed)


def _contrasts(names: list[str], pairs: list[tuple[str, str]], num_measures: int) -> FloatArray:
    """Write the difference of each pair in the differences of models from the first one."""
    model = dict(zip(names, np.eye(len(names))[:, 1:], strict=True))
    lines = np.stack([model[a] - model[b] for a, b in pairs], 1)
    return np.kron(np.eye(num_measures), lines)


def _names_of(models: Mapping[Any, Models]) -> tuple[list[str], list[str]]:
    """Names of models, and the same shortened for messages."""
    names = list(map(str, models))
    labels = list(map(shorten, names))
    if len(set(names)) < max(len(names), 2) or "" in names:
        listed = ", ".join(labels) or "none"
        raise ValueError(f"models must be at least two, by different names; got {listed}")
    return names, labels


def _pairs(names: Sequence[str], baseline: Any) -> list[tuple[str, str]]:
    """All pairs of models, or those with a baseline."""
    if baseline in names:
        return [(baseline, other) for other in names if other != baseline]
    return list(itertools.combinations(names, 2))


def _check_directions(measures: Sequence[Measure]) -> None:
    for measure in measures:
        if measure.higher_is_better is None:
            raise ValueError(
                f"{shorten(measure.key)} has no direction, so no model is the best: use "
                "baseline=None"
            )


def _is_mean_over_rows(measure: Measure) -> bool:
    definition = measure.definition
    return definition.entries_are_rows and definition.is_function_of_mean(measure.rank_type)


def _adjusted(found: list[Comparison], max_t: FloatArray | None = None) -> list[Comparison]:
    """Add adjusted p-values to comparisons with p-values: those of max-T, if given, else Holm's."""
    plain = np.array([row.p_value for row in found], dtype=np.float64)  # None becomes NaN
    adjusted = holm(plain) if max_t is None else np.maximum(plain, max_t)
    correction = "Holm" if max_t is None else "max-T"
    rows = []
    for row, p in zip(found, adjusted, strict=True):
        p_adjusted = None if np.isnan(p) else float(p)
        rows.append(dataclasses.replace(row, p_adjusted=p_adjusted, correction=correction))
    return rows


def _of_best(measure: Measure, rows: list[Comparison]) -> list[Comparison]:
    """Comparisons of the best model with each other one, as best - other."""
    own = [
        (row, row.models) for row in rows if row.metric == measure.key and row.models is not None
    ]
    values: dict[str, float] = {}
    for row, (a, b) in own:
        values |= {a: row.value_a, b: row.value_b}
    best = (max if measure.higher_is_better else min)(values, key=values.__getitem__)
    found = []
    for row, pair in own:
        if best in pair:
            found.append(turned(row) if pair[1] == best else row)
    return found


def _warn(rows: Sequence[Comparison], level: float) -> None:
    same = [row.label for row in rows if row.difference == row.effective_tasks == 0]
    if same:
        warn(f"all differences of {', '.join(map(shorten, same))} are 0: are these the same ranks?")
    warn_of_few_tasks({row.label: row.effective_tasks for row in rows if row.label not in same})
    if unbounded := [shorten(row.label) for row in rows if not row.bounded]:
        warn(
            f"the interval of {', '.join(unbounded)} ends at the limit of the possible values: too "
            "few tasks or clusters differ between the models to reject any difference at "
            f"confidence level {level:g}. Use more tasks"
        )
