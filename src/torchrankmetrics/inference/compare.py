"""`compare`: paired differences of two models, or of all pairs of several models as one family of tests."""

from __future__ import annotations  # help() shows the names of types

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack, cast, overload

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.errors import suggest_keywords, warn
from torchrankmetrics.inference.comparison import Comparison, Comparisons, PairwiseComparisons
from torchrankmetrics.inference.intervals import Cluster, check_confidence_level, warn_of_few_tasks
from torchrankmetrics.inference.paired import PairedMeasure
from torchrankmetrics.inference.pairing import paired_rows
from torchrankmetrics.inference.sources import (
    Collected,
    Evaluation,
    HasArray,
    Values,
    as_evaluation,
    is_list_of_ranks,
    is_values,
)
from torchrankmetrics.inference.testing import holm, max_t_p_values
from torchrankmetrics.metrics.measure import Measure, has_measure, measure_of
from torchrankmetrics.metrics.registry import MetricLike, MetricName, as_measure, parse_name
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import check_int, shorten

BEST = "best"
_Draws = tuple[float, int, int, int]
"""Confidence level, bootstrap resamples, permutations, random seed."""


Models = Evaluation | HasArray | Values | Sequence[Evaluation | HasArray | Values | int]


class _Options(TypedDict, total=False):
    confidence_level: float
    cluster: Cluster | None
    n_resamples: int
    permutations: int
    seed: int


@overload
def compare(  # type: ignore[overload-overlap]  # a str is a sequence of str
    a: Models,
    b: Models,
    metric: MetricLike = ...,
    **options: Unpack[_Options],
) -> Comparison: ...
@overload
def compare(a: Models, b: Models, metric: Sequence[MetricLike], **options: Unpack[_Options]) -> Comparisons: ...
@overload
def compare(
    a: Mapping[str, Models],
    b: MetricLike | Sequence[MetricLike] = ...,
    *,
    baseline: str | None = ...,
    **options: Unpack[_Options],
) -> PairwiseComparisons: ...
@suggest_keywords
def compare(
    a: Models | Mapping[str, Models],
    b: Models | MetricLike | Sequence[MetricLike] | None = None,
    metric: MetricLike | Sequence[MetricLike] | None = None,
    *,
    baseline: str | None = None,
    confidence_level: float = 0.95,
    cluster: Cluster | None = None,
    n_resamples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
) -> Comparison | Comparisons | PairwiseComparisons:
    """Compare models on the same tasks, aligned by (side, sample id), or by order if none has sample ids.

    ``compare(a, b, metric)`` compares two models, ``compare({"a": ..., "b": ..., "c": ...}, metric)`` any number. Then
    all pairs and metrics are one family: p-values are adjusted by max-T over sign flips of the tasks, or by Holm if
    some have another test (several runs, query metrics) or none (the median).

    The p-value is from a sign-flip permutation test, or from McNemar's exact test for hits without clusters and
    weights. The interval contains the differences that the same test does not reject (for hits with Tango's test), so
    it contains 0 exactly if p is above 1 - confidence_level. Metrics that are not a function of a mean, such as the
    median, have bootstrap percentiles and no p-value. For lists of runs, both are Student's t over new training seeds
    and new tasks, and ``seeds`` contains the variance components. Processes are not synchronized.

    A model may also be a dict of query -> value of any metric, as ir_measures, pytrec_eval and ranx compute them.

    Args:
        a: a ``RankTable``, ``RankCollection``, ``Ranks``, an array of ranks, a data frame or a dict of query -> value;
            or a list of them, one per training seed; or a dict of name -> model.
        b: the other model, of the same tasks; after a dict of models the metric.
        metric: a name in any view except p_value, with its side, rank type and average, a ``RankDefinition`` or a
            ``RankMetric``; or a list: then p-values are also adjusted by Holm. Views use the expectation of the metric;
            for a name, the expectation of the first metric of that definition in the collections among the models.
            None: "mrr". For values of queries the name of their metric.
        baseline: after a dict, None: all pairs; the name of a model: its pairs; "best": the pairs of the best model of
            each metric. The best is chosen on the same data, therefore p-values are adjusted for all pairs.
        confidence_level: in (0, 1).
        cluster: unit of resampling: "group", "sample_id", or int64 keys aligned with the tasks of ``a``: with the rows
            of its ``table()`` if it is a collection with sample ids, else in input order.
        n_resamples: number of bootstrap samples.
        permutations: number of flips; p is at least 1 / (permutations + 1). For m > 1 metrics at least
            50 m / (1 - confidence_level) are used, so that Holm's correction can still reject.
        seed: random seed of both.

    Raises:
        TypeError, ValueError: for invalid options, and for models of different tasks.

    Warns:
        RankMetricWarning: if too few tasks determine the standard error, so that the interval may be too narrow.

    >>> from torchrankmetrics import Ranks
    >>> a, b = Ranks([1, 2, 1, 3, 1, 2], None, 50), Ranks([4, 2, 3, 9, 5, 8], None, 50)
    >>> print(compare(a, b, "hits@3"))
    hits_at_3: 1.0000 - 0.3333 = +0.6667 [-0.1365, +0.9032] at 95%, p = 0.12 (exact McNemar); 6 tasks
    >>> bm25 = {f"q{i}": i % 7 / 7 for i in range(40)}
    >>> dense = {f"q{i}": min(i % 5 / 4 + 0.05, 1.0) for i in range(40)}
    >>> result = compare(dense, bm25, "ndcg@10")
    >>> round(result.difference, 4), round(result.low, 2), round(result.high, 2), round(result.p_value, 2)
    (0.1293, -0.01, 0.27, 0.07)
    """
    confidence_level = check_confidence_level(confidence_level)
    check_int("n_resamples", n_resamples, 100)
    check_int("permutations", permutations, 99)
    if (permutations + 1) * (1 - confidence_level) < 1 - 1e-9:
        raise ValueError(
            f"permutations must be at least {math.ceil(1 / (1 - confidence_level)) - 1} for "
            f"confidence_level={confidence_level}: p is at least 1 / (permutations + 1), so no test "
            f"could reject; got {permutations}"
        )
    draws = (confidence_level, n_resamples, permutations, seed)
    if isinstance(a, Mapping) and not is_values(a):
        if b is not None and metric is not None:
            raise TypeError("after a dict of models the metric is the second argument: compare({...}, metric)")
        return _compare_all(cast("Mapping[Any, Models]", a), metric if b is None else b, cluster, baseline, draws)
    if b is None:
        raise TypeError("b is missing: compare(a, b), or compare({'a': ..., 'b': ...}) of any number of models")
    if baseline is not None:
        raise ValueError("baseline must be None for two models: pass a dict of name -> model")
    entries = _entries(metric)
    pairs = _paired(a, cast("Models", b), entries, cluster)
    if len(entries) > 1:
        draws = _enough(draws, len(entries))
    results = [_compared(pair, draws) for pair in pairs]
    plain = [np.nan if result.p_value is None else result.p_value for result in results]
    results = [
        result if np.isnan(p) else dataclasses.replace(result, p_adjusted=float(p))
        for result, p in zip(results, holm(plain), strict=True)
    ]
    _warn([(result.metric, result) for result in results], confidence_level)
    return Comparisons(tuple(results)) if isinstance(metric, list | tuple) else results[0]


