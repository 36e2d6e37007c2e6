"""Metrics of queries by name: all answers of a query in one list of candidates, averaged over queries.

By chance the answers hold a uniform m-subset of the N places. Ties count by their expectation over tie orders, McSherry
and Najork 2008 (doi:10.1007/978-3-540-78646-7_38), unless another rank type is asked for.
"""

from typing import Any

from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.named import NamedMetric, NamedMetricAtK
from torchrankmetrics.queries import definitions


class QueryMetricUpToK(NamedMetricAtK):  # noqa: D101  # its doc would be read as that of a metric
    measure = Measure(definitions.average_precision())

    def __init__(self, k: int | None = None, **kwargs: Any) -> None:
        self._init_as(type(self).make(k), **kwargs)


class RecallAtK(NamedMetricAtK):
    """Recall at k, the share of the answers of a query among its first k candidates, in [0, 1]; higher is better.

    Args:
        k: how many places count, an integer >= 1.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> RecallAtK(2)(preds, answers)
        tensor(0.6111, dtype=torch.float64)
    """

    measure = Measure(definitions.recall_at(1))
    make = staticmethod(definitions.recall_at)


class PrecisionAtK(NamedMetricAtK):
    """Precision at k, the answers among the first k candidates over k (also if there are fewer), in [0, 1].

    Args:
        k: how many places count, an integer >= 1.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> PrecisionAtK(2)(preds, answers)
        tensor(0.6667, dtype=torch.float64)
    """

    measure = Measure(definitions.precision_at(1))
    make = staticmethod(definitions.precision_at)


class SuccessAtK(NamedMetricAtK):
    """Success at k, the share of queries with an answer among the first k candidates: hit rate, R@k of images and text.

    Args:
        k: how many places count, an integer >= 1.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> SuccessAtK(1)(preds, answers)
        tensor(0.6667, dtype=torch.float64)
    """

    measure = Measure(definitions.success_at(1))
    make = staticmethod(definitions.success_at)


class FirstReciprocalRank(QueryMetricUpToK):
    """Reciprocal rank of the first answer of a query in (0, 1], what retrieval calls MRR; higher is better.

    Args:
        k: places that count: 0 for a query whose first answer comes later; None: all.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> FirstReciprocalRank()(preds, answers)
        tensor(0.8333, dtype=torch.float64)
    """

    measure = Measure(definitions.first_reciprocal_rank())
    make = staticmethod(definitions.first_reciprocal_rank)


class FirstMeanRank(NamedMetric):
    """Mean rank of the first relevant item of a query in [1, max N], MeanR of image-text retrieval; lower is better.

    The mean over queries; ``MeanRank`` is the mean over relevant items.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> FirstMeanRank()(preds, answers)
        tensor(1.3333, dtype=torch.float64)
    """

    measure = Measure(definitions.FIRST_MEAN_RANK)


class FirstMedianRank(NamedMetric):
    """Median rank of the first relevant item of a query in [1, max N], MedR of image-text retrieval; lower is better.

    The median over queries, the midpoint for an even number; ``MedianRank`` is the median over relevant items. The
    realistic rank of the first item is the mean of its optimistic and pessimistic one.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> FirstMedianRank()(preds, answers)
        tensor(1., dtype=torch.float64)
    """

    measure = Measure(definitions.FIRST_MEDIAN_RANK)


class AveragePrecision(QueryMetricUpToK):
    """Average precision, (1/m) sum of i / r_(i) over the m answers in [0, 1], what is averaged to MAP.

    Args:
        k: answers beyond the first k places add nothing, the sum is still divided by m; None: all count.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> AveragePrecision()(preds, answers)
        tensor(0.7963, dtype=torch.float64)
    """

    measure = Measure(definitions.average_precision())
    make = staticmethod(definitions.average_precision)


class NormalizedDCG(QueryMetricUpToK):
    """nDCG of binary relevance in [0, 1], sum of 1 / log2(1 + r) over that of the perfect ranking; higher is better.

    Jarvelin and Kekalainen 2002 (doi:10.1145/582415.582418), with discounts from the first place on.

    Args:
        k: how many places count, in the ranking and the perfect one; None: all.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> NormalizedDCG(3)(preds, answers)
        tensor(0.7991, dtype=torch.float64)
    """

    measure = Measure(definitions.normalized_dcg())
    make = staticmethod(definitions.normalized_dcg)


class RPrecision(NamedMetric):
    """R-precision, the share of the m answers of a query among its first m candidates, in [0, 1]; higher is better.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> RPrecision()(preds, answers)
        tensor(0.7222, dtype=torch.float64)
    """

    measure = Measure(definitions.R_PRECISION)


class QueryAUC(NamedMetric):
    """Area under the ROC curve of a query, in [0, 1]: the share of pairs of an answer and another in the right order.

    1/2 is chance, ties count half. A query whose candidates are all answers has none and is left out. The mean over
    queries; ``MeanAUC`` is that over answers.

    Example:
        >>> answers = [[0, 2], [1, 2], [0, 1, 3]]  # of every row of preds
        >>> QueryAUC()(preds, answers)
        tensor(0.6111, dtype=torch.float64)
    """

    measure = Measure(definitions.QUERY_AUC)
