"""Adjusted indices and z-scores by name: the metrics of ``named`` in another view.

Sources: Hoyt et al. 2022 (arXiv 2203.07544) and Berrendorf et al. 2020 (arXiv 2002.06914).
"""

from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.metrics.named import NamedMetric, NamedMetricAtK
from torchrankmetrics.theory import definitions


class AdjustedMeanRank(NamedMetric):
    """AMR, MR / E[MR] > 0; 1 is chance, lower is better. Berrendorf et al. 2020, eq. 7.

    Example:
        >>> AdjustedMeanRank()(preds, target)
        tensor(0.7333, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_RANK, "normalized")


class AdjustedMeanRankIndex(NamedMetric):
    """AMRI, 1 - sum w (r - 1) / sum w (N - 1) / 2 in [-1, 1]; 0 is chance, 1 best.

    The mean of 2 AUC_i - 1 with weights w_i (N_i - 1): tasks with many candidates count most (``MeanAUC``: all the
    same). Free of N as far as candidates are drawn uniformly. Berrendorf et al. 2020, eq. 8, with the sign mended.

    Example:
        >>> AdjustedMeanRankIndex()(preds, target)
        tensor(0.4444, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_RANK, "adjusted_index")


class AdjustedMeanReciprocalRank(NamedMetric):
    """AMRR, (MRR - E) / (1 - E) up to 1; 0 is chance, 1 best. Hoyt et al. 2022, section 3.

    Example:
        >>> AdjustedMeanReciprocalRank()(preds, target)
        tensor(0.2348, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_RECIPROCAL_RANK, "adjusted_index")


class AdjustedHitsAtK(NamedMetricAtK):
    """AH@k, (H@k - E) / (1 - E) up to 1; 0 is chance, 1 best. Hoyt et al. 2022, eq. 22.

    Args:
        k: the largest rank that is a hit, an integer >= 1.

    Example:
        >>> AdjustedHitsAtK(2)(preds, target)
        tensor(0.3333, dtype=torch.float64)
    """

    measure = Measure(definitions.hits_at(1), "adjusted_index")


class ZMeanRank(NamedMetric):
    """z of the mean rank, (E - MR) / sqrt(V): 0 is chance, larger is better. Hoyt et al. 2022, section 3.

    Example:
        >>> ZMeanRank()(preds, target)
        tensor(1.0328, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_RANK, "z_score")


class ZMeanReciprocalRank(NamedMetric):
    """z of the mean reciprocal rank, (MRR - E) / sqrt(V): 0 is chance, larger is better. Hoyt et al., section 3.

    Example:
        >>> ZMeanReciprocalRank()(preds, target)
        tensor(0.6698, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_RECIPROCAL_RANK, "z_score")


class ZHitsAtK(NamedMetricAtK):
    """z of hits at k, (H@k - E) / sqrt(V): 0 is chance, larger is better. Hoyt et al. 2022, section 3.

    Args:
        k: the largest rank that is a hit, an integer >= 1.

    Example:
        >>> ZHitsAtK(2)(preds, target)
        tensor(0.5774, dtype=torch.float64)
    """

    measure = Measure(definitions.hits_at(1), "z_score")
