"""p-values of metrics of ranking tasks."""

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, distinct_rows
from torchrankmetrics.definitions.kinds import AUC, IDENTITY, AtMost, Power, WithCandidates
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.transforms import KnownTransform, RankTransform, known
from torchrankmetrics.null.tails.joint import law_by_candidates
from torchrankmetrics.null.tails.laws import MOST_GROUPS, MOST_WEIGHTS, AucSumLaw, HitSumLaw, RankSumLaw, SumLaw
from torchrankmetrics.null.tails.transform_law import TransformSumLaw
from torchrankmetrics.null.tails.upper import log_upper_tail
from torchrankmetrics.validation import shown

if TYPE_CHECKING:
    from torchrankmetrics.definitions.tasks import RankDefinition

_RELATIVE = 2.0**-21  # four units in the last place of float32
_MOST_UNITS = 1000  # in the largest weight


def rounded_weights(counts: CandidateCounts) -> tuple[CandidateCounts, CandidateCounts] | None:
    """Replace weights by those that they stand for.

    Returns:
        the tasks with rounded weights, and the same tasks weighted by how far each weight was moved; None if weights
        are all equal, or none has a neighbour or unit to be rounded to.
    """
    v = np.unique(counts.weight)
    if len(v) == 1:
        return None
    index = _clusters(v)
    units = np.bincount(index, v) / np.bincount(index)
    if len(units) <= MOST_WEIGHTS:
        units = _multiples(units)
    elif len(units) == len(v):
        return None
    weight = units[index[np.searchsorted(v, counts.weight)]]
    weight = weight / (weight * counts.count).sum()
    (N, merged), count = distinct_rows((counts.num_candidates, weight), counts.count)
    moved = np.abs(counts.weight - weight)
    some = moved > 0
    if not some.any():
        return None
    return CandidateCounts(N, merged, count), CandidateCounts(
        counts.num_candidates[some], moved[some], counts.count[some]
    )


