"""compare: two models on the same tasks, with an interval and a p-value of their difference."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.evaluation.analysis import sample_of
from torchrankmetrics.evaluation.comparison import Comparison, Comparisons
from torchrankmetrics.evaluation.intervals import check_level, check_number, warn_of_support
from torchrankmetrics.evaluation.names import MetricName, parse_name
from torchrankmetrics.evaluation.pairing import paired_rows
from torchrankmetrics.evaluation.sources import check_evaluation
from torchrankmetrics.table import columns
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import IDENTITY, RankDefinition
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.inference.bootstrap import percentile_interval, percentile_support, replicate_values
from torchrankmetrics.theory.inference.differences import Difference, paired_difference, paired_shares
from torchrankmetrics.theory.inference.intervals import mean_limits
from torchrankmetrics.theory.inference.seeds import SmoothFunction, seeded_difference
from torchrankmetrics.theory.inference.testing import holm
from torchrankmetrics.theory.inference.units import Units, is_mean, is_share, task_values, units_of
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.transforms import apply_transform, transform_slopes
from torchrankmetrics.theory.values import base_value
from torchrankmetrics.theory.views import apply_view, has_view, view_slope


@overload
def compare(
    a: Any,
    b: Any,
    metric: str | RankDefinition = ...,
    *,
    level: float = ...,
    cluster: Any = ...,
    resamples: int = ...,
    permutations: int = ...,
    seed: int = ...,
) -> Comparison: ...
@overload
def compare(
    a: Any,
    b: Any,
    metric: Sequence[str | RankDefinition],
    *,
    level: float = ...,
    cluster: Any = ...,
    resamples: int = ...,
    permutations: int = ...,
    seed: int = ...,
) -> Comparisons: ...
def compare(
    a: Any,
    b: Any,
    metric: Any = "mrr",
    *,
    level: float = 0.95,
    cluster: Any = None,
    resamples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
) -> Comparison | Comparisons:
    """Compare two models on the same tasks, aligned by (side, sample id), or by order when neither has sample ids.

    p-value: sign-flip permutation; exact McNemar for hits without clusters and weights. Interval: what the same test
    does not reject (for hits with Tango's), so it holds 0 where p is above 1 - level; bootstrap percentiles for the
    median and its kin, which have no p. Lists of runs generalise to other training seeds: Student's t for both, and
    ``seeds`` splits the variance. Warns where so few tasks make up the error that the interval may well miss. Nothing
    is synchronised across processes.

    Args:
        a: a ``RankTable``, ``RankCollection`` or ``Ranks``; or a list of them, one per training seed.
        b: the other model, of the same tasks.
        metric: a name in any view but p_value, with its side and rank type, or a ``RankDefinition``; or several: then
            p-values are also adjusted by Holm.
        level: of confidence.
        cluster: what is drawn together: "group", "sample_id", or int64 keys aligned with the tasks of ``a``: with the
            rows of its ``table()`` if it is a collection with sample ids, else in the order given.
        resamples: of the bootstrap.
        permutations: of the sign-flip test; p is at least 1 / (permutations + 1). For m > 1 metrics at least
            50 m / (1 - level) are drawn, so that Holm's correction can still reject.
        seed: of both.

    Raises:
        TypeError, ValueError: for bad options, and tasks that are not the same (the first that are missing are told).

    >>> from torchrankmetrics import Ranks
    >>> a, b = Ranks([1, 2, 1, 3, 1, 2], None, 50), Ranks([4, 2, 3, 9, 5, 8], None, 50)
    >>> print(compare(a, b, "hits@3"))
    hits_at_3: 1.0000 - 0.3333 = +0.6667 [-0.1365, +0.9032] at 95 %, p = 0.12 (exact McNemar); 6 tasks
    """
    check_level(level)
    check_number("resamples", resamples, 100)
    check_number("permutations", permutations, 99)
    if (permutations + 1) * (1 - level) < 1 - 1e-9:
        raise ValueError(
            f"permutations must be at least {math.ceil(1 / (1 - level)) - 1} for level={level}: p is never below "
            f"1 / (permutations + 1), so that nothing could be rejected; got {permutations}"
        )
    runs_a, runs_b = _runs(a, "a"), _runs(b, "b")
    several = len(runs_a) > 1 or len(runs_b) > 1
    if several and min(len(runs_a), len(runs_b)) < 2:
        raise ValueError(
            "a and b must both be lists of at least 2 runs to tell training seeds apart, got "
            f"{len(runs_a)} and {len(runs_b)}"
        )
    single = isinstance(metric, str | RankDefinition)
    asked = [_parse(entry) for entry in ([metric] if single else metric)]
    if not asked:
        raise ValueError("metric is empty: name at least one")
    names = [f"a[{i}]" if several else "a" for i in range(len(runs_a))]
    names += [f"b[{i}]" if several else "b" for i in range(len(runs_b))]
    rows, keys = paired_rows([*runs_a, *runs_b], names, cluster)
    if len(asked) > 1:
        permutations = max(permutations, math.ceil(50 * len(asked) / (1 - level)) - 1)
    options = (level, resamples, permutations, seed)
    results = [_Question(name, rows, len(runs_a), keys).answer(*options) for name in asked]
    tested = {i: result.p_value for i, result in enumerate(results) if result.p_value is not None}
    for i, p in zip(tested, holm(list(tested.values())), strict=True):
        results[i] = dataclasses.replace(results[i], p_adjusted=float(p))
    warn_of_support({result.metric: result.support for result in results}, 3)
    _warn_of_no_bound([result.metric for result in results if not result.bounded], level)
    return results[0] if single else Comparisons(tuple(results))


class _Question:
    """One metric on the tasks of its side, with all runs side by side."""

    def __init__(self, name: MetricName, rows: list[Rows], num_a: int, keys: IntArray | None) -> None:
        measure = name.measure()
        used = columns.used(rows[0], measure.side, measure.definition.min_candidates)
        if not used.any():
            side = "" if measure.side == "both" else f" of side {measure.side!r}"
            raise ValueError(f"no tasks{side} to compare {measure.definition.name!r} on")
        self.definition = measure.definition
        self.view = measure.view
        self.rank_type = measure.rank_type
        self.key = measure.key
        self.samples: list[RankSample] = [sample_of(part[used]) for part in rows]
        self.num_a = num_a
        self.keys = None if keys is None else keys[used]

    def answer(self, level: float, resamples: int, permutations: int, seed: int) -> Comparison:
        values = [base_value(self.definition, sample, self.rank_type) for sample in self.samples]
        slope = 1.0
        if self.view != "base":
            moments = DEFAULT_EXPECTATION.moments(self.definition, self.samples[0].candidate_counts)
            values = [apply_view(self.definition, self.view, value, moments) for value in values]
            slope = view_slope(self.definition, self.view, moments)
        a, b = float(np.mean(values[: self.num_a])), float(np.mean(values[self.num_a :]))
        split = None
        if not is_mean(self.definition, self.rank_type):
            found = self._any_interval(level, resamples, seed)
        elif len(self.samples) > 2:
            result = seeded_difference(self._units(), self.num_a, self._elementwise(), level)
            found = Difference(result.low, result.high, result.p_value, "t over seeds and tasks")
            split = dataclasses.replace(
                result.split,
                **{part: getattr(result.split, part) * slope**2 for part in ("seeds", "tasks", "interaction")},
            )
        else:
            found = self._paired(level, permutations, seed)
        ends = found.low * slope, found.high * slope
        low, high = sorted(ends) if slope == slope else ends
        number = effective = None
        if self.keys is not None:
            units = self._units()
            number, effective = units.size, units.effective
        return Comparison(
            metric=self.key,
            a=a,
            b=b,
            difference=a - b,
            low=low,
            high=high,
            level=level,
            p_value=found.p_value,
            p_adjusted=None,
            test=found.test,
            num_tasks=self.samples[0].num_tasks,
            num_clusters=number,
            effective_clusters=effective,
            seeds=split,
            permutations=found.permutations,
            support=found.support,
            bounded=found.bounded,
        )

    def _values(self) -> FloatArray:
        return np.stack([task_values(self.definition, sample, self.rank_type) for sample in self.samples], 1)

    def _units(self) -> Units:
        sample = self.samples[0]
        return units_of(self._values(), sample.weight, sample.count, self.keys)

    def _elementwise(self) -> SmoothFunction:
        g = self.definition.g

        def smooth(means: FloatArray) -> tuple[FloatArray, FloatArray]:
            flat = means.ravel()
            return apply_transform(g, flat, "g").reshape(means.shape), transform_slopes(g, flat).reshape(means.shape)

        return smooth

    def _paired(self, level: float, permutations: int, seed: int) -> Difference:
        units, values, sample = self._units(), self._values(), self.samples[0]
        d = sample.weight * (values[:, 0] - values[:, 1])
        if self.keys is not None:
            _, index = np.unique(self.keys, return_inverse=True)
            d = np.bincount(index, d * sample.count).astype(np.float64)
        if is_share(self.definition):
            return paired_shares(units, d, level, permutations, seed)
        limits = mean_limits(self.definition, sample)
        if self.definition.g != IDENTITY and not np.isfinite(limits).all():  # g need not be defined beyond what f gives
            limits = float(values.min()), float(values.max())
        return paired_difference(units, d, self.definition.g, limits, level, permutations, seed)

    def _any_interval(self, level: float, resamples: int, seed: int) -> Difference:
        if len(self.samples) > 2:
            raise ValueError(
                f"{self.key!r} over several seeds has no variance formula: compare single runs, or a mean of f"
            )
        support = min(percentile_support(self.definition, sample, self.keys) for sample in self.samples)
        # equal seeds draw equal tasks: the pairs stay together
        keys = np.arange(len(self.samples[0].weight)) if self.keys is None else self.keys
        first, second = (
            replicate_values(self.definition, sample, self.rank_type, resamples, seed, keys) for sample in self.samples
        )
        low, high = percentile_interval(first - second, level)[1:]
        return Difference(low, high, None, "bootstrap interval only", None, support)


def _runs(models: Any, name: str) -> list[Any]:
    runs = list(models) if isinstance(models, list | tuple) else [models]
    if not runs:
        raise ValueError(f"{name} is an empty list: pass at least one run")
    for run in runs:
        check_evaluation(run, name, ", or a list of them")
    return runs


def _warn_of_no_bound(keys: list[str], level: float) -> None:
    if keys:
        warnings.warn(
            f"so few tasks or clusters differ that nothing can be rejected at level {level:g}: the interval of "
            f"{', '.join(map(repr, keys))} is all that is possible, on an end or on both. Use more tasks",
            RankMetricWarning,
            stacklevel=3,
        )


def _parse(metric: Any) -> MetricName:
    name = MetricName(metric) if isinstance(metric, RankDefinition) else parse_name(metric)
    if name.view == "p_value" or name.definition.aggregation == "count":
        raise ValueError(
            f"{metric!r} cannot be compared: use a metric in view base, normalized, adjusted_index or z_score"
        )
    if name.view is not None and not has_view(name.definition, name.view):
        raise ValueError(f"{metric!r} has no meaning: {name.definition.name!r} has no best value")
    return name
