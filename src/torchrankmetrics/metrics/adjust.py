"""`adjust`: the chance-adjusted value of a published number."""

from __future__ import annotations  # help() shows the names of types

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import overload

import numpy as np

from torchrankmetrics.datasets import candidate_counts, dataset_facts
from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.definitions.protocol import View
from torchrankmetrics.definitions.sample import CandidateCounts, RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import apply_transform, as_transform
from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.measure import Measure, affine_view
from torchrankmetrics.metrics.names import base_definition
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.null.p_values import log_p_value
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.validation import is_int, one_number, probability_text, shorten

_NORMAL = 1.959963984540054  # 97.5% of a standard normal lies below
Metric = str | RankDefinition
Counts = str | Integers | CandidateCounts
Provider = ExpectationProvider | None


@dataclass(frozen=True)
class Rounded:
    """A number that was computed from printed digits.

    Attributes:
        value (float): of the printed digits.
        rounding_low, rounding_high (float): ends of the interval of the numbers that are printed
            with these digits. This is not a confidence interval.
        sampling (float): largest half-width that the normal 95% interval for independent tasks can
            have; NaN if unknown.
        is_binomial (bool): whether ``sampling`` is exact, because the metric is a share of tasks
            (hits) and its sampling error is that of a binomial variable.
        log10_p (tuple): log10 of value, rounding_low and rounding_high for the view "p_value".

    >>> from torchrankmetrics import adjust
    >>> adjusted = adjust("0.355", "mrr", "FB15k-237")
    >>> float(adjusted)
    0.35454103687186506
    >>> print(adjusted)
    0.3545 (rounding: 0.3540 to 0.3550)
    """

    value: float
    rounding_low: float
    rounding_high: float
    sampling: float = math.nan
    is_binomial: bool = False
    log10_p: tuple[float, float, float] | None = None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        numbers = self.value, self.rounding_low, self.rounding_high
        if self.log10_p is None:
            value, low, high = (f"{number:.4f}" for number in numbers)
        else:
            value, low, high = map(probability_text, self.log10_p)
        sampling = f"; sampling: ±{self.sampling:.4f} at 95%" if self.is_binomial else ""
        return f"{value} (rounding: {low} to {high}{sampling})"


@overload
def adjust(
    value: float,
    metric: Metric,
    num_candidates: Counts,
    *,
    view: View = ...,
    expectation: Provider = ...,
) -> float: ...
@overload
def adjust(
    value: str,
    metric: Metric,
    num_candidates: Counts,
    *,
    view: View = ...,
    expectation: Provider = ...,
) -> Rounded: ...
@suggest_keywords
def adjust(
    value: float | str,
    metric: Metric,
    num_candidates: Counts,
    *,
    view: View = "adjusted_index",
    expectation: Provider = None,
) -> float | Rounded:
    """Return the chance-adjusted view of a published base value.

    It needs the candidate counts of the test set.

    Args:
        value (float or str): the base value; a str of digits, such as "0.355", represents all
            values that round to it.
        metric (str or RankDefinition): a base metric by name, or a ``RankDefinition``.
        num_candidates (str, integers or CandidateCounts): integers N_i (tasks,), filtered for
            filtered results; one int for the index and ratio of means of f; or the name of a
            dataset: the filtered test tasks of both sides (``candidate_counts`` returns others).
        view (str, default "adjusted_index"): "adjusted_index", "normalized", "z_score" or
            "p_value", which is valid for pessimistic ranks.
        expectation (ExpectationProvider, default None): source of the null moments; None: exact.

    Returns:
        A float; for a str a ``Rounded`` with the interval of its rounding and the sampling error
        of hits, or a bound on that of other metrics.

    Raises:
        TypeError, ValueError: for invalid options, and values that are impossible with these
            candidate counts.

    Source: Berrendorf et al. 2020 (arXiv 2002.06914), section 4; Hoyt et al. 2022 (arXiv
        2203.07544), section 3.

    >>> from torchrankmetrics import adjust
    >>> adjust(3.5, "mr", 14)
    0.6153846153846154
    >>> print(adjust("3.5", "mr", 14))
    0.6154 (rounding: 0.6077 to 0.6231)
    >>> print(adjust("0.355", "mrr", "fb15k237"))
    0.3545 (rounding: 0.3540 to 0.3550)
    >>> print(adjust("0.543", "hits@10", "fb15k237"))
    0.5427 (rounding: 0.5422 to 0.5432; sampling: ±0.0048 at 95%)
    """
    _check_order(value, metric, num_candidates)
    definition = base_definition(metric)
    measure = Measure(definition, view, expectation=expectation)  # type: ignore[arg-type]
    counts, is_one = _read_counts(num_candidates, definition, view)
    printed, points = _read_value(value, definition, counts)
    if view == "p_value":
        rounded = _p_values(definition, points, counts)
    else:
        moments = measure.expectation.moments(definition, counts)
        in_view, slope = affine_view(definition, view, moments)
        rounded = Rounded(*_ordered(map(in_view, points)))
        if isinstance(value, str) and not is_one and definition.is_mean_of_f:
            sampling = abs(slope) * _NORMAL * _largest_error(definition, printed, counts)
            rounded = replace(rounded, sampling=sampling, is_binomial=definition.is_share)
    if math.isnan(rounded.value):
        warn(f"{measure.key} is undefined (NaN): under random ranking its value is a constant")
    return rounded if isinstance(value, str) else rounded.value


