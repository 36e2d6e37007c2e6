"""p-values of metrics of ranking tasks: P(M at least as good as observed) under random ranking."""

from __future__ import annotations  # help() shows the names of types

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.sample import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.definitions.transforms import EQUAL, IDENTITY, KnownTransform, as_transform
from torchrankmetrics.null.tails.lists import Values, values_of
from torchrankmetrics.null.tails.upper import Tail, log_upper_tail
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.definitions.tasks import RankDefinition


def p_value(
    definition: RankDefinition,
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
) -> float:
    """Probability under random ranking of a value at least as good, in [0, 1].

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

    >>> from torchrankmetrics.null import p_value
    >>> from torchrankmetrics.definitions.tasks import hits_at
    >>> round(p_value(hits_at(1), 3 / 6268, [40943] * 6268), 7)  # z = 7.3, of normal p 1.7e-13
    0.0005331
    """
    return math.exp(log_p_value(definition, value, counts, weight))


def log_p_value(
    definition: RankDefinition,
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
) -> float:
    """Natural logarithm of P(M at least as good as ``value``) under random ranking.

    Range [-inf, 0]; -inf if no ranks reach the value. Values equal to the observed one count, up to
    a relative 1e-9. The relative error of p is about 1%, and 0.5% of the logarithm in the far tail.

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

    Source: Lugannani and Rice 1980 (doi:10.2307/1426607), Daniels 1987 (doi:10.2307/1403269); null
        of Hoyt et al. 2022 (arXiv 2203.07544).

    >>> from torchrankmetrics.null import log_p_value
    >>> from torchrankmetrics.definitions import hits_at
    >>> round(log_p_value(hits_at(1), 1.0, [10, 10]), 4)  # log(1 / 100)
    -4.6052
    """
    return upper_tail(definition, value, counts, weight).log_p


def upper_tail(
    definition: RankDefinition,
    value: float,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None = None,
    *,
    mean: float | None = None,
) -> Tail:
    """``log_p_value`` and its relative error; ``mean`` of f if it is known, else g is inverted."""
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
        return Tail(_log_extreme(definition, value, counts), 0.0)
    return _tail_of_mean(definition, value, counts, mean)


def _tail_of_mean(
    definition: RankDefinition, value: float, counts: CandidateCounts, mean: float | None
) -> Tail:
    direction = definition.g_direction
    sign = direction if definition.higher_is_better else -direction
    c = counts.count.astype(np.float64)
    values, which, v, shift = _summands(as_transform(definition.f), sign, counts)
    bottom = float(c @ (v * values.worst[which])) + shift
    top = float(c @ (v * values.best[which])) + shift

    g = as_transform(definition.g if mean is None else IDENTITY)
    if mean is None:
        mean = value
    mean = _mean_behind(g, direction, mean, sorted((sign * bottom, sign * top)))
    slack = _slack(g, mean, bottom, top)
    return log_upper_tail(values, which, v, c, sign * mean - shift, slack)


def _summands(
    f: KnownTransform, sign: int, counts: CandidateCounts
) -> tuple[Values, IntArray, FloatArray, float]:
    """Values x, and the distribution and weight v of each group; v x sums to S less a constant."""
    N, which = np.unique(counts.num_candidates, return_inverse=True)
    parts = f.by_rank(N)
    if parts is None:
        return values_of(f, sign, N), which, counts.weight, 0.0
    ranked, factor = parts
    v = counts.weight * np.abs(factor)[which]
    values = values_of(ranked, sign * int(np.sign(factor[0])), N)
    if ranked is f:
        return values, which, v, 0.0
    at_one = f.at(int(N[0])).values(np.ones(1))[0]
    shift = sign * at_one - np.abs(factor) * values.best
    return values, which, v, float((counts.count * counts.weight * shift[which]).sum())


def _mean_behind(g: KnownTransform, direction: int, value: float, ends: list[float]) -> float:
    """The mean of f behind the value g(mean); an infinity if the value is out of range."""
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
    """How far rounding, also of the inverse of g, may have moved the mean of f."""
    width = top - bottom
    size = max(abs(bottom), abs(top))
    slack = 0.0
    if math.isfinite(mean):
        slack = EQUAL[0] * (min(width, abs(mean)) if width > 0 else size)
    slack += EQUAL[1] * size + (1e-14 * width if bottom < 0 < top else 0.0)
    absolute, share = g.inverse_error
    return slack + (absolute + share * width)


def _log_extreme(definition: RankDefinition, value: float, counts: CandidateCounts) -> float:
    """The largest (smallest) rank: all are at most m with probability prod min(m, N_i) / N_i."""
    largest = definition.aggregation == "maximum"
    at_most = not definition.higher_is_better
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
