"""Null moments of a mean of any f: M = sum of v_i f(r_i) with r_i uniform on {1..N_i}, independent.

E = sum v_i E_i and V = sum v_i^2 V_i, where E_i, V_i are the moments of f over 1..N_i: in closed form where there is
one (Hoyt et al. 2022, arXiv 2203.07544, section 3 and appendix), else summed.
"""

import numpy as np
from scipy.special import digamma, polygamma

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray, Moments
from torchrankmetrics.theory.definitions import (
    AUC,
    IDENTITY,
    AtMost,
    Log,
    Power,
    RankDefinition,
    RankTransform,
    Transform,
    WithCandidates,
)
from torchrankmetrics.theory.quadrature.adaptive import smooth_sums
from torchrankmetrics.theory.quadrature.panels import TABLED_RANKS
from torchrankmetrics.theory.quadrature.prefix import panel_ratio, prefix_rule
from torchrankmetrics.theory.transforms import apply_transform


def mean_of_f(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Exact moments of a plain mean of a transform; None for any other metric."""
    if definition.aggregation != "mean" or definition.g != IDENTITY:
        return None
    mean, variance = transform_moments(definition.f, counts.num_candidates)
    share = counts.count * counts.weight
    return Moments(float((share * mean).sum()), float((share * counts.weight * variance).sum()))


def transform_moments(f: RankTransform, N: IntArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of f(r) for r uniform on {1..N}.

    Args:
        f: any transform; a user's own must be smooth beyond rank 2^16.
        N: (u,) int64, ascending.

    Returns:
        means and variances >= 0, each (u,) float64; the variance of a constant is exactly zero.

    Raises:
        ValueError: if f is not finite, or changes the shape.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), appendix, for ranks, reciprocal ranks and hits.
    """
    x = N.astype(np.float64)
    if f == IDENTITY:
        return (x + 1) / 2, (x - 1) * (x + 1) / 12
    if f == Power(-1):
        mean = (digamma(x + 1) + np.euler_gamma) / x
        second = (np.pi**2 / 6 - polygamma(1, x + 1)) / x
        return np.where(N == 1, 1.0, mean), np.where(N == 1, 0.0, second - mean**2)
    if isinstance(f, AtMost):
        hit = np.minimum(f.k, N)
        return hit / x, (hit / x) * ((N - hit) / x)
    if f == AUC:  # (N - r) / (N - 1): the moments of r, scaled
        return np.full(len(N), 0.5), np.where(N == 1, 0.0, (x + 1) / (12 * np.maximum(x - 1, 1)))
    if isinstance(f, WithCandidates):
        each = [transform_moments(f.at(n), N[i : i + 1]) for i, n in enumerate(N.tolist())]
        return np.concatenate([mean for mean, _ in each]), np.concatenate([variance for _, variance in each])
    if isinstance(f, Power | Log):
        rule = prefix_rule(N.tobytes(), panel_ratio(f.p) if isinstance(f, Power) else 2.0)
        values = apply_transform(f, rule.nodes)
        return rule.means(values), rule.variances(values)
    return _any_transform(f, N)


def _any_transform(f: Transform, N: IntArray) -> tuple[FloatArray, FloatArray]:
    """Moments of a user's f: a table of the first ranks, beyond it Gauss panels that are halved until they agree."""
    top = min(int(N[-1]), TABLED_RANKS)
    table = apply_transform(f, np.arange(1, top + 1, dtype=np.float64))
    center = float(table.mean())
    ends = np.append(np.minimum(N, top), top)
    first = np.cumsum(table - center, dtype=np.longdouble)[ends - 1].astype(np.float64)
    second = np.cumsum((table - center) ** 2, dtype=np.longdouble)[ends - 1].astype(np.float64)
    beyond = top < N
    if beyond.any():
        edges = np.r_[top, N[beyond]] + 1
        more = centered_sums(f, center, edges[:-1], edges[1:])
        first[:-1][beyond] = first[-1] + np.cumsum(more[0])
        second[:-1][beyond] = second[-1] + np.cumsum(more[1])
    shift = first[:-1] / N
    variance = np.maximum(second[:-1] / N - shift**2, 0.0)
    constant = np.array([np.ptp(table[: min(n, top)]) == 0 for n in N])  # zero variance must be exactly zero
    return center + shift, np.where(constant & ~beyond, 0.0, variance)


def centered_sums(f: Transform, center: float, start: IntArray, stop: IntArray) -> FloatArray:
    """Sums of f - center and of its square over the integers of each run [start, stop): (2, runs)."""

    def centered_powers(x: FloatArray) -> FloatArray:
        value = apply_transform(f, x) - center
        return np.stack([value, value**2])

    return smooth_sums(centered_powers, start, stop)
