"""Null moments of the geometric mean rank and its inverse: products of independent r_i^(+-v_i)."""

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, Moments
from torchrankmetrics.theory.definitions import Exponential, Log, RankDefinition
from torchrankmetrics.theory.quadrature.prefix import PrefixRule, prefix_rule


def geometric_mean(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Exact moments of exp(+-mean of log r); None for any other metric.

    E = product of E[r_i^s], V = E^2 (product of (1 + Var(r_i^s) / E[r_i^s]^2) - 1) with s = +-v_i, all in
    logarithms that stay exact for tiny v_i.
    """
    if definition.aggregation != "mean" or definition.f != Log() or not isinstance(definition.g, Exponential):
        return None
    log_mean = log_spread = 0.0
    for weight in np.unique(counts.weight):
        part = counts.weight == weight
        N, count = counts.num_candidates[part], counts.count[part]
        rule = prefix_rule(N.tobytes())
        log_factor, relative_variance = _power_moments(rule, definition.g.sign * weight)
        log_mean += float((count * log_factor).sum())
        log_spread += float((count * np.log1p(relative_variance)).sum())
    with np.errstate(over="ignore"):
        return Moments(float(np.exp(log_mean)), float(np.exp(2 * log_mean) * np.expm1(log_spread)))


def _power_moments(rule: PrefixRule, s: float) -> tuple[FloatArray, FloatArray]:
    """Log E[r^s] and Var(r^s) / E[r^s]^2 for every N of the rule."""
    excess = np.expm1(s * np.log(rule.nodes))  # r^s - 1: keeps its digits when s is 1 / (number of tasks)
    mean = rule.means(excess)
    return np.log1p(mean), rule.variances(excess) / (1 + mean) ** 2