def _clusters(v: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Number of the cluster of each of ascending weights: (m,) float64 in, (m,) int64 out."""
    starts = np.zeros(len(v), dtype=np.int64)
    ends = np.searchsorted(v, v * (1 + _RELATIVE), side="right").tolist()  # where a cluster that begins here ends
    begin = 0
    while begin < len(v):
        starts[begin], begin = 1, ends[begin]
    return np.cumsum(starts) - 1


def _multiples(v: FloatArray) -> FloatArray:
    """The weights as the smallest integers that they are proportional to; as they are if there are none."""
    ratio = np.multiply.outer(np.arange(1, _MOST_UNITS + 1), v / v.max())
    whole = np.rint(ratio)
    fits = ((whole > 0) & (np.abs(ratio - whole) <= _RELATIVE * whole)).all(axis=1)
    return whole[np.argmax(fits)] if fits.any() else v


def has_p_value(definition: Definition) -> bool:
    """Whether the law of the metric is at hand: a mean of any f under a monotone g, or the largest or smallest rank.

    >>> from torchrankmetrics.definitions.tasks import HARMONIC_MEAN_RANK, MEDIAN_RANK
    >>> has_p_value(HARMONIC_MEAN_RANK), has_p_value(MEDIAN_RANK)
    (True, False)
    """
    return definition.has_p_value


def p_value(
    definition: "RankDefinition",
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
) -> float:
    """Probability under random ranking of a value at least as good, in [0, 1]; smaller is stronger evidence.

    If scores are tied, the value must come from pessimistic ranks: then P(p <= a) <= a for any tie structure.
    0.0 may be an underflow: ``log_p_value`` has it. Arguments, errors and source are those of ``log_p_value``.

    >>> from torchrankmetrics.definitions.tasks import hits_at
    >>> round(p_value(hits_at(1), 3 / 6268, [40943] * 6268), 9)  # z = 7.3, of normal p 1.7e-13
    0.000533138
    """
    return math.exp(log_p_value(definition, value, counts, weight))


def log_p_value(
    definition: "RankDefinition",
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
    *,
    tolerance: float = 1e-9,
    mean: float | None = None,
) -> float:
    """Natural logarithm of P(M at least as good as ``value``) when r_i is uniform on {1..N_i}, independently.

    Range [-inf, 0]; -inf if no ranks reach the value. Values equal to the observed one count.

    Args:
        definition: a metric with ``has_p_value``.
        value: the observed value of the metric, from pessimistic ranks if scores are tied.
        counts: (n,) integers N_i >= 1, or a compressed ``CandidateCounts``.
        weight: (n,) weights w_i >= 0; None: equal.
        tolerance: relative distance within which the mean of f reaches an atom (at most a quarter of the span of a
            lattice), so that the order of summation does not matter.
        mean: the mean of f that ``value`` comes from, where it is at hand; None: it is found by inverting g.

    Raises:
        ValueError: if the law of the metric is not at hand, the value is NaN, or the tolerance is not in [0, 1e-3].

    Source: inversion at the saddlepoint, Daniels 1954 (doi:10.1214/aoms/1177728652); null of Hoyt et al. 2022
    (arXiv 2203.07544).
    """
    if not definition.has_p_value:
        raise ValueError(
            f"{shown(definition.name)} has no p-value: the law is known for a mean of f under a monotone g that has a "
            "direction, and for the largest and smallest rank"
        )
    value = float(value)
    if math.isnan(value):
        raise ValueError(f"value of {shown(definition.name)} must be a number, got nan")
    if not 0 <= tolerance <= 1e-3:
        raise ValueError(f"tolerance must be in [0, 1e-3], got {tolerance}")
    counts = CandidateCounts.of(counts, weight).at_least(definition.min_candidates)
    if counts.num_tasks == 0:
        raise ValueError(
            f"{shown(definition.name)} needs a task with at least {definition.min_candidates} candidates "
            "to have a p-value"
        )
    if definition.is_extreme:
        return _log_extreme(definition, value, counts)
    direction = definition.g_direction
    sign = direction if definition.higher_is_better else -direction
    law = sum_law(definition.f, counts, sign)
    g = known(definition.g if mean is None else IDENTITY)
    mean = _mean_behind(g, direction, value if mean is None else mean, sorted((sign * law.lowest, sign * law.highest)))
    slack = _slack(g, mean, law, tolerance)
    if law.span is None and (rounded := rounded_weights(counts)) is not None:
        moved = sum_law(definition.f, rounded[1], sign)  # bounds how far the mean moves with the weights
        further = slack + max(abs(moved.lowest), abs(moved.highest), moved.highest - moved.lowest)
        rounded_law = sum_law(definition.f, rounded[0], sign)
        if len(counts.weight) > MOST_GROUPS or (rounded_law.span is not None and further < rounded_law.span / 4):
            law, counts, slack = rounded_law, rounded[0], further
    return log_upper_tail(law, sum_law(definition.f, counts, -sign), sign * mean, slack)


def sum_law(f: RankTransform, counts: CandidateCounts, sign: int) -> SumLaw:
    """The law of the sum of sign v f(r): the one place that knows which f have laws of their own."""
    match f:
        case Power(p=1):
            return RankSumLaw(counts, sign)
        case AtMost(k=k):
            return HitSumLaw(counts, k, sign)
        case WithCandidates():
            return AucSumLaw(counts, sign) if f == AUC else law_by_candidates(f, counts, sign)
    return TransformSumLaw(f, counts, sign)


def _mean_behind(g: KnownTransform, direction: int, value: float, ends: list[float]) -> float:
    """The mean of f behind the value g(mean); beyond the range of the mean, an infinity on that side."""
    if g.is_identity:
        return value
    at_low, at_high = g.values(np.array(ends)).tolist()
    # a value at an end may round to either side: only what is clearly outside is outside
    margin = 1e-12 * max(abs(at_low), abs(at_high))
    if (value - at_low) * direction < -margin:
        return -math.inf
    if (value - at_high) * direction > margin:
        return math.inf
    return g.inverse(value, *ends)


def _slack(g: KnownTransform, mean: float, law: SumLaw, tolerance: float) -> float:
    """How far rounding may have moved the mean of f: relative, as sums of one sign are, plus what inverting g costs."""
    width = law.highest - law.lowest
    size = max(abs(law.lowest), abs(law.highest))
    slack = tolerance * (min(width, abs(mean)) if width > 0 else size) if math.isfinite(mean) else 0.0
    slack += 4e-15 * size
    if law.lowest < 0 < law.highest:
        slack += 1e-14 * width
    absolute, share = g.inverse_error
    return slack + (absolute + share * width)


def _log_extreme(definition: "RankDefinition", value: float, counts: CandidateCounts) -> float:
    """The largest (smallest) rank in closed form: all ranks are at most m with probability prod min(m, N_i) / N_i."""
    largest, at_most = definition.aggregation == "maximum", not definition.higher_is_better
    rank = math.floor(value) if at_most else math.ceil(value) - 1  # at most x: r <= floor x; at least x: not r < x
    m = np.clip(rank, 0, counts.num_candidates)
    share = m if largest else counts.num_candidates - m
    with np.errstate(divide="ignore"):
        log_all = float((counts.count * np.log(share / counts.num_candidates)).sum())
    # max <= m is "all at most m"; min <= m is "not all beyond m"
    if largest == at_most:
        return log_all
    return math.log(-math.expm1(log_all)) if log_all < 0 else -math.inf
