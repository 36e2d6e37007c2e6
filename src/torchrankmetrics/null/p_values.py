"""p-values of metrics of ranking tasks: P(M at least as good as observed) under random ranking."""

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.sample import CandidateCounts, FloatArray
from torchrankmetrics.definitions.transforms import AUC, IDENTITY, KnownTransform, known
from torchrankmetrics.null.tails.summands import rank_summands
from torchrankmetrics.null.tails.upper import Bracket, log_upper_tail
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.definitions.tasks import RankDefinition

_EQUAL = 2.0**-21  # relative distance of weights that are equal up to rounding to float32
# relative distance within which the mean of f reaches an atom, whatever the order of its sum
_TOLERANCE = 1e-9
# distinct weights; more have no common divisor that matters, and would be merged in chains
_MOST_LEVELS = 1000


def p_value(
    definition: "RankDefinition",
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
) -> float:
    """Probability under random ranking of a value at least as good, in [0, 1]; smaller is stronger evidence.

    If scores are tied, the value must come from pessimistic ranks: then P(p <= a) <= a for any tie
    structure. 0.0 may be an underflow: use ``log_p_value``. Arguments, errors and source: see
    ``log_p_value``.

    Args:
        definition (RankDefinition): a metric with ``has_p_value``.
        value (float): the observed value, from pessimistic ranks if scores are tied.
        counts (array-like or CandidateCounts): (n,) integers N_i >= 1, or a compressed
            ``CandidateCounts``.
        weight (array-like, default None): (n,) weights w_i >= 0; None: equal.

    Returns:
        The p-value, a float.

    >>> from torchrankmetrics.definitions.tasks import hits_at
    >>> round(p_value(hits_at(1), 3 / 6268, [40943] * 6268), 7)  # z = 7.3, of normal p 1.7e-13
    0.0005331
    """
    return math.exp(log_p_value(definition, value, counts, weight))


def log_p_value(
    definition: "RankDefinition",
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
) -> float:
    """Natural logarithm of P(M at least as good as ``value``) when r_i is uniform on {1..N_i}, independently.

    Range [-inf, 0]; -inf if no ranks reach the value. Values equal to the observed one count. The
    probability is multiplied by 1 + an estimate of its largest relative error, so that it is not
    too small.

    Args:
        definition (RankDefinition): a metric with ``has_p_value``.
        value (float): the observed value of the metric, from pessimistic ranks if scores are tied.
        counts (array-like or CandidateCounts): (n,) integers N_i >= 1, or a compressed
            ``CandidateCounts``.
        weight (array-like, default None): (n,) weights w_i >= 0; None: equal.

    Returns:
        The logarithm, a float of at most 0.

    Raises:
        ValueError: if the metric has no p-value, the value is NaN, or no task has enough
            candidates.

    Source: Daniels 1954 (doi:10.1214/aoms/1177728652), Lugannani and Rice 1980
        (doi:10.2307/1426607), Graham and
    Vaaler 1981 (doi:10.1090/S0002-9947-1981-0607121-1); null of Hoyt et al. 2022 (arXiv
    2203.07544).

    >>> from torchrankmetrics.definitions import hits_at
    >>> round(log_p_value(hits_at(1), 1.0, [10, 10]), 4)  # log(1 / 100)
    -4.6052
    """
    return p_value_bracket(definition, value, counts, weight)[1]


def p_value_bracket(
    definition: "RankDefinition",
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
    *,
    mean: float | None = None,
) -> Bracket:
    """Bracket of ``log_p_value``, which is its upper end; ``mean`` of f if it is known, else g is inverted."""
    if not definition.has_p_value:
        raise ValueError(
            f"{shorten(definition.name)} has no p-value: its distribution is known for a mean of f "
            "under a monotone g that has a direction, and for the largest and smallest rank"
        )
    value = float(value)
    if math.isnan(value):
        raise ValueError(f"value of {shorten(definition.name)} must be a number, got nan")
    least = definition.min_candidates
    counts = CandidateCounts.of(counts, weight).at_least(least)
    if counts.num_tasks == 0:
        raise ValueError(
            f"{shorten(definition.name)} has a p-value only with a task of at least {least} "
            "candidates"
        )
    if definition.is_extreme:
        log_p = _log_extreme(definition, value, counts)
        return log_p, log_p
    direction = definition.g_direction
    sign = direction if definition.higher_is_better else -direction
    v, moved = _without_rounding(counts.weight)
    N, c = counts.num_candidates, counts.count.astype(np.float64)
    is_auc = definition.f == AUC  # (N - r) / (N - 1) are ranks of weight -1 / (N - 1)
    v = v / (N - 1) if is_auc else v
    sums = rank_summands(*((IDENTITY, -sign) if is_auc else (known(definition.f), sign)), N, v, c)
    shift = sign * float((c * v * N).sum()) if is_auc else 0.0
    bottom, top = sums.bottom + shift, sums.top + shift
    g = known(definition.g if mean is None else IDENTITY)
    mean = _mean_behind(
        g, direction, value if mean is None else mean, sorted((sign * bottom, sign * top))
    )
    slack = _slack(g, mean, bottom, top)
    slack += float((c * moved).sum()) * max(abs(bottom), abs(top), top - bottom)
    return log_upper_tail(sums, sign * mean - shift, slack)


def _without_rounding(v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights with those that differ by rounding to float32 as one, and how far each was moved."""
    distinct = np.unique(v)
    new = np.r_[True, np.diff(distinct) > _EQUAL * distinct[1:]]
    if new.all() or new.sum() >= _MOST_LEVELS:
        return v, np.zeros_like(v)
    group = (np.cumsum(new) - 1)[np.searchsorted(distinct, v)]
    merged = (np.bincount(group, v) / np.bincount(group))[group]
    return merged, np.abs(merged - v)


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


def _slack(g: KnownTransform, mean: float, bottom: float, top: float) -> float:
    """How far rounding may have moved the mean of f: relative, as sums of one sign are, plus what inverting g costs."""
    width, size = top - bottom, max(abs(bottom), abs(top))
    slack = (
        _TOLERANCE * (min(width, abs(mean)) if width > 0 else size) if math.isfinite(mean) else 0.0
    )
    slack += 4e-15 * size + (1e-14 * width if bottom < 0 < top else 0.0)
    absolute, share = g.inverse_error
    return slack + (absolute + share * width)


def _log_extreme(definition: "RankDefinition", value: float, counts: CandidateCounts) -> float:
    """The largest (smallest) rank in closed form: all ranks are at most m with probability prod min(m, N_i) / N_i."""
    largest, at_most = definition.aggregation == "maximum", not definition.higher_is_better
    # at most x: r <= floor x; at least x: not r < x
    rank = math.floor(value) if at_most else math.ceil(value) - 1
    m = np.clip(rank, 0, counts.num_candidates)
    share = m if largest else counts.num_candidates - m
    with np.errstate(divide="ignore"):
        log_all = float((counts.count * np.log(share / counts.num_candidates)).sum())
    # max <= m is "all at most m"; min <= m is "not all beyond m"
    if largest == at_most:
        return log_all
    return math.log(-math.expm1(log_all)) if log_all < 0 else -math.inf
