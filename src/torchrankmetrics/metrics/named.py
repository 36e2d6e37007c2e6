"""Public classes of ranking-task metrics, with their docstrings."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from torchrankmetrics.definitions import tasks as definitions
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.registry import MetricName
from torchrankmetrics.queries.definitions import Definition

_EXAMPLE = """\
Example:
    >>> import torch
    >>> from torchrankmetrics import {name}
    >>> preds = torch.tensor([[0.9, 0.1, 0.4, 0.2], [0.2, 0.4, 0.4, 0.9], [0.5, 0.8, 0.6, 0.1]])
    >>> target = torch.tensor([0, 1, 2])  # realistic ranks 1, 2.5 and 2 among 4 candidates
"""


def host_form(name: str, own: str, general: str, fixed: set[str]) -> str:
    """Put the arguments of all metrics, and the scores of the example, into the docstring of one.

    Args:
        name: of the class.
        own: its docstring: text, its own ``Args:`` if any, ``Example:``.
        general: the docstring whose ``Args:`` it shares.
        fixed: names of arguments that it does not share.
    """
    text, example = inspect.cleandoc(own).split("Example:\n")
    section = inspect.cleandoc(general).split("Args:\n")[1].split("\n\n")[0]
    shared = re.findall(r"^    \S.*(?:\n     .*)*", section, re.MULTILINE)
    args = [entry for entry in shared if entry.strip().split(":")[0] not in fixed]
    head = text.rstrip() + ("\n" if "Args:\n" in text else "\n\nArgs:\n")
    return head + "\n".join(args) + "\n\n" + _EXAMPLE.format(name=name) + example.rstrip() + "\n"


class NamedMetric(RankMetric):
    """A metric whose class says definition and view: what torchmetrics reads off a class holds for its metrics.

    Where the definition has a parameter, that of the class stands for all: direction and bounds are the same.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._init_as(type(self).measure.definition, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        ours = cls.__module__.startswith(__package__)
        if ours and cls.__doc__ and RankMetric.__doc__:  # there are none under python -OO
            fixed = {"definition"} if cls.measure.view == "base" else {"definition", "view"}
            cls.__doc__ = host_form(cls.__name__, cls.__doc__, RankMetric.__doc__, fixed)

    def _init_as(self, definition: Definition, **kwargs: Any) -> None:
        view = type(self).measure.view
        super().__init__(MetricName(definition, None if view == "base" else view), **kwargs)


class MeanRank(NamedMetric):
    """Mean rank, sum of v_i r_i in [1, max N]; lower is better. Hoyt et al. 2022, eq. 1.

    Example:
        >>> MeanRank()(preds, target)
        tensor(1.8333, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_RANK)


class MeanReciprocalRank(NamedMetric):
    """Mean reciprocal rank, sum of v_i / r_i in (0, 1]; higher is better. Hoyt et al. 2022, section 2.

    Example:
        >>> MeanReciprocalRank()(preds, target)
        tensor(0.6333, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_RECIPROCAL_RANK)


class MeanAUC(NamedMetric):
    """Mean area under the ROC curve, sum of v_i (N_i - r_i) / (N_i - 1) in [0, 1]; 1/2 is chance, higher is better.

    AUC_i is the share of the negatives of task i that score below its true candidate, ties at half by the realistic
    rank. A task with one candidate has none: it is left out of value, expectation and weights. The adjusted index is
    the mean of 2 AUC_i - 1, every task weighing the same; AMRI is its mean with weights N_i - 1.
    Hanley and McNeil 1982 (doi:10.1148/radiology.143.1.7063747).

    Example:
        >>> MeanAUC()(preds, target)
        tensor(0.7222, dtype=torch.float64)
    """

    measure = Measure(definitions.MEAN_AUC)


class NamedMetricAtK(NamedMetric):  # noqa: D101  # its doc would be read as that of a metric
    measure = Measure(definitions.hits_at(1))
    make: Callable[..., Definition] = staticmethod(definitions.hits_at)

    def __init__(self, k: int, **kwargs: Any) -> None:
        self._init_as(type(self).make(k), **kwargs)


class HitsAtK(NamedMetricAtK):
    """Hits at k, the share of tasks with r_i <= k in [0, 1]; higher is better. Hoyt et al. 2022, eq. 3.

    A plain ``MetricCollection`` names metrics by their class: give it a dict if several k are wanted. A
    ``RankCollection`` names them by their keys, ``hits_at_1`` and so on.

    Args:
        k: the largest rank that is a hit, an integer >= 1.

    Example:
        >>> HitsAtK(2)(preds, target)
        tensor(0.6667, dtype=torch.float64)
    """

    measure = Measure(definitions.hits_at(1))


class InverseMeanRank(NamedMetric):
    """Inverse of the mean rank in (0, 1]; higher is better. Hoyt et al. 2022, section 2.

    Example:
        >>> InverseMeanRank()(preds, target)
        tensor(0.5455, dtype=torch.float64)
    """

    measure = Measure(definitions.INVERSE_MEAN_RANK)


class HarmonicMeanRank(NamedMetric):
    """Harmonic mean rank, 1 / MRR in [1, max N]; lower is better. Hoyt et al. 2022, section 2.

    Example:
        >>> HarmonicMeanRank()(preds, target)
        tensor(1.5789, dtype=torch.float64)
    """

    measure = Measure(definitions.HARMONIC_MEAN_RANK)


class GeometricMeanRank(NamedMetric):
    """Geometric mean rank, exp of sum v_i log r_i in [1, max N]; lower is better. Hoyt et al. 2022, section 2.

    Example:
        >>> GeometricMeanRank()(preds, target)
        tensor(1.7100, dtype=torch.float64)
    """

    measure = Measure(definitions.GEOMETRIC_MEAN_RANK)


class InverseGeometricMeanRank(NamedMetric):
    """Inverse geometric mean rank, 1 / GMR in (0, 1]; higher is better. Hoyt et al. 2022, section 2.

    Example:
        >>> InverseGeometricMeanRank()(preds, target)
        tensor(0.5848, dtype=torch.float64)
    """

    measure = Measure(definitions.INVERSE_GEOMETRIC_MEAN_RANK)


class MedianRank(NamedMetric):
    """Median rank, the midpoint for even n; weighted: the lower median. In [1, max N]; lower is better.

    Example:
        >>> MedianRank()(preds, target)
        tensor(2., dtype=torch.float64)
    """

    measure = Measure(definitions.MEDIAN_RANK)


class InverseMedianRank(NamedMetric):
    """Inverse of the median rank in (0, 1]; higher is better.

    Example:
        >>> InverseMedianRank()(preds, target)
        tensor(0.5000, dtype=torch.float64)
    """

    measure = Measure(definitions.INVERSE_MEDIAN_RANK)


class RankVariance(NamedMetric):
    """Population variance of the ranks, sum of v_i (r_i - MR)^2 >= 0; no direction: always last has 0 too.

    Example:
        >>> RankVariance()(preds, target)
        tensor(0.3889, dtype=torch.float64)
    """

    measure = Measure(definitions.RANK_VARIANCE)


class RankStandardDeviation(NamedMetric):
    """Population standard deviation of the ranks >= 0; no direction.

    Example:
        >>> RankStandardDeviation()(preds, target)
        tensor(0.6236, dtype=torch.float64)
    """

    measure = Measure(definitions.RANK_STANDARD_DEVIATION)


class RankMedianAbsoluteDeviation(NamedMetric):
    """Median of |r_i - median| over Phi^-1(0.75), as large as the standard deviation of normal data; no direction.

    Example:
        >>> RankMedianAbsoluteDeviation()(preds, target)
        tensor(0.7413, dtype=torch.float64)
    """

    measure = Measure(definitions.RANK_MEDIAN_ABSOLUTE_DEVIATION)


class RankCount(NamedMetric):
    """Number of ranking tasks of positive weight; no direction.

    Example:
        >>> RankCount()(preds, target)
        tensor(3., dtype=torch.float64)
    """

    measure = Measure(definitions.RANK_COUNT)


class TieRate(NamedMetric):
    """Share of tasks whose true candidate shares its score with another, in [0, 1]; no direction.

    Example:
        >>> TieRate()(preds, target)
        tensor(0.3333, dtype=torch.float64)
    """

    measure = Measure(definitions.TIE_RATE)


class PowerMeanRank(NamedMetric):
    """Power mean (sum of v_i r_i^p)^(1/p) in [1, max N]; lower is better; p = 1, 0, -1 give MR, GMR, HMR.

    Args:
        p: the exponent, a real number or an infinity.

    Example:
        >>> PowerMeanRank(2)(preds, target)
        tensor(1.9365, dtype=torch.float64)
    """

    measure = Measure(definitions.power_mean_rank(2))

    def __init__(self, p: float, **kwargs: Any) -> None:
        self._init_as(definitions.power_mean_rank(p), **kwargs)


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
