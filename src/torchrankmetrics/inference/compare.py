"""`compare`: paired differences of two models, or of all pairs of several models as one family of tests."""

from __future__ import annotations  # help() shows the names of types

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, cast, overload

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.errors import told, warn
from torchrankmetrics.inference.comparison import (
    Comparison,
    Comparisons,
    PairedMeasure,
    PairwiseComparisons,
    paired_measure,
)
from torchrankmetrics.inference.intervals import Cluster, check_confidence_level, warn_of_few_tasks
from torchrankmetrics.inference.pairing import paired_rows
from torchrankmetrics.inference.sources import Collected, Evaluation, HasArray, as_evaluation, is_list_of_ranks
from torchrankmetrics.inference.testing import holm, max_t_p_values
from torchrankmetrics.metrics.measure import Measure, has_measure, measure_of
from torchrankmetrics.metrics.registry import MetricLike, MetricName, as_measure, parse_name
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import check_int, shown

BEST = "best"


class Family:
    """Models and measures whose differences are tested together.

    Args:
        rows: of every run of each model, in one order of tasks.
        keys: cluster of each task; None: each on its own.
        measures: what is compared.
        baseline: None: all pairs; the name of a model: it against each other one; "best": the best one of each metric.

    Raises:
        ValueError: if there are fewer than two models, no model of that name, or a metric has no best.
    """

    def __init__(
        self,
        rows: Mapping[str, list[Rows]],
        keys: IntArray | None,
        measures: Sequence[Measure],
        baseline: str | None,
    ) -> None:
        self.rows, self.keys, self.measures, self.baseline = dict(rows), keys, measures, baseline
        if baseline not in (None, BEST, *self.rows):
            known = ", ".join(map(shown, self.rows))
            raise ValueError(f"baseline must be None, 'best' or one of the models {known}; got {shown(baseline)}")
        if baseline == BEST and BEST not in self.rows:
            for measure in measures:
                if measure.higher_is_better is None:
                    raise ValueError(
                        f"{shown(measure.key)} has no direction, so that no model is the best: use baseline=None"
                    )

    @property
    def flips(self) -> bool:
        """Whether every difference is tested by sign flips of tasks; else Holm corrects what tests there are."""
        single = all(len(runs) == 1 for runs in self.rows.values())
        of_tasks = all(measure.definition.of_tasks is not None for measure in self.measures)
        return single and of_tasks and all(one.definition.is_function_of_mean(one.rank_type) for one in self.measures)

    @property
    def size(self) -> int:
        """Number of differences in the family."""
        return len(self.measures) * len(self._tested)

    @property
    def _tested(self) -> list[tuple[str, str]]:
        """Pairs in the family: which model is the best is seen in the data, so all that it may be are tested."""
        if self.baseline is None or self.baseline not in self.rows:
            return list(itertools.combinations(self.rows, 2))
        return [(self.baseline, other) for other in self.rows if other != self.baseline]

    def compare(self, one: Callable[[PairedMeasure], Comparison], permutations: int, seed: int) -> PairwiseComparisons:
        """Compare every pair by a function of it, and adjust the p-values."""
        found: list[Comparison] = []
        for measure, (first, second) in itertools.product(self.measures, self._tested):
            rows = [*self.rows[first], *self.rows[second]]
            pair = paired_measure(measure, rows, len(self.rows[first]), self.keys)
            found.append(dataclasses.replace(one(pair), models=(first, second)))
        plain = np.array([np.nan if row.p_value is None else row.p_value for row in found])
        correction = "max-T" if self.flips else "Holm"
        adjusted = self._max_t(permutations, seed) if self.flips else holm(plain)
        found = [
            dataclasses.replace(row, p_adjusted=None if np.isnan(p) else float(max(p, q)), correction=correction)
            for row, p, q in zip(found, plain, adjusted, strict=True)
        ]
        if self.baseline == BEST and BEST not in self.rows:
            found = [row for measure in self.measures for row in self._of_best(measure, found)]
        return PairwiseComparisons(tuple(found), tuple(self.rows))

    def _max_t(self, permutations: int, seed: int) -> FloatArray:
        """Adjusted p-values: flips of all differences from the first model, of which every pair is a combination."""
        reference, *others = self.rows
        tasks = len(self.rows[reference][0])
        units = np.arange(tasks) if self.keys is None else np.unique(self.keys, return_inverse=True)[1]
        columns = np.zeros((int(units.max()) + 1, len(self.measures) * len(others)))
        lines = np.zeros((columns.shape[1], self.size))
        for m, measure in enumerate(self.measures):
            first = m * len(others)
            for i, other in enumerate(others):
                rows = [*self.rows[other], *self.rows[reference]]
                pair = paired_measure(measure, rows, 1, self.keys)
                columns[np.unique(units[pair.used]), first + i] = pair.runs.flipped
            place = {other: first + i for i, other in enumerate(others)}
            for j, models in enumerate(self._tested, start=m * len(self._tested)):
                for model, sign in zip(models, (1.0, -1.0), strict=True):
                    if model in place:
                        lines[place[model], j] = sign
        return max_t_p_values(columns, lines, permutations, seed)

    def _of_best(self, measure: Measure, rows: list[Comparison]) -> list[Comparison]:
        own = [row for row in rows if row.metric == measure.key]
        values = {model: value for row in own for model, value in zip(row.models or (), (row.a, row.b), strict=True)}
        best = (max if measure.higher_is_better else min)(values, key=values.__getitem__)
        with_it = [row for row in own if row.models is not None and best in row.models]
        return [row.turned() if row.models is not None and row.models[1] == best else row for row in with_it]


