"""Tests of "no difference" for two models on the same tasks, and Holm's correction for several."""

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from torchrankmetrics.theory.candidates import FloatArray

_CELLS = 1 << 21


def sign_flip_p_value(differences: FloatArray, permutations: int = 9999, seed: int = 0) -> float:
    """Two-sided p-value in (0, 1] of "the mean difference is zero", by flipping the signs of the differences.

    d_i = v_i (f(r_i^A) - f(r_i^B)) is the share of task i in the difference of two means of f.

    The statistic is Student's t. Flips leave the sum of d^2 as it is, and t grows with |sum d| at fixed sum of d^2, so
    the order of |sum d| is that of |t|, and the studentised p-value is counted from sums. All flips are taken if they
    are no more than ``permutations`` + 1; else p = (1 + number at least as large) / (1 + permutations), never 0. Exact
    where d is symmetric (models exchangeable on each task), else asymptotic, thanks to the studentising.

    Args:
        differences: (u,) float64, one per independent task, or sums over clusters.
        permutations: number of random flips.
        seed: of the random flips.

    Source: Janssen 1997 (doi:10.1016/S0167-7152(97)00043-6); Phipson and Smyth 2010 (doi:10.2202/1544-6115.1585).

    >>> sign_flip_p_value(np.array([1.0, 2.0, 3.0, 4.0]))
    0.125
    """
    d = differences[differences != 0]
    if len(d) == 0:
        return 1.0
    # a flip that gives the observed sum counts whatever the order of summation
    bar = abs(float(d.sum())) - 1e-12 * float(np.abs(d).sum())
    if len(d) < 60 and 2 ** len(d) <= permutations + 1:
        signs = 1 - 2 * ((np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1)
        return float((np.abs(signs @ d) >= bar).mean())
    # eight signs are one random byte: the 256 sums of each eight differences are added up once
    eights = np.pad(d, (0, -len(d) % 8)).reshape(-1, 8)
    sums = eights @ (1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)).T
    place = 256 * np.arange(len(eights))
    rng = np.random.default_rng(seed)
    step, reached = max(1, _CELLS // len(eights)), 0
    for start in range(0, permutations, step):
        size = min(step, permutations - start)
        signs = rng.integers(0, 256, (size, len(eights)), dtype=np.uint8)
        reached += int((np.abs(sums.ravel()[place + signs].sum(1)) >= bar).sum())
    return (1 + reached) / (1 + permutations)


def mcnemar_p_value(only_a: int, only_b: int) -> float:
    """Two-sided exact p-value in (0, 1] of "both models hit equally often", from the tasks that just one of them hits.

    Under the null the tasks that only A hits are Binomial(only_a + only_b, 1/2). Never above its level, and below it
    where discordant tasks are few.

    Source: McNemar 1947 (doi:10.1007/BF02295996), with the exact binomial law.

    >>> mcnemar_p_value(0, 5)
    0.0625
    """
    if only_a + only_b == 0:
        return 1.0
    return float(binomtest(only_a, only_a + only_b, 0.5).pvalue)


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Adjust p-values for being several, by Holm's step-down: the family-wise error stays below the level.

    Args:
        p_values: (m,) in [0, 1], in any order.

    Returns:
        (m,) float64 in [0, 1], in the same order, none below what was given.

    Source: Holm 1979 (https://www.jstor.org/stable/4615733).

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
