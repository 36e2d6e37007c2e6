"""Null mean and variance of the geometric mean rank (GMR) and its inverse (IGMR)."""

import math

import numpy as np

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, Moments
from torchrankmetrics.definitions.sums import PrefixRule, prefix_rule
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import known


def geometric_mean(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact null mean E and variance V of exp(+-(sum of v_i log r_i)), the weights v_i with a sum of 1.

    The ranks r_i are independent and uniform on 1..N_i. With s = +-v_i: E = product of E[r_i^s] and
    V = E^2 (product of (1 + Var(r_i^s) / E[r_i^s]^2) - 1), computed in logarithms that keep their digits for tiny v_i.
    """
    log_mean = log_spread = 0.0
    for weight in np.unique(counts.weight):
        part = counts.weight == weight
        N, count = counts.num_candidates[part], counts.count[part]
        log_factor, relative_variance = _power_moments(prefix_rule(N.tobytes()), known(definition.g).direction * weight)
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
    excess = np.expm1(s * np.log(rule.nodes))  # r^s - 1 keeps its digits when s is 1 / (number of ranking tasks)
    mean = rule.means(excess)
    return np.log1p(mean), rule.variances(excess) / (1 + mean) ** 2