def named_models(models: Mapping[Any, Any]) -> dict[str, Any]:
    """Models by their names.

    Raises:
        ValueError: if there are fewer than two, or one has an empty name.
    """
    named = {str(name): model for name, model in models.items()}
    if len(named) < 2 or "" in named:
        raise ValueError(f"models must be at least two, by name; got {', '.join(map(shown, named)) or 'none'}")
    return named


Models = Evaluation | HasArray | Sequence[Evaluation | HasArray | int]


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
@told
def compare(
    a: Models | Mapping[str, Models],
    b: Models | MetricLike | Sequence[MetricLike] | None = None,
    metric: MetricLike | Sequence[MetricLike] = "mrr",
    *,
    baseline: str | None = None,
    confidence_level: float = 0.95,
    cluster: Cluster | None = None,
    n_resamples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
) -> Comparison | Comparisons | PairwiseComparisons:
    """Compare models on the same tasks, aligned by (side, sample id), or by order when none has sample ids.

    ``compare(a, b, metric)`` takes two, ``compare({"a": ..., "b": ..., "c": ...}, metric)`` any number: then pairs and
    metrics are one family, whose p-values are adjusted by max-T over sign flips of the tasks, or by Holm where some
    have another test (several runs) or none (the median).

    p-value: sign-flip permutation; exact McNemar for hits without clusters and weights. Interval: the differences that
    the same test does not reject (for hits with Tango's test), so it contains 0 exactly where p is above
    1 - confidence_level; bootstrap percentiles for the median and its kin, which have no p. Lists of runs generalise
    to other training seeds: Student's t for both, and ``seeds`` splits the variance. Warns where so few tasks
    make up the error that the interval may well miss. Nothing is synchronised across processes.

    Args:
        a: a ``RankTable``, ``RankCollection`` or ``Ranks``; or a list of them, one per training seed; or a dict of
            name -> such.
        b: the other model, of the same tasks; beside a dict the metric.
        metric: a name in any view but p_value, with its side, rank type and average, a ``RankDefinition`` or a
            ``RankMetric``; or several: then p-values are also adjusted by Holm. Views are against the chance that the
            metric expects; a name's against that of the collections among the models: of their first metric of that
            definition, else of their first.
        baseline: beside a dict, None: all pairs; the name of a model: it against each other one; "best": the best of
            each metric, which is seen in the data, so that the family is that of all pairs.
        confidence_level: of confidence.
        cluster: what is drawn together: "group", "sample_id", or int64 keys aligned with the tasks of ``a``: with the
            rows of its ``table()`` if it is a collection with sample ids, else in the order given.
        n_resamples: of the bootstrap.
        permutations: of the sign-flip test; p is at least 1 / (permutations + 1). For m > 1 metrics at least
            50 m / (1 - confidence_level) are drawn, so that Holm's correction can still reject.
        seed: of both.

    Raises:
        TypeError, ValueError: for bad options, and tasks that are not the same (the first that are missing are told).

    >>> from torchrankmetrics import Ranks
    >>> a, b = Ranks([1, 2, 1, 3, 1, 2], None, 50), Ranks([4, 2, 3, 9, 5, 8], None, 50)
    >>> print(compare(a, b, "hits@3"))
    hits_at_3: 1.0000 - 0.3333 = +0.6667 [-0.1365, +0.9032] at 95 %, p = 0.12 (exact McNemar); 6 tasks
    """
    confidence_level = check_confidence_level(confidence_level)
    check_int("n_resamples", n_resamples, 100)
    check_int("permutations", permutations, 99)
    if (permutations + 1) * (1 - confidence_level) < 1 - 1e-9:
        raise ValueError(
            f"permutations must be at least {math.ceil(1 / (1 - confidence_level)) - 1} for "
            f"confidence_level={confidence_level}: p is never below 1 / (permutations + 1), so that "
            f"nothing could be rejected; got {permutations}"
        )
    if isinstance(a, Mapping):
        if b is not None and metric != "mrr":
            raise TypeError("beside a dict of models the metric comes second: compare({'a': ..., 'b': ...}, metric)")
        options = (confidence_level, n_resamples, permutations, seed)
        return _compare_all(a, metric if b is None else b, cluster, baseline, options)
    if b is None:
        raise TypeError("b is missing: compare(a, b), or compare({'a': ..., 'b': ...}) of any number of models")
    if baseline is not None:
        raise ValueError("baseline says which of several models: pass a dict of name -> model")
    several_metrics = isinstance(metric, list | tuple)
    entries = _entries(metric)
    runs_a, runs_b, rows, keys = _paired_runs(a, cast("Models", b), cluster)
    measures = [_measure(entry, [*runs_a, *runs_b]) for entry in entries]
    if len(measures) > 1:
        permutations = max(permutations, math.ceil(50 * len(measures) / (1 - confidence_level)) - 1)
    options = (confidence_level, n_resamples, permutations, seed)
    results = [_compared(paired_measure(measure, rows, len(runs_a), keys), options) for measure in measures]
    tested = {i: result.p_value for i, result in enumerate(results) if result.p_value is not None}
    for i, p in zip(tested, holm(list(tested.values())), strict=True):
        results[i] = dataclasses.replace(results[i], p_adjusted=float(p))
    warn_of_few_tasks({result.metric: result.effective_tasks for result in results})
    _warn_of_no_bound([result.metric for result in results if not result.bounded], confidence_level)
    return Comparisons(tuple(results)) if several_metrics else results[0]


