"""Public metric classes; most of their docstrings is generated.

Generated are signature, arguments, input, output and example.
"""

import inspect
import re
from typing import Any, ClassVar

from torch import Tensor, float64, tensor

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.definitions.tasks import exponent_name, power_mean_rank
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.names import as_measure
from torchrankmetrics.metrics.registry import METRICS
from torchrankmetrics.validation import check_int

_DOCUMENTATION = """\
{summary}

Args:
{args}
    compute_on_cpu (bool, default False): store rows on the CPU, as in torchmetrics.
    dist_sync_on_step (bool, default False): synchronize the processes in every ``forward``.
    process_group (ProcessGroup, default None): processes that synchronize; None: all.
    dist_sync_fn (callable, default None): gathers a tensor from all processes; None:
        ``torch.distributed``.
    distributed_available_fn (callable, default None): whether processes synchronize; None:
        ``torch.distributed``.
    sync_on_compute (bool, default True): synchronize the processes in ``compute``.
    compute_with_cache (bool, default True): return the stored value until the next ``update``.

As input to ``update`` the metric accepts:

- preds (Tensor): scores of shape (B, N), higher is better; or a ``Ranks`` or ``RankTable``,
  without target.
- target (Tensor or list): columns (B,) of the ground truth; for several relevant items bool (B, N),
  floating labels, or a list of the columns of each row.
- exclude (Tensor): bool (B, N), True: not a candidate (padding, other known positives, items seen
  in training).

As output of ``compute`` the metric returns:

- value (Tensor): 0-d float64 over all updates and processes; NaN without data or where it is
  undefined.

Example:
    >>> import torch
    >>> from torchrankmetrics import {name}
    >>> preds = torch.tensor([[0.9, 0.1, 0.4, 0.2], [0.2, 0.4, 0.4, 0.9], [0.5, 0.8, 0.6, 0.1]])
    >>> target = {example}
    >>> {name}({arguments})(preds, target)
    {value}
"""
_COLUMNS = "torch.tensor([0, 1, 2])  # realistic ranks 1, 2.5 and 2 among 4 candidates"
_LISTS = "[[0, 2], [1, 2], [0, 1, 3]]  # relevant items of each query"
_NUMBERS = {
    "k: int": "k (int): number of first places that count, at least 1.",
    "k: int | None = None": (
        "k (int, default None): number of first places that count, at least 1; None: all."
    ),
    "p: float": "p (float): exponent, a real number or an infinity.",
    "p: float = 0.8": "p (float, default 0.8): persistence, in (0, 1).",
}
_HOST_OPTIONS = {
    name: {"True": True, "False": False, "None": None}[default]
    for name, default in re.findall(
        r"^    (\w+) \(\w+, default (\w+)\)", _DOCUMENTATION, re.MULTILINE
    )
}


class _ClassMeasure:
    """The measure on a class, with 1 or 2 for a number in its name.

    Direction and bounds do not depend on the number.
    """

    def __get__(self, metric: "NamedMetric | None", owner: "type[NamedMetric]") -> Measure:
        return as_measure(owner.metric_name.replace("<k>", "1").replace("<p>", "2"))


