"""Cumulants of a power of one rank: what the laws of sums of r_i^p are built from."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.quadrature.prefix import panel_ratio, prefix_rule

CUMULANTS = 20  # how many are known of each sum


def has_cumulants(definition: RankDefinition) -> bool:
    """Whether a metric is (sum of v_i r_i^p)^a with 0 < |p| <= 3 and some a that is not 0."""
    p, a = definition.exponents
    return 0 < abs(p) <= 3 and abs(a) > 0


@dataclass(frozen=True)
class PowerSum:
    """S = sum of v_i r_i^p of a set of tasks: its mean, and each pair's cumulants in units of that mean.

    Attributes:
        log_mean: log E[S].
        smallest: the smallest value of S / E[S].
        largest: (u,) the largest value of v r^p / E[S] for each distinct (N, v).
        mean: (u,) the mean of v r^p / E[S].
        cumulants: (CUMULANTS + 1, u) count times the cumulants of v r^p / E[S]; rows 0 and 1 are zero.
    """

    log_mean: float
    smallest: float
    largest: FloatArray
    mean: FloatArray
    cumulants: FloatArray

    @property
    def sum_cumulants(self) -> FloatArray:
        """Cumulants of S / E[S], (CUMULANTS + 1,), around its mean."""
        return np.asarray(self.cumulants.sum(1))

    @property
    def taylor(self) -> FloatArray:
        """Coefficients of E exp(-t (S / E[S] - 1)) in powers of t, (CUMULANTS + 1,)."""
        kappa, signed = self.sum_cumulants, np.zeros(CUMULANTS + 1)
        signed[0] = 1.0
        for j in range(1, CUMULANTS + 1):
            signed[j] = sum(
                (-1) ** i * kappa[i] / math.factorial(i - 1) * signed[j - i] for i in range(2, j + 1)
            ) / j  # fmt: skip
        return signed


def power_sum(counts: CandidateCounts, p: float) -> PowerSum:
    """Describe S = sum of v_i r_i^p through its first 20 cumulants, for 0 < |p| <= 3."""
    N, index = np.unique(counts.num_candidates, return_inverse=True)
    means, scale, kappa = _rank_cumulants(N.tobytes(), p)
    (mean, excess), scale, kappa = means[:, index], scale[index], kappa[:, index]
    v, count = counts.weight, counts.count
    total = float((count * v * mean).sum())
    total_excess = float((count * v * excess).sum())
    log_mean = math.log1p(total_excess) if abs(total_excess) < 0.5 else math.log(total)
    unit = v / total
    cumulants = count * kappa * (unit * scale) ** np.arange(CUMULANTS + 1)[:, None]
    at_top = counts.num_candidates.astype(np.float64) ** p
    smallest = float((count * unit * np.minimum(at_top, 1.0)).sum())
    return PowerSum(log_mean, smallest, unit * np.maximum(at_top, 1.0), unit * mean, cumulants)


@lru_cache(maxsize=32)
def _rank_cumulants(upper: bytes, p: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E[r^p] and E[r^p - 1], a scale, and cumulants 2..20 of (r^p - 1) / scale: (2, u), (u,), (21, u)."""
    N = np.frombuffer(upper, dtype=np.int64)
    means, scale = np.zeros((2, len(N))), np.ones(len(N))
    kappa = np.zeros((CUMULANTS + 1, len(N)))
    # N of one size together: moments of small N around the mean of large ones would lose their digits
    size = np.log2(N).astype(np.int64) // 2
    for group in np.unique(size):
        part = size == group
        means[:, part], scale[part], kappa[:, part] = _group_cumulants(N[part], p)
    return means, scale, kappa


def _group_cumulants(N: IntArray, p: float) -> tuple[FloatArray, float, FloatArray]:
    # both means: r^p - 1 keeps the digits of small |p|, r^p those of negative p
    rule = prefix_rule(N.tobytes(), panel_ratio(p))
    values = np.expm1(p * np.log(rule.nodes))
    scale = max(float(np.abs(values).max()), 1e-300)
    values = values / scale
    shift = float(rule.means(values)[-1])
    raw = np.ones((CUMULANTS + 1, len(N)))
    power = np.ones_like(values)
    for j in range(1, CUMULANTS + 1):
        power = power * (values - shift)
        raw[j] = rule.means(power)
    central = np.zeros_like(raw)
    for j in range(CUMULANTS + 1):
        for i in range(j + 1):
            central[j] += math.comb(j, i) * raw[i] * (-raw[1]) ** (j - i)
    central[1] = 0.0
    central[2] = rule.variances(values)
    kappa = np.zeros_like(raw)
    for j in range(2, CUMULANTS + 1):
        kappa[j] = central[j]
        for i in range(2, j - 1):
            kappa[j] -= math.comb(j - 1, i - 1) * kappa[i] * central[j - i]
    kappa[:, N == 1] = 0.0
    return np.stack([rule.means(rule.nodes**p), scale * (shift + raw[1])]), scale, kappa