def _compare_all(
    models: Mapping[str, Models],
    metric: Any,
    cluster: Cluster | None,
    baseline: str | None,
    options: tuple[float, int, int, int],
) -> PairwiseComparisons:
    confidence_level, n_resamples, permutations, seed = options
    entries = _entries(metric)
    runs = {name: _runs(model, shown(name)) for name, model in named_models(models).items()}
    several = {name for name, of_model in runs.items() if len(of_model) > 1}
    if several and len(several) < len(runs):
        alone = next(name for name in runs if name not in several)
        raise ValueError(f"all models must be lists of at least 2 runs if one is; {shown(alone)} has 1")
    names = [f"{shown(name)}[{i}]" if several else shown(name) for name, part in runs.items() for i in range(len(part))]
    flat = [run for part in runs.values() for run in part]
    rows, keys = paired_rows(flat, names, cluster)
    measures = list({(measure := _measure(entry, flat)).key: measure for entry in entries}.values())
    rest = iter(rows)
    family = Family({name: [next(rest) for _ in part] for name, part in runs.items()}, keys, measures, baseline)
    if not family.flips:  # so that Holm's correction can still reject
        permutations = max(permutations, math.ceil(50 * family.size / (1 - confidence_level)) - 1)
    found = family.compare(
        lambda pair: _compared(pair, (confidence_level, n_resamples, permutations, seed)), permutations, seed
    )
    warn_of_few_tasks({row.label: row.effective_tasks for row in found.rows})
    _warn_of_no_bound([row.label for row in found.rows if not row.bounded], confidence_level)
    return found


