"""Null moments of the geometric mean rank and its inverse: products of independent r_i^(+-v_i)."""

import math

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.provider import strategy
from torchrankmetrics.theory.quadrature.prefix import PrefixRule, prefix_rule
from torchrankmetrics.theory.transforms import known


@strategy(lambda definition: definition.is_geometric_mean)
def geometric_mean(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of exp(+-mean of log r).

    E = product of E[r_i^s], V = E^2 (product of (1 + Var(r_i^s) / E[r_i^s]^2) - 1) with s = +-v_i, all in
    logarithms that stay exact for tiny v_i.
    """
    log_mean = log_spread = 0.0
    for weight in np.unique(counts.weight):
        part = counts.weight == weight
        N, count = counts.num_candidates[part], counts.count[part]
        rule = prefix_rule(N.tobytes())
        log_factor, relative_variance = _power_moments(rule, known(definition.g).direction * weight)
        log_mean += float((count * log_factor).sum())
        log_spread += float((count * np.log1p(relative_variance)).sum())
    with np.errstate(over="ignore"):
        return Moments(float(np.exp(log_mean)), float(np.exp(2 * log_mean) * np.expm1(log_spread)))


def _power_moments(rule: PrefixRule, s: float) -> tuple[FloatArray, FloatArray]:
    """Log E[r^s] and Var(r^s) / E[r^s]^2 for every N of the rule."""
    if abs(s) * math.log(rule.upper[-1]) > 1:
        power = rule.nodes**s
        mean = rule.means(power)
        return np.log(mean), rule.variances(power) / mean**2
    excess = np.expm1(s * np.log(rule.nodes))  # r^s - 1: keeps its digits when s is 1 / (number of tasks)
    mean = rule.means(excess)
    return np.log1p(mean), rule.variances(excess) / (1 + mean) ** 2