def _compare_all(
    models: Mapping[Any, Models], metric: Any, cluster: Cluster | None, baseline: str | None, draws: _Draws
) -> PairwiseComparisons:
    entries = _entries(metric)
    named = {str(name): model for name, model in models.items()}
    if len(named) < 2 or "" in named:
        raise ValueError(f"models must be at least two, by name; got {', '.join(map(shorten, named)) or 'none'}")
    runs = {name: _runs(model, shorten(name)) for name, model in named.items()}
    several = {name for name, of_model in runs.items() if len(of_model) > 1}
    if several and len(several) < len(runs):
        alone = next(name for name in runs if name not in several)
        raise ValueError(f"all models must be lists of at least 2 runs if one is; {shorten(alone)} has 1")
    names = [
        f"{shorten(name)}[{i}]" if several else shorten(name) for name, part in runs.items() for i in range(len(part))
    ]
    flat = [run for part in runs.values() for run in part]
    rows, keys, measures = _aligned(flat, names, cluster, entries)
    measures = list({measure.key: measure for measure in measures}.values())
    rest = iter(rows)
    family = _Family({name: [next(rest) for _ in part] for name, part in runs.items()}, keys, measures, baseline)
    found = family.compare(draws)
    _warn([(row.label, row) for row in found.rows], draws[0])
    return found


