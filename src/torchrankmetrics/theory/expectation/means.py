"""Null moments of a mean of any f: M = sum of v_i f(r_i) with r_i uniform on {1..N_i}, independent.

E = sum v_i E_i and V = sum v_i^2 V_i, where E_i, V_i are the moments of f over 1..N_i: in closed form where there is one
(Hoyt et al. 2022, section 3 and appendix), else summed; MATH in docs/ has the derivations.
"""

import numpy as np
from scipy.special import digamma, polygamma

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray, Moments
from torchrankmetrics.theory.definitions import IDENTITY, AtMost, Log, Power, RankDefinition, Transform
from torchrankmetrics.theory.expectation.sums import evaluate, gauss_counting, prefix_rule

_TABLE = 1 << 16


def mean_of_f(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Exact moments if the metric is a plain mean of a transform; None if it is something else."""
    if definition.aggregation != "mean" or definition.g != IDENTITY:
        return None
    mean, variance = transform_moments(definition.f, counts.num_candidates)
    share = counts.count * counts.weight
    return Moments(float((share * mean).sum()), float((share * counts.weight * variance).sum()))


def transform_moments(f: Transform, N: IntArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of f(r) for r uniform on {1..N}, for ascending distinct N (u,): two float64 arrays (u,)."""
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
    if isinstance(f, Power | Log):
        ratio = 2.0 ** (1 / max(1.0, abs(f.p))) if isinstance(f, Power) else 2.0
        rule = prefix_rule(N.tobytes(), ratio)
        values = evaluate(f, rule.nodes)
        return rule.means(values), rule.variances(values)
    return _any_transform(f, N)


def _any_transform(f: Transform, N: IntArray) -> tuple[FloatArray, FloatArray]:
    """Moments of a user's f: a table up to 2^16, beyond it Gauss panels that are halved until they agree."""
    top = min(int(N[-1]), _TABLE)
    table = evaluate(f, np.arange(1, top + 1, dtype=np.float64))
    center = float(table.mean())
    ends = np.append(np.minimum(N, top), top)
    first = np.cumsum(table - center, dtype=np.longdouble)[ends - 1].astype(np.float64)
    second = np.cumsum((table - center) ** 2, dtype=np.longdouble)[ends - 1].astype(np.float64)
    beyond = N > top
    if beyond.any():
        more = _adaptive_gaps(f, center, np.r_[top, N[beyond]])
        first[:-1][beyond] = first[-1] + np.cumsum(more[0])
        second[:-1][beyond] = second[-1] + np.cumsum(more[1])
    shift = first[:-1] / N
    variance = np.maximum(second[:-1] / N - shift**2, 0.0)
    constant = np.array([np.ptp(table[: min(n, top)]) == 0 for n in N])  # zero variance must be exactly zero
    return center + shift, np.where(constant & ~beyond, 0.0, variance)


def _adaptive_gaps(f: Transform, center: float, edges: IntArray) -> tuple[FloatArray, FloatArray]:
    """Sums of f - center and its square over each gap (edges[i], edges[i + 1]]: two arrays (len(edges) - 1,)."""
    sums = np.zeros((2, len(edges) - 1))
    scale = np.zeros((2, len(edges) - 1))
    start, stop, gap = edges[:-1] + 1, edges[1:] + 1, np.arange(len(edges) - 1)
    coarse = _panel_sums(f, center, start, stop)
    while len(start):
        middle = start + (stop - start) // 2
        left, right = _panel_sums(f, center, start, middle), _panel_sums(f, center, middle, stop)
        fine = left + right
        np.maximum.at(scale[0], gap, np.abs(fine[0]))
        np.maximum.at(scale[1], gap, np.abs(fine[1]))
        done = (np.abs(fine - coarse) <= 1e-14 * np.maximum(scale[:, gap], 1e-300)).all(0) | (stop - start <= 16)
        for row in range(2):
            np.add.at(sums[row], gap[done], fine[row][done])
        todo = ~done
        coarse = np.concatenate([left[:, todo], right[:, todo]], axis=1)
        gap = np.tile(gap[todo], 2)
        start, stop = np.r_[start[todo], middle[todo]], np.r_[middle[todo], stop[todo]]
    return sums[0], sums[1]


def _panel_sums(f: Transform, center: float, start: IntArray, stop: IntArray) -> FloatArray:
    """Sums of f - center and its square over [start, stop), one panel each: (2, panels)."""
    length = stop - start
    nodes = start[:, None] + np.arange(16.0)
    weights = (np.arange(16) < length[:, None]).astype(np.float64)
    long = length > 16
    if long.any():
        unique, index = np.unique(length[long], return_inverse=True)
        x, a = gauss_counting(unique)
        nodes[long], weights[long] = start[long][:, None] + x[index], a[index]
    values = evaluate(f, np.minimum(nodes, np.maximum(stop - 1, start)[:, None]).ravel()).reshape(nodes.shape) - center
    return np.stack([(weights * values).sum(1), (weights * values**2).sum(1)])
