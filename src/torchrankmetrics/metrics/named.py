"""The metrics of the papers by name: a definition and a view each, nothing else.

Sources: Hoyt et al. 2022 (arXiv 2203.07544) and Berrendorf et al. 2020 (arXiv 2002.06914).
"""

from typing import Any

from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.theory import definitions


class MeanRank(RankMetric):
    """Mean rank, sum of v_i r_i in [1, max N]; lower is better. Hoyt et al. 2022, eq. 1."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_RANK, **kwargs)


class MeanReciprocalRank(RankMetric):
    """Mean reciprocal rank, sum of v_i / r_i in (0, 1]; higher is better. Hoyt et al. 2022, section 2.

    >>> import torch
    >>> metric = MeanReciprocalRank()
    >>> metric.update(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([0]))
    >>> metric.compute()
    tensor(1., dtype=torch.float64)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_RECIPROCAL_RANK, **kwargs)


class MeanAUC(RankMetric):
    """Mean area under the ROC curve, sum of v_i (N_i - r_i) / (N_i - 1) in [0, 1]; 1/2 is chance, higher is better.

    AUC_i is the share of the negatives of task i that score below its true candidate, ties at half by the realistic
    rank. A task with one candidate has none: it is left out of value, expectation and weights. The adjusted index is
    the mean of 2 AUC_i - 1, every task weighing the same; AMRI is its mean with weights N_i - 1.
    Hanley and McNeil 1982 (doi:10.1148/radiology.143.1.7063747).

    >>> import torch
    >>> metric = MeanAUC()
    >>> metric.update(torch.tensor([[0.9, 0.1, 0.4, 0.2, 0.3], [0.3, 0.2, 0.9, 0.3, 0.1]]), torch.tensor([0, 3]))
    >>> metric.compute()  # 1, and 2.5 of 4
    tensor(0.8125, dtype=torch.float64)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_AUC, **kwargs)


class HitsAtK(RankMetric):
    """Hits at k, the share of tasks with r_i <= k in [0, 1]; higher is better. Hoyt et al. 2022, eq. 3."""

    def __init__(self, k: int, **kwargs: Any) -> None:
        super().__init__(definitions.hits_at(k), **kwargs)


class InverseMeanRank(RankMetric):
    """Inverse of the mean rank in (0, 1]; higher is better. Hoyt et al. 2022, section 2."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.INVERSE_MEAN_RANK, **kwargs)


class HarmonicMeanRank(RankMetric):
    """Harmonic mean rank, 1 / MRR in [1, max N]; lower is better. Hoyt et al. 2022, section 2."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.HARMONIC_MEAN_RANK, **kwargs)


class GeometricMeanRank(RankMetric):
    """Geometric mean rank, exp of sum v_i log r_i in [1, max N]; lower is better. Hoyt et al. 2022, section 2."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.GEOMETRIC_MEAN_RANK, **kwargs)


class InverseGeometricMeanRank(RankMetric):
    """Inverse geometric mean rank, 1 / GMR in (0, 1]; higher is better. Hoyt et al. 2022, section 2."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.INVERSE_GEOMETRIC_MEAN_RANK, **kwargs)


class MedianRank(RankMetric):
    """Median rank, the midpoint for even n; weighted: the lower median. In [1, max N]; lower is better."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEDIAN_RANK, **kwargs)


class InverseMedianRank(RankMetric):
    """Inverse of the median rank in (0, 1]; higher is better."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.INVERSE_MEDIAN_RANK, **kwargs)


class RankVariance(RankMetric):
    """Population variance of the ranks, sum of v_i (r_i - MR)^2 >= 0; no direction: always last has 0 too."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.RANK_VARIANCE, **kwargs)


class RankStandardDeviation(RankMetric):
    """Population standard deviation of the ranks >= 0; no direction."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.RANK_STANDARD_DEVIATION, **kwargs)


class RankMedianAbsoluteDeviation(RankMetric):
    """Median of |r_i - median| over Phi^-1(0.75), as large as the standard deviation of normal data; no direction."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.RANK_MEDIAN_ABSOLUTE_DEVIATION, **kwargs)


class RankCount(RankMetric):
    """Number of ranking tasks of positive weight; no direction."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.RANK_COUNT, **kwargs)


class TieRate(RankMetric):
    """Share of tasks whose true candidate shares its score with another, in [0, 1]; no direction."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.TIE_RATE, **kwargs)


class PowerMeanRank(RankMetric):
    """Power mean (sum of v_i r_i^p)^(1/p) in [1, max N]; lower is better; p = 1, 0, -1 give MR, GMR, HMR."""

    def __init__(self, p: float, **kwargs: Any) -> None:
        super().__init__(definitions.power_mean_rank(p), **kwargs)


class AdjustedMeanRank(RankMetric):
    """AMR, MR / E[MR] > 0; 1 is chance, lower is better. Berrendorf et al. 2020, eq. 7."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_RANK, view="normalized", **kwargs)


class AdjustedMeanRankIndex(RankMetric):
    """AMRI, 1 - sum w (r - 1) / sum w (N - 1) / 2 in [-1, 1]; 0 is chance, 1 best.

    The mean of 2 AUC_i - 1 with weights w_i (N_i - 1): tasks with many candidates count most (``MeanAUC``: all the
    same). Free of N as far as candidates are drawn uniformly. Berrendorf et al. 2020, eq. 8, with the sign mended.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_RANK, view="adjusted_index", **kwargs)


class AdjustedMeanReciprocalRank(RankMetric):
    """AMRR, (MRR - E) / (1 - E) up to 1; 0 is chance, 1 best. Hoyt et al. 2022, section 3."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_RECIPROCAL_RANK, view="adjusted_index", **kwargs)


class AdjustedHitsAtK(RankMetric):
    """AH@k, (H@k - E) / (1 - E) up to 1; 0 is chance, 1 best. Hoyt et al. 2022, eq. 22."""

    def __init__(self, k: int, **kwargs: Any) -> None:
        super().__init__(definitions.hits_at(k), view="adjusted_index", **kwargs)


class ZMeanRank(RankMetric):
    """z of the mean rank, (E - MR) / sqrt(V): 0 is chance, larger is better. Hoyt et al. 2022, section 3."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_RANK, view="z_score", **kwargs)


class ZMeanReciprocalRank(RankMetric):
    """z of the mean reciprocal rank, (MRR - E) / sqrt(V): 0 is chance, larger is better. Hoyt et al., section 3."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(definitions.MEAN_RECIPROCAL_RANK, view="z_score", **kwargs)


class ZHitsAtK(RankMetric):
    """z of hits at k, (H@k - E) / sqrt(V): 0 is chance, larger is better. Hoyt et al. 2022, section 3."""

    def __init__(self, k: int, **kwargs: Any) -> None:
        super().__init__(definitions.hits_at(k), view="z_score", **kwargs)