class _Family:
    """Models and measures whose differences are tested together.

    Args:
        rows: of every run of each model, in one order of tasks.
        keys: cluster of each task; None: every task is independent.
        measures: compared measures.
        baseline: None: all pairs; the name of a model: its pairs; "best": the pairs of the best model of each metric.

    Raises:
        ValueError: if the baseline is not one of the models, or a metric has no best model.
    """

    def __init__(
        self, rows: dict[str, list[Rows]], keys: IntArray | None, measures: Sequence[Measure], baseline: str | None
    ) -> None:
        self.rows, self.keys, self.measures = rows, keys, measures
        if baseline not in (None, BEST, *rows):
            known = ", ".join(map(shorten, rows))
            raise ValueError(f"baseline must be None, 'best' or one of the models {known}; got {shorten(baseline)}")
        self.of_best = baseline == BEST and BEST not in rows
        undirected = [measure for measure in measures if measure.higher_is_better is None]
        if self.of_best and undirected:
            raise ValueError(
                f"{shorten(undirected[0].key)} has no direction, so no model is the best: use baseline=None"
            )
        # the best model is chosen on the same data: the family contains every pair that it could have
        self.pairs = list(itertools.combinations(rows, 2))
        if baseline is not None and baseline in rows:
            self.pairs = [(baseline, other) for other in rows if other != baseline]

    def compare(self, draws: _Draws) -> PairwiseComparisons:
        """Compare every pair, and adjust the p-values by max-T if all tests are sign flips of tasks, else by Holm."""
        flips = all(len(runs) == 1 for runs in self.rows.values()) and all(
            one.definition.entries_are_rows and one.definition.is_function_of_mean(one.rank_type)
            for one in self.measures
        )
        if not flips:
            draws = _enough(draws, len(self.measures) * len(self.pairs))
        found: list[Comparison] = []
        for measure, pair in itertools.product(self.measures, self.pairs):
            found.append(dataclasses.replace(_compared(self._paired(measure, *pair), draws), models=pair))
        plain = np.array([np.nan if row.p_value is None else row.p_value for row in found])
        adjusted = self._max_t(*draws[2:]) if flips else holm(plain)
        found = [
            dataclasses.replace(
                row,
                p_adjusted=None if np.isnan(p) else float(max(p, q)),
                correction="max-T" if flips else "Holm",
            )
            for row, p, q in zip(found, plain, adjusted, strict=True)
        ]
        if self.of_best:
            found = [row for measure in self.measures for row in _of_best(measure, found)]
        return PairwiseComparisons(tuple(found), tuple(self.rows))

    def _paired(self, measure: Measure, a: str, b: str) -> PairedMeasure:
        return PairedMeasure(measure, [*self.rows[a], *self.rows[b]], len(self.rows[a]), self.keys)

    def _max_t(self, permutations: int, seed: int) -> FloatArray:
        """Adjusted p-values from flips of all differences from the first model, which span every pair."""
        reference, *others = self.rows
        tasks = len(self.rows[reference][0])
        units = np.arange(tasks) if self.keys is None else np.unique(self.keys, return_inverse=True)[1]
        columns = np.zeros((int(units.max()) + 1, len(self.measures) * len(others)))
        lines = np.zeros((columns.shape[1], len(self.measures) * len(self.pairs)))
        for m, measure in enumerate(self.measures):
            place = {other: m * len(others) + i for i, other in enumerate(others)}
            for other, column in place.items():
                pair = self._paired(measure, other, reference)
                columns[np.unique(units[pair.used]), column] = pair.flipped
            for j, models in enumerate(self.pairs, start=m * len(self.pairs)):
                for model, sign in zip(models, (1.0, -1.0), strict=True):
                    if model in place:
                        lines[place[model], j] = sign
        return max_t_p_values(columns, lines, permutations, seed)


def _of_best(measure: Measure, rows: list[Comparison]) -> list[Comparison]:
    """Comparisons of the best model with each other one, as best - other."""
    own = [(row, row.models) for row in rows if row.metric == measure.key and row.models is not None]
    values = {model: value for row, pair in own for model, value in zip(pair, (row.a, row.b), strict=True)}
    best = (max if measure.higher_is_better else min)(values, key=values.__getitem__)
    return [row.turned() if pair[1] == best else row for row, pair in own if best in pair]


def _entries(metric: Any) -> list[Any]:
    if isinstance(metric, list | tuple) and not metric:
        raise ValueError("metric is empty: name at least one")
    return list(metric) if isinstance(metric, list | tuple) else [metric]


def _enough(draws: _Draws, size: int) -> _Draws:
    """Increase the number of permutations, so that Holm's correction for ``size`` tests can still reject."""
    level, n_resamples, permutations, seed = draws
    return level, n_resamples, max(permutations, math.ceil(50 * size / (1 - level)) - 1), seed


