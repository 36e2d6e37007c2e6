"""Data sets as the sample: random effects of a difference, and ranks of models with a critical difference."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from torchrankmetrics.theory.candidates import FloatArray


@dataclass(frozen=True)
class RandomEffects:
    """A mean difference over data sets that differ in their true differences.

    Attributes:
        value: mean of the true differences.
        standard_error: of it, by Hartung and Knapp.
        low, high: its interval, of Student's t.
        p_value: of "the mean is zero".
        tau: standard deviation of the true differences, by restricted maximum likelihood.
        inconsistency: I^2, share of the observed variance that the true differences make up, in [0, 1].
        p_equal: of "all true differences are equal" (Cochran's Q).
        predicted: interval of the true difference on another data set of the kind.
        num_datasets: how many there were.
    """

    value: float
    standard_error: float
    low: float
    high: float
    p_value: float
    tau: float
    inconsistency: float
    p_equal: float
    predicted: tuple[float, float]
    num_datasets: int


def random_effects(values: npt.ArrayLike, errors: npt.ArrayLike, confidence_level: float = 0.95) -> RandomEffects:
    """Average differences of two models over data sets, weighted by what tasks and data sets leave unsure.

    The true difference on data set d is normal with variance tau^2 around the mean; its estimate has a known error. tau
    is fitted by restricted maximum likelihood; the error of the mean is Hartung and Knapp's, never below that of known
    tau, with k - 1 degrees of freedom.

    Args:
        values: (k,) differences, one per data set.
        errors: (k,) their standard errors, > 0.
        confidence_level: in (0, 1).

    Raises:
        ValueError: for fewer than two data sets, or errors that are not positive.

    Source: Viechtbauer 2005 (doi:10.3102/10769986030003261); Knapp and Hartung 2003 (doi:10.1002/sim.1482).
    """
    y, s = np.asarray(values, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if y.ndim != 1 or y.shape != s.shape or len(y) < 2:
        raise ValueError(f"values and errors must be (k,) of at least 2 data sets, got {y.shape} and {s.shape}")
    if not ((s > 0) & np.isfinite(s) & np.isfinite(y)).all():
        raise ValueError(f"errors must be positive and all numbers finite, got {s.tolist()} of {y.tolist()}")
    scale = float(s.max())  # in units of an error: the fit knows no scale
    y, v, k = y / scale, (s / scale) ** 2, len(y)
    tau2 = _restricted_likelihood(y, v)
    w = 1 / (v + tau2)
    mean = float(w @ y / w.sum())
    spread = max(float(w @ (y - mean) ** 2) / (k - 1), 1.0)
    error = math.sqrt(spread / float(w.sum()))
    t = float(stats.t.ppf((1 + confidence_level) / 2, k - 1))
    fixed = 1 / v
    q = float(fixed @ (y - fixed @ y / fixed.sum()) ** 2)
    typical = (k - 1) / float(fixed.sum() - fixed @ fixed / fixed.sum())
    reach = t * math.sqrt(tau2 + error**2)
    return RandomEffects(
        value=mean * scale,
        standard_error=error * scale,
        low=(mean - t * error) * scale,
        high=(mean + t * error) * scale,
        p_value=float(2 * stats.t.sf(abs(mean) / error, k - 1)),
        tau=math.sqrt(tau2) * scale,
        inconsistency=tau2 / (tau2 + typical),
        p_equal=float(stats.chi2.sf(q, k - 1)),
        predicted=((mean - reach) * scale, (mean + reach) * scale),
        num_datasets=k,
    )


def _restricted_likelihood(y: FloatArray, v: FloatArray) -> float:
    """Fisher scoring for tau^2 >= 0, from the plain variance."""
    tau2 = max(float(y.var(ddof=1) - v.mean()), 0.0)
    for _ in range(1000):
        w = 1 / (v + tau2)
        total, square = float(w.sum()), float(w @ w)
        mean = float(w @ y / total)
        score = float(w**2 @ (y - mean) ** 2) - (total - square / total)
        information = square - 2 * float(w**2 @ w) / total + (square / total) ** 2
        before, tau2 = tau2, max(tau2 + score / information, 0.0)
        if abs(tau2 - before) <= 1e-12 * (1 + tau2):
            break
    return tau2


@dataclass(frozen=True)
class MeanRanks:
    """Ranks of models averaged over data sets, 1 for the best, with the difference that they must have.

    Attributes:
        mean: average rank of each model.
        statistic, p_value: of Friedman's test of "all models are alike" (chi-square, ties corrected).
        critical_difference: Nemenyi's; two models further apart are told apart.
        cliques: sets of models, as indices by ascending mean rank, that are not told apart.
        num_datasets: how many there were.
        confidence_level: in (0, 1).
    """

    mean: tuple[float, ...]
    statistic: float
    p_value: float
    critical_difference: float
    cliques: tuple[tuple[int, ...], ...]
    num_datasets: int
    confidence_level: float


def mean_ranks(values: npt.ArrayLike, *, higher_is_better: bool = True, confidence_level: float = 0.95) -> MeanRanks:
    """Rank models on each data set and average, as Demsar's critical difference diagram does.

    The sample are the data sets: how large a difference is on one of them, and how sure, is not looked at.

    Args:
        values: (datasets, models) float64, without gaps.
        higher_is_better: whether the largest value has rank 1.
        confidence_level: in (0, 1).

    Raises:
        ValueError: for fewer than two data sets or models, and for NaN.

    Source: Demsar 2006 (https://jmlr.org/papers/v7/demsar06a.html), section 3.2.2.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or min(x.shape) < 2 or np.isnan(x).any():
        raise ValueError(
            f"values must be (datasets, models), at least 2 of each and no NaN among them; got {x.shape} with "
            f"{int(np.isnan(x).sum())} NaN"
        )
    n, k = x.shape
    ranks = stats.rankdata(-x if higher_is_better else x, axis=1)
    mean = ranks.mean(0)
    centered = ranks - (k + 1) / 2
    spread = float((centered**2).sum()) / (n * (k - 1))  # k (k + 1) / 12 without ties
    statistic = n * float(((mean - (k + 1) / 2) ** 2).sum()) / spread if spread > 0 else 0.0
    critical = (
        float(stats.studentized_range.ppf(confidence_level, k, np.inf))
        / math.sqrt(2)
        * math.sqrt(k * (k + 1) / (6 * n))
    )
    order = np.argsort(mean, kind="stable")
    cliques: list[tuple[int, ...]] = []
    for start in range(k):
        together = tuple(order[start:][mean[order[start:]] - mean[order[start]] <= critical].tolist())
        if len(together) > 1 and not (cliques and set(together) <= set(cliques[-1])):
            cliques.append(together)
    p_value = float(stats.chi2.sf(statistic, k - 1))
    return MeanRanks(tuple(mean.tolist()), statistic, p_value, critical, tuple(cliques), n, confidence_level)