class NamedMetric(RankMetric):
    """A metric whose name is fixed by its class.

    So torchmetrics reads direction and bounds from the class.
    """

    metric_name: ClassVar[str]
    measure = _ClassMeasure()  # instances have their own

    @suggest_keywords
    def __init__(self, **options: Any) -> None:
        super().__init__(self.metric_name, **options)

    def __init_subclass__(
        cls, key: str | None = None, arguments: str = "", value: float | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = (
            None if key is None and "__init__" in vars(cls) else _signature(cls, key or "")
        )
        if key is not None:
            cls.metric_name = key
        if value is not None and cls.__doc__ and RankMetric.__doc__:  # python -OO has no docstrings
            cls.__doc__ = _document(cls, arguments, tensor(value, dtype=float64))

    __signature__: ClassVar[inspect.Signature | None] = None


class NamedMetricAtK(NamedMetric):
    """A metric of the first k places."""

    @suggest_keywords
    def __init__(self, k: int, **options: Any) -> None:
        places = check_int("k", k, 1, 1 << 63)
        super(NamedMetric, self).__init__(self.metric_name.replace("<k>", str(places)), **options)


class NamedMetricUpToK(NamedMetric):
    """A metric of all places, or of the first k."""

    @suggest_keywords
    def __init__(self, k: int | None = None, **options: Any) -> None:
        places = "" if k is None else f"_at_{check_int('k', k, 1, 1 << 63)}"
        super(NamedMetric, self).__init__(self.metric_name + places, **options)


def _signature(cls: type[NamedMetric], key: str) -> inspect.Signature:
    """Return the signature of a class with all keyword arguments written out."""
    own = inspect.signature(cls.__init__).parameters.values()
    numbers = [one for one in own if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
    shared = inspect.signature(RankMetric.__init__).parameters.values()
    has_view = key.startswith(("amr", "adjusted_", "z_"))
    keywords = [
        one
        for one in shared
        if one.kind is one.KEYWORD_ONLY and not (has_view and one.name == "view")
    ]
    of_host = [
        inspect.Parameter(name, keywords[0].kind, default=value)
        for name, value in _HOST_OPTIONS.items()
    ]
    return inspect.Signature([*numbers, *keywords, *of_host])


def _document(cls: type[NamedMetric], arguments: str, value: Tensor) -> str:
    """Return the docstring of a class: its own text, and arguments shared with ``RankMetric``."""
    assert cls.__signature__ is not None
    section = inspect.cleandoc(RankMetric.__doc__ or "").split("Args:\n")[1].split("\n\n")[0]
    shared = re.findall(r"^    \S.*(?:\n     .*)*", section, re.MULTILINE)
    parameters = cls.__signature__.parameters
    numbers = [
        f"    {_NUMBERS[text]}" for text in map(str, parameters.values()) if text in _NUMBERS
    ]
    args = [entry for entry in shared if re.split(r"\W", entry.strip())[0] in parameters]
    name = cls.metric_name.removesuffix("_at_<k>")
    of_queries = any(entry.name == name and entry.is_of_queries for entry in METRICS)
    return _DOCUMENTATION.format(
        summary=inspect.cleandoc(cls.__doc__ or ""),
        args="\n".join([*numbers, *args]),
        name=cls.__name__,
        example=_LISTS if of_queries else _COLUMNS,
        arguments=arguments,
        value=repr(value),
    )


# averages over ranking tasks


class MeanRank(NamedMetric, key="mr", value=11 / 6):
    """Mean rank: the mean of r, in [1, max N]; lower is better. Hoyt et al. 2022, eq. 1."""


class MeanReciprocalRank(NamedMetric, key="mrr", value=19 / 30):
    """Mean reciprocal rank (MRR): the mean of 1 / r, in (0, 1]; higher is better.

    It averages over targets. ``FirstReciprocalRank`` takes the first of several relevant items of a
    query, the MRR of retrieval (``RetrievalMRR`` of torchmetrics). Source: Hoyt et al. 2022,
    section 2.
    """


class MeanAUC(NamedMetric, key="auc", value=13 / 18):
    """Mean area under the ROC curve: the mean of (N - r) / (N - 1), in [0, 1]; higher is better.

    It is the share of negatives with a score below the ground truth; a tie counts half, and random
    ranking gives 1/2. Tasks with one candidate are excluded. Source: Hanley and McNeil 1982
    (doi:10.1148/radiology.143.1.7063747).
    """


class HitsAtK(NamedMetricAtK, key="hits_at_<k>", arguments="2", value=2 / 3):
    """Hits at k: the share of ranking tasks with r <= k, in [0, 1]; higher is better.

    Source: Hoyt et al. 2022, eq. 3.

    A plain ``MetricCollection`` names metrics by class: for several k give it a dict.
    """


class InverseMeanRank(NamedMetric, key="imr", value=6 / 11):
    """Inverse mean rank: 1 / MR, in (0, 1]; higher is better. Hoyt et al. 2022, section 2."""


class HarmonicMeanRank(NamedMetric, key="hmr", value=30 / 19):
    """Harmonic mean rank: 1 / MRR, in [1, max N]; lower is better. Hoyt et al. 2022, section 2."""


class GeometricMeanRank(NamedMetric, key="gmr", value=5 ** (1 / 3)):
    """Geometric mean rank: exp of the mean of log r, in [1, max N]; lower is better.

    Source: Hoyt et al. 2022, section 2.
    """


class InverseGeometricMeanRank(NamedMetric, key="igmr", value=5 ** (-1 / 3)):
    """Inverse geometric mean rank: 1 / GMR, in (0, 1]; higher is better.

    Source: Hoyt et al. 2022, section 2.
    """


class MedianRank(NamedMetric, key="median_rank", value=2):
    """Median rank, in [1, max N]; lower is better.

    The midpoint for an even number of tasks; with weights the lower median.
    """


class InverseMedianRank(NamedMetric, key="inverse_median_rank", value=1 / 2):
    """Inverse median rank: 1 / median rank, in (0, 1]; higher is better."""


class RankVariance(NamedMetric, key="rank_variance", value=7 / 18):
    """Population variance of the ranks: the mean of (r - MR)^2, at least 0; no direction."""


class RankStandardDeviation(NamedMetric, key="rank_std", value=(7 / 18) ** 0.5):
    """Population standard deviation of the ranks, at least 0; no direction."""


class RankMedianAbsoluteDeviation(NamedMetric, key="rank_mad", value=0.7413):
    """Median of |r - median| over the 75% quantile of the normal distribution, at least 0.

    It has no direction.
    """


class RankCount(NamedMetric, key="count", value=3):
    """Number of ranking tasks with a positive weight; no direction."""


class TieRate(NamedMetric, key="tie_rate", value=1 / 3):
    """Tie rate: the share of ranking tasks whose ground truth is tied, in [0, 1]; no direction."""


class PowerMeanRank(NamedMetric, key="power_mean_rank_<p>", arguments="2", value=3.75**0.5):
    """Power mean of the ranks: (mean of r^p)^(1/p), in [1, max N]; lower is better.

    For p = 1, 0 and -1 it is MR, GMR and HMR.
    """

    @suggest_keywords
    def __init__(self, p: float, **options: Any) -> None:
        super(NamedMetric, self).__init__(power_mean_rank(p), **options)


class AdjustedMeanRank(NamedMetric, key="amr", value=11 / 15):
    """AMR: MR / E[MR], above 0; 1 is random, lower is better. Berrendorf et al. 2020, eq. 7."""


class AdjustedMeanRankIndex(NamedMetric, key="amri", value=4 / 9):
    """AMRI: 1 - 2 sum w (r - 1) / sum w (N - 1), in [-1, 1]; higher is better.

    0 is random, 1 is best.

    It is the mean of 2 AUC - 1 with weights w (N - 1); the index of ``MeanAUC`` weights tasks
    equally. Source: Berrendorf et al. 2020, eq. 8, with the sign corrected.
    """


class AdjustedMeanReciprocalRank(NamedMetric, key="adjusted_mrr", value=0.2348):
    """AMRR: (MRR - E) / (1 - E), at most 1; 0 is random, 1 is best, higher is better.

    Source: Hoyt et al. 2022, section 3.
    """


class AdjustedHitsAtK(NamedMetricAtK, key="adjusted_hits_at_<k>", arguments="2", value=1 / 3):
    """Adjusted hits at k: (H - E) / (1 - E), at most 1; 0 is random, higher is better.

    Source: Hoyt et al. 2022, eq. 22.
    """


class ZMeanRank(NamedMetric, key="z_mr", value=1.0328):
    """z-score of the mean rank: (E - MR) / sqrt(V); 0 is random, higher is better.

    Source: Hoyt et al. 2022, section 3.
    """


class ZMeanReciprocalRank(NamedMetric, key="z_mrr", value=0.6698):
    """z-score of MRR: (MRR - E) / sqrt(V); 0 is random, higher is better.

    Source: Hoyt et al. 2022, section 3.
    """


class ZHitsAtK(NamedMetricAtK, key="z_hits_at_<k>", arguments="2", value=3**-0.5):
    """z-score of hits at k: (H - E) / sqrt(V); 0 is random, higher is better.

    Source: Hoyt et al. 2022, section 3.
    """


# Averages over queries. Ties count by their expectation over the orders of tied candidates, unless
# rank_type is given: McSherry and Najork 2008 (doi:10.1007/978-3-540-78646-7_38).


class RecallAtK(NamedMetricAtK, key="recall_at_<k>", arguments="2", value=11 / 18):
    """Recall at k: the share of the relevant items of a query in its first k places.

    The range is [0, 1]; higher is better.
    """


class CappedRecallAtK(NamedMetricAtK, key="recall_cap_at_<k>", arguments="2", value=2 / 3):
    """Capped recall at k: relevant items in the first k places over min(m, k).

    The range is [0, 1]; higher is better.

    A query with m relevant items, more than k, can reach 1. BEIR's R_cap@k.
    """


class PrecisionAtK(NamedMetricAtK, key="precision_at_<k>", arguments="2", value=2 / 3):
    """Precision at k: relevant items in the first k places over k, also if N < k.

    The range is [0, 1]; higher is better.
    """


class F1AtK(NamedMetricAtK, key="f1_at_<k>", arguments="2", value=19 / 30):
    """F1 at k: the harmonic mean of precision and recall at k of a query, in [0, 1].

    It is 2 h / (m + k) with h hits; higher is better.
    """


class FallOutAtK(NamedMetricAtK, key="fall_out_at_<k>", arguments="2", value=1 / 2):
    """Fall-out at k: the share of the other candidates that are in the first k places.

    The range is [0, 1]; lower is better.

    Queries whose candidates are all relevant are excluded.
    """


class SuccessAtK(NamedMetricAtK, key="success_at_<k>", arguments="1", value=2 / 3):
    """Success at k (hit rate, R@k): the share of queries with a hit, in [0, 1].

    A hit is a relevant item in the first k places; higher is better.
    """


class FirstReciprocalRank(NamedMetricUpToK, key="rr", value=5 / 6):
    """Reciprocal rank of the first relevant item of a query, 0 beyond k, in [0, 1].

    Its mean is also called MRR; higher is better.
    """


class FirstMeanRank(NamedMetric, key="first_mr", value=4 / 3):
    """Mean over queries of the rank of the first relevant item (MeanR), in [1, max N].

    Lower is better.
    """


class FirstMedianRank(NamedMetric, key="first_median_rank", value=1):
    """Median over queries of the rank of the first relevant item (MedR), in [1, max N].

    Lower is better.
    """


class AveragePrecision(NamedMetricUpToK, key="ap", value=43 / 54):
    """Average precision: the mean of i / r_(i) over the relevant items, 0 beyond k.

    The range is [0, 1]; higher is better. Its mean over queries is MAP.
    """


class CappedAveragePrecisionAtK(NamedMetricAtK, key="ap_cap_at_<k>", arguments="2", value=7 / 12):
    """Capped average precision at k: the sum of i / r_(i) up to k over min(m, k).

    The range is [0, 1]; higher is better.
    """


class NormalizedDCG(NamedMetricUpToK, key="ndcg", arguments="3", value=0.7991):
    """nDCG: the sum of label / log2(1 + r) over its best value, in [0, 1]; higher is better.

    The best value belongs to the ranking by descending label, up to place k; a bool target has
    labels 1. Source: Jarvelin and Kekalainen 2002 (doi:10.1145/582415.582418), with discounts from
    the first place on.
    """


class ExponentialNDCG(NamedMetricUpToK, key="ndcg_exp", arguments="3", value=0.7991):
    """nDCG with gains 2^label - 1, in [0, 1]; higher is better.

    Source: Burges et al. 2005 (doi:10.1145/1102351.1102363).
    """


class DiscountedCumulativeGain(NamedMetricUpToK, key="dcg", arguments="3", value=1.4206):
    """DCG: the sum of label / log2(1 + r) over the relevant items of a query, at least 0.

    Higher is better.
    """


class RankBiasedPrecision(NamedMetric, key="rbp", value=0.3595):
    """Rank-biased precision: the sum of (1 - p) p^(r - 1) over the relevant items.

    The range is [0, 1); higher is better.

    Source: Moffat and Zobel 2008 (doi:10.1145/1416950.1416952).
    """

    @suggest_keywords
    def __init__(self, p: float = 0.8, **options: Any) -> None:
        super(NamedMetric, self).__init__(f"rbp_{exponent_name(p)}", **options)


class RPrecision(NamedMetric, key="r_precision", value=13 / 18):
    """R-precision: the share of the m relevant items of a query in its first m places.

    The range is [0, 1]; higher is better.
    """


class QueryAUC(NamedMetric, key="query_auc", value=11 / 18):
    """Area under the ROC curve of a query, in [0, 1]; higher is better.

    It is the share of pairs of a relevant and another item in the right order.
    """