def _entries(metric: Any) -> list[Any]:
    if isinstance(metric, list | tuple) and not metric:
        raise ValueError("metric is empty: name at least one")
    return list(metric) if isinstance(metric, list | tuple) else [metric]


def paired(a: Models, b: Models, metric: MetricLike, cluster: Cluster | None = None) -> PairedMeasure:
    """Measure two models, or several runs of each, on the same tasks; arguments and errors as in ``compare``."""
    runs_a, runs_b, rows, keys = _paired_runs(a, b, cluster)
    return paired_measure(_measure(metric, [*runs_a, *runs_b]), rows, len(runs_a), keys)


def _paired_runs(
    a: Models, b: Models, cluster: Cluster | None
) -> tuple[list[Evaluation], list[Evaluation], list[Rows], IntArray | None]:
    runs_a, runs_b = _runs(a, "a"), _runs(b, "b")
    several = len(runs_a) > 1 or len(runs_b) > 1
    if several and min(len(runs_a), len(runs_b)) < 2:
        raise ValueError(
            "a and b must both be lists of at least 2 runs to tell training seeds apart, got "
            f"{len(runs_a)} and {len(runs_b)}"
        )
    names = [f"a[{i}]" if several else "a" for i in range(len(runs_a))]
    names += [f"b[{i}]" if several else "b" for i in range(len(runs_b))]
    rows, keys = paired_rows([*runs_a, *runs_b], names, cluster)
    return runs_a, runs_b, rows, keys


def _compared(found: PairedMeasure, options: tuple[float, int, int, int]) -> Comparison:
    runs, slope = found.runs, found.slope
    interval, split = runs.difference(*options)
    if split is not None:
        parts = {part: getattr(split, part) * slope**2 for part in ("seeds", "tasks", "interaction")}
        split = dataclasses.replace(split, **parts)
    ends = interval.low * slope, interval.high * slope
    low, high = ends if math.isnan(slope) else sorted(ends)
    return Comparison(
        metric=found.measure.key,
        a=found.a,
        b=found.b,
        difference=found.difference,
        low=low,
        high=high,
        confidence_level=options[0],
        p_value=interval.p_value,
        p_adjusted=None,
        test=interval.test,
        num_tasks=found.num_tasks,
        num_clusters=None if runs.keys is None else runs.units.size,
        effective_clusters=None if runs.keys is None else runs.units.effective,
        seeds=split,
        permutations=interval.permutations,
        effective_tasks=interval.effective_tasks,
        bounded=interval.bounded,
    )


def _runs(models: Models, name: str) -> list[Evaluation]:
    runs: list[Any] = list(models) if isinstance(models, list | tuple) and not is_list_of_ranks(models) else [models]
    if not runs:
        raise ValueError(f"{name} is an empty list: pass at least one run")
    return [as_evaluation(run, name, ", or a list of them") for run in runs]


def _warn_of_no_bound(keys: list[str], confidence_level: float) -> None:
    if keys:
        warn(
            f"so few tasks or clusters differ that nothing can be rejected at level {confidence_level:g}: the interval "
            f"of {', '.join(map(shown, keys))} is all that is possible, on an end or on both. Use more tasks"
        )


def _measure(metric: Any, models: list[Evaluation]) -> Measure:
    """What is asked, against the chance of the first collection unless the metric has its own."""
    if has_measure(metric):
        found = measure_of(metric)
    else:
        name = parse_name(metric) if isinstance(metric, str) else MetricName(metric)
        known = [one for model in models if isinstance(model, Collected) for one in model.measures.values()]
        own = [one for one in known if one.definition == name.definition] or known  # members may differ in it
        found = as_measure(name, own[0].expectation if own else None)
    if not found.is_estimate:
        raise ValueError(
            f"{shown(found.key)} cannot be compared: use a metric in view base, normalized, adjusted_index or z_score"
        )
    return found