def _read_counts(
    num_candidates: Counts, definition: RankDefinition, view: View
) -> tuple[CandidateCounts, bool]:
    """Read the counts of the tasks of a metric; and whether one count was given for all."""
    if isinstance(num_candidates, str):
        if num_candidates.isdecimal():
            raise ValueError(
                f"num_candidates must be ints or a dataset, got {shorten(num_candidates)}: pass an "
                "int"
            )
        num_candidates = candidate_counts(num_candidates)
    is_one = is_int(num_candidates) or getattr(num_candidates, "ndim", 1) == 0
    if is_one and (view in ("z_score", "p_value") or not definition.is_mean_of_f):
        raise ValueError(
            f"num_candidates must have one count per task for {shorten(definition.name)} with "
            f"view={view!r}: its null distribution depends on the number of tasks; pass [N] * tasks"
        )
    counts = CandidateCounts.of(num_candidates).at_least(definition.min_candidates)
    if counts.num_tasks == 0:
        least = definition.min_candidates
        raise ValueError(
            f"num_candidates must contain a count of at least {least} for "
            f"{shorten(definition.name)}"
        )
    return counts, is_one


def _read_value(
    value: float | str, definition: RankDefinition, counts: CandidateCounts
) -> tuple[float, list[float]]:
    """Read a number; and the possible values nearest to it and to the ends of its rounding."""
    center, half = _read(value)
    low, high = _range_of(definition, counts)
    if not low <= center + half or not center - half <= high:
        hint = " (as a share, not in percent)" if high <= 1 < center <= 100 else ""
        raise ValueError(
            f"value of {shorten(definition.name)} must lie in [{low:g}, {high:g}] for these "
            f"candidate counts{hint}, got {shorten(value)}"
        )
    return center, [min(max(x, low), high) for x in (center, center - half, center + half)]


def _range_of(definition: RankDefinition, counts: CandidateCounts) -> tuple[float, float]:
    """Smallest and largest value: those of every rank 1 and of every rank N."""
    if definition.optimum is None:
        return 0.0, math.inf
    N = counts.num_candidates
    ends = [RankSample(r, r, N, weight=counts.weight, count=counts.count) for r in (N**0, N)]
    low, high = sorted(map(definition.value, ends))
    return low, high


def _p_values(
    definition: RankDefinition, points: Sequence[float], counts: CandidateCounts
) -> Rounded:
    logs = {x: log_p_value(definition, x, counts) for x in {*points}}
    values = _ordered(math.exp(logs[x]) for x in points)
    return Rounded(*values, log10_p=_ordered(logs[x] / math.log(10) for x in points))


def _largest_error(definition: RankDefinition, mean: float, counts: CandidateCounts) -> float:
    """Largest standard error that a mean of f can have, of independent tasks.

    Numbers in [a, b] of mean m have at most the variance (m - a)(b - m): Bhatia and Davis 2000
    (doi:10.1080/00029890.2000.12005203).
    """
    N = counts.num_candidates
    f = as_transform(definition.f).at(int(N[-1]))
    a, b = sorted(apply_transform(f, np.array([1.0, N[-1]])).tolist())
    return math.sqrt(max((mean - a) * (b - mean), 0.0) / counts.num_tasks)


def _check_order(*given: object) -> None:
    """Raise TypeError for a value, a metric and a dataset in another order."""
    roles = [_role(one) for one in given]
    order = ["value", "metric", "dataset"]
    if roles != order and sorted(roles) == sorted(order):
        value, metric, dataset = (shorten(given[roles.index(role)]) for role in order)
        raise TypeError(
            "adjust takes the value, the metric and the dataset in this order: write "
            f"adjust({value}, {metric}, {dataset})"
        )
    if "metric" in roles and roles[1] != "metric":
        call = ", ".join(map(shorten, given))
        raise TypeError(
            "adjust takes the value, the metric and the numbers of candidates in this order, such "
            f"as adjust(0.355, 'mrr', 14541), got adjust({call})"
        )


def _role(given: object) -> str:
    """Return what an argument of ``adjust`` looks like."""
    if one_number(given) is not None:
        return "value"
    if not isinstance(given, str):
        return ""
    if re.fullmatch(r"\s*[-+]?\d*\.?\d+%?\s*", given):
        return "value"
    for role, read in (("metric", base_definition), ("dataset", dataset_facts)):
        with suppress(ValueError):
            read(given)
            return role
    return ""


def _ordered(values: Iterable[float]) -> tuple[float, float, float]:
    """The first value, and the smaller and the larger of the other two."""
    value, *ends = values
    return value, min(ends), max(ends)


def _read(value: object) -> tuple[float, float]:
    """Return a number and half a unit of its last printed digit."""
    if isinstance(value, str):
        try:
            digits = Decimal(value.strip())
        except InvalidOperation:
            digits = Decimal("nan")
        if not digits.is_finite():
            raise ValueError(
                'value must be a number or digits such as "0.355" (not in percent); got '
                f"{shorten(value)}"
            )
        return float(digits), float(Decimal(5).scaleb(int(digits.as_tuple().exponent) - 1))
    number = one_number(value)
    if number is None:
        raise TypeError(f"value must be a float or a str of its digits, got {type(value).__name__}")
    if not math.isfinite(number):
        raise ValueError(f"value must be finite, got {value}")
    return float(number), 0.0
