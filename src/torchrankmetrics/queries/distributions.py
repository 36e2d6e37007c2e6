"""Null distributions of query metrics."""

import functools
import math

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.null.hypergeometric import log_miss
from torchrankmetrics.null.tails.distribution import Atoms

_FAR = 40.0  # standard deviations of a count of hits, beyond which its probability is neglected
_LEAST = 1e-300  # least probability of an atom
_MOST_STEPS = 1 << 13  # of the recurrence of the rank sum


def hit_distribution(N: int, m: int, k: int, divisor: float, most: int) -> Atoms:
    """Null distribution of #{relevant items within the first k} / divisor, hypergeometric.

    Its ratios P(j + 1) / P(j) = (k - j)(m - j) / ((j + 1)(N - k - m + j + 1)) are exact to rounding for any size.
    """
    k = min(k, N)
    low, high = max(0, m + k - N), min(m, k)
    center = m * k / N
    width = _FAR * (1 + math.sqrt(center * (1 - k / N)))
    first, last = max(low, math.floor(center - width)), min(high, math.ceil(center + width))
    j = np.arange(first, last, dtype=np.float64)
    log_ratio = np.log((k - j) * (m - j)) - np.log((j + 1) * (N - k - m + j + 1))
    log_p = np.r_[0.0, np.cumsum(log_ratio)]
    probability = np.exp(log_p - log_p.max())
    probability /= probability.sum()
    hits = np.arange(first, last + 1)
    if last < high:  # the best value is an atom, however unlikely
        hits, probability = np.r_[hits, high], np.r_[probability, _LEAST]
    # clamp probabilities that underflow float64
    values, probability = _merged(hits / divisor, np.maximum(probability, _LEAST), most)
    return values, probability


def first_places(N: int, m: int, last: int, most: int) -> tuple[FloatArray, FloatArray]:
    """First ranks 1..last that are possible, ascending, and their probabilities; far ones share an atom at the best."""
    near = min(last, most // 2)
    x = np.arange(1, near + 1)
    if near < last:
        x = np.unique(np.r_[x, np.geomspace(near, last, most - near).astype(np.int64)])
    edges = np.r_[x, last + 1]
    log_beyond = log_miss(np.full(len(edges), N), np.full(len(edges), m), edges - 1)
    probability = np.exp(log_beyond[:-1]) * -np.expm1(np.diff(log_beyond))
    possible = probability > 0
    return x[possible].astype(np.float64), probability[possible]


def first_distribution(N: int, m: int, k: int | None, most: int) -> Atoms:
    """Distribution of 1 / r_(1), 0 beyond k."""
    last = N - m + 1 if k is None else min(k, N - m + 1)
    place, probability = first_places(N, m, last, most)
    values, probability = 1.0 / place[::-1], probability[::-1]
    if last < N - m + 1 and (beyond := math.exp(float(log_miss(np.array([N]), np.array([m]), np.array([last]))[0]))):
        values, probability = np.r_[0.0, values], np.r_[beyond, probability]
    return values, probability


def success_distribution(N: int, m: int, k: int) -> Atoms:
    """Null distribution of [r_(1) <= k]."""
    log_no_hit = float(log_miss(np.array([N]), np.array([m]), np.array([min(k, N)]))[0])
    values, probability = np.array([0.0, 1.0]), np.array([math.exp(log_no_hit), -math.expm1(log_no_hit)])
    possible = probability > 0
    return values[possible], probability[possible]


@functools.lru_cache(maxsize=512)
def rank_sum_distribution(N: int, m: int, most: int) -> Atoms | None:
    """Null distribution of AUC, u / (m n) with n = N - m other items; None if the recurrence is long.

    The last place has a relevant item with probability m / N: P(u; m, n) = m/N P(u; m - 1, n) + n/N P(u - m; m, n - 1).

    Source: Mann and Whitney 1947 (doi:10.1214/aoms/1177730491), section 4.
    """
    n = N - m
    if n == 0 or m * n > min(_MOST_STEPS, most):
        return None
    rows = [np.ones(1)] * (n + 1)
    for i in range(1, m + 1):
        row = np.ones(1)
        new = [row]
        for j in range(1, n + 1):
            both = np.zeros(i * j + 1)
            both[: (i - 1) * j + 1] += i / (i + j) * rows[j]
            both[i:] += j / (i + j) * new[j - 1]
            new.append(both)
        rows = new
    return np.arange(m * n + 1) / (m * n), rows[n]


def _merged(values: FloatArray, probability: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """At most about ``most`` atoms: neighbours at the best of them."""
    if len(values) <= most:
        return values, probability
    last: IntArray = np.unique(np.linspace(0, len(values) - 1, most).astype(np.int64))
    return values[last], np.add.reduceat(probability, np.r_[0, last[:-1] + 1])
