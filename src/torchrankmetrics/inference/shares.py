"""Difference of two shares of the same tasks: interval and p-value from the numbers of discordant tasks."""

import math

from scipy.stats import beta, norm


def share_difference(only_a: float, only_b: float, num_tasks: float, level: float) -> tuple[float, float]:
    """Interval of the difference of two paired shares, in [-1, 1].

    At either end the wider of two intervals: Tango's score interval, and the exact interval of the share of A among
    discordant tasks. The latter contains 1/2 exactly if McNemar's exact p-value is above 1 - level, so that interval
    and p-value agree. Weighted and clustered tasks have effective numbers, which need not be integers.

    Args:
        only_a: number of tasks that only A hits.
        only_b: number of tasks that only B hits.
        num_tasks: number of all tasks.
        level: confidence level, in (0, 1).

    Source: Tango 1998 (Statist. Med. 17, 891-908); Clopper and Pearson 1934 (doi:10.1093/biomet/26.4.404).
    """
    score, exact = _tango(only_a, only_b, num_tasks, level), _conditional(only_a, only_b, num_tasks, level)
    return min(score[0], exact[0]), max(score[1], exact[1])


def share_difference_p_value(only_a: float, only_b: float, num_tasks: float, null: float) -> float:
    """Two-sided p-value of the hypothesis that the difference of two paired shares is ``null``, in [-1, 1].

    The larger of Tango's score test and the exact binomial test among discordant tasks, as in ``share_difference``.
    The binomial test is McNemar's exact test if ``null`` is 0, and then the larger unless p is below 0.0005.

    Source: McNemar 1947 (doi:10.1007/BF02295996), with the exact binomial distribution.

    >>> share_difference_p_value(0, 5, 100, 0.0)
    0.0625
    """
    score = 2 * float(norm.sf(_score(only_a, only_b, num_tasks, null)))
    discordant = only_a + only_b
    if discordant == 0:
        return max(score, 1.0 if null == 0 else 0.0)
    share = (null * num_tasks / discordant + 1) / 2
    if not 0 <= share <= 1:
        return score
    # tails of the beta distributions whose quantiles are the ends of Clopper and Pearson's interval
    upper = float(beta.cdf(share, only_a, only_b + 1)) if only_a > 0 else 1.0
    lower = float(beta.sf(share, only_a + 1, only_b)) if only_b > 0 else 1.0
    return min(max(score, 2 * min(upper, lower)), 1.0)


def clopper_pearson(hits: float, size: float, level: float) -> tuple[float, float]:
    """Exact interval of a share: each end has a tail probability of (1 - level) / 2.

    >>> [round(end, 4) for end in clopper_pearson(0, 10, 0.95)]
    [0.0, 0.3085]
    """
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, hits, size - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, size - hits)) if hits < size else 1.0
    return low, high


def _conditional(only_a: float, only_b: float, n: float, level: float) -> tuple[float, float]:
    discordant = only_a + only_b
    if discordant == 0:
        return 0.0, 0.0
    low, high = ((2 * end - 1) * discordant / n for end in clopper_pearson(only_a, discordant, level))
    return low, high


def _tango(only_a: float, only_b: float, n: float, level: float) -> tuple[float, float]:
    z = float(norm.ppf((1 + level) / 2))
    ends = []
    for limit in (-1.0, 1.0):
        inside, outside = (only_a - only_b) / n, limit
        for _ in range(50):
            middle = (inside + outside) / 2
            near = _score(only_a, only_b, n, middle) <= z
            inside, outside = (middle, outside) if near else (inside, middle)
        ends.append(outside)
    return ends[0], ends[1]


def _score(only_a: float, only_b: float, n: float, delta: float) -> float:
    """Absolute value of Tango's score statistic for the difference delta."""
    # q: maximum-likelihood share of tasks that only B hits, given the difference delta
    b = (2 * n - only_a + only_b) * delta - only_a - only_b
    q = (math.sqrt(max(b * b + 8 * n * only_b * delta * (1 - delta), 0.0)) - b) / (4 * n)
    variance = n * (2 * q + delta - delta * delta)
    gap = n * abs((only_a - only_b) / n - delta)
    return gap / math.sqrt(variance) if variance > 0 else (math.inf if gap > 0 else 0.0)