def paired(a: Models, b: Models, metric: MetricLike, cluster: Cluster | None = None) -> PairedMeasure:
    """Measure two models, or several runs of each, on the same tasks; arguments and errors of ``compare``."""
    return _paired(a, b, [metric], cluster)[0]


def _paired(a: Models, b: Models, metrics: Sequence[Any], cluster: Cluster | None) -> list[PairedMeasure]:
    runs_a, runs_b = _runs(a, "a"), _runs(b, "b")
    several = len(runs_a) > 1 or len(runs_b) > 1
    if several and min(len(runs_a), len(runs_b)) < 2:
        raise ValueError(
            "a and b must both be lists of at least 2 runs to estimate the variance of training seeds, got "
            f"{len(runs_a)} and {len(runs_b)}"
        )
    names = [
        f"{name}[{i}]" if several else name for name, runs in (("a", runs_a), ("b", runs_b)) for i in range(len(runs))
    ]
    rows, keys, measures = _aligned([*runs_a, *runs_b], names, cluster, metrics)
    return [PairedMeasure(measure, rows, len(runs_a), keys) for measure in measures]


def _compared(pair: PairedMeasure, draws: _Draws) -> Comparison:
    found, slope, split = pair.difference(*draws), pair.slope, None
    if found.seeds is not None:
        parts = {part: getattr(found.seeds, part) * slope**2 for part in ("seeds", "tasks", "interaction")}
        split = dataclasses.replace(found.seeds, **parts)
    ends = found.low * slope, found.high * slope
    low, high = ends if math.isnan(slope) else sorted(ends)
    return Comparison(
        metric=pair.measure.key,
        a=pair.a,
        b=pair.b,
        difference=pair.a - pair.b,
        low=low,
        high=high,
        confidence_level=draws[0],
        p_value=found.p_value,
        p_adjusted=None,
        test=found.test,
        num_tasks=pair.num_tasks,
        num_clusters=None if pair.keys is None else pair.units.size,
        effective_clusters=None if pair.keys is None else pair.units.effective,
        seeds=split,
        permutations=found.permutations,
        effective_tasks=found.effective_tasks,
        bounded=found.bounded,
    )


def _aligned(
    runs: list[Evaluation | Values], names: list[str], cluster: Cluster | None, metrics: Sequence[Any]
) -> tuple[list[Rows], IntArray | None, list[Measure]]:
    """Rows of all runs in one order of tasks or queries, the cluster of each, and the compared measures."""
    if not any(map(is_values, runs)):
        evaluations = cast("list[Evaluation]", runs)
        rows, keys = paired_rows(evaluations, names, cluster)
        return rows, keys, [_measure(metric or "mrr", evaluations) for metric in metrics]
    from torchrankmetrics.inference.values import value_measure, value_rows

    if cluster is not None or len(metrics) > 1:
        raise ValueError("cluster must be None and metric one name for values of queries")
    rows = value_rows(runs, names)
    return rows, None, [value_measure(metrics[0], rows)]


def _runs(models: Models, name: str) -> list[Evaluation | Values]:
    runs: list[Any] = list(models) if isinstance(models, list | tuple) and not is_list_of_ranks(models) else [models]
    if not runs:
        raise ValueError(f"{name} is an empty list: pass at least one run")
    return [run if is_values(run) else as_evaluation(run, name, ", or a list of them") for run in runs]


def _warn(found: Sequence[tuple[str, Comparison]], level: float) -> None:
    warn_of_few_tasks({label: row.effective_tasks for label, row in found})
    if unbounded := [shorten(label) for label, row in found if not row.bounded]:
        warn(
            f"the interval of {', '.join(unbounded)} ends at the limit of the possible values: too few tasks or "
            f"clusters differ between the models to reject any difference at confidence level {level:g}. Use more tasks"
        )


def _measure(metric: Any, models: list[Evaluation]) -> Measure:
    """Requested measure; without an expectation of its own it has the one of the first collection."""
    if has_measure(metric):
        found = measure_of(metric)
    else:
        name = parse_name(metric) if isinstance(metric, str) else MetricName(metric)
        known = [one for model in models if isinstance(model, Collected) for one in model.measures.values()]
        own = [
            one for one in known if one.definition == name.definition
        ] or known  # the expectations of members may differ
        found = as_measure(name, own[0].expectation if own else None)
    if not found.is_estimate:
        raise ValueError(
            f"{shorten(found.key)} cannot be compared: use a metric in view base, normalized, adjusted_index or z_score"
        )
    return found
