"""Friedman's test and Nemenyi's critical difference: models ranked on several datasets."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats


@dataclass(frozen=True)
class MeanRanks:
    """Mean ranks of models over datasets, with the smallest significant difference.

    Attributes:
        mean: mean rank of each model, 1 is the best.
        statistic, p_value: Friedman's test of the hypothesis that all models are alike (chi-square, with ties).
        critical_difference: Nemenyi's; two models that are further apart are significantly different.
        cliques: sets of models, as indices by ascending mean rank, that are not significantly different.
        num_datasets: number of datasets.
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
    """Rank models on each dataset and average the ranks, for a critical difference diagram.

    The datasets are the sample: the size and the significance of a difference on one dataset are ignored.

    Args:
        values: (datasets, models) float64, without NaN.
        higher_is_better: whether the largest value has rank 1.
        confidence_level: in (0, 1).

    Raises:
        ValueError: for fewer than two datasets or models, and for NaN.

    Source: Demsar 2006 (https://jmlr.org/papers/v7/demsar06a.html), section 3.2.2.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or min(x.shape) < 2 or np.isnan(x).any():
        raise ValueError(
            f"values must be (datasets, models), at least 2 of each, without NaN; got {x.shape} with "
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
