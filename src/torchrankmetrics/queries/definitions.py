"""`QueryDefinition`: metrics of queries, with their values and null moments."""

from __future__ import annotations  # help() shows the names of types

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.protocol import (
    Average,
    EmptyQueries,
    MetricDefinition,
    Side,
)
from torchrankmetrics.definitions.sample import (
    FloatArray,
    Moments,
    RankSample,
    RankType,
    UnknownCandidatesError,
    distinct_rows,
    in_range,
)
from torchrankmetrics.definitions.tasks import MEDIAN_RANK, RankDefinition, exponent_name
from torchrankmetrics.definitions.transforms import AtMost, RankTransform, as_transform
from torchrankmetrics.queries import binary
from torchrankmetrics.queries.kind import (
    Capped,
    Discount,
    Divisor,
    HalfSum,
    Persistence,
    QueryKind,
    SumOf,
    up_to,
)
from torchrankmetrics.queries.sample import QueryRankType, QuerySample
from torchrankmetrics.validation import check_int, check_key, one_number, shorten

if TYPE_CHECKING:
    from torchrankmetrics.null.expectation.provider import ExpectationProvider


@dataclass(frozen=True)
class QueryDefinition(MetricDefinition):
    """A metric of one query with m relevant items among N candidates, averaged over queries.

    Args:
        name (str): canonical name, ``[a-z][a-z0-9_]*``.
        f (callable, default None): transform of raw ranks, a float64 tensor in, a finite float64
            tensor of the same shape out, as for ``RankDefinition``: the metric is the mean of f
            over the relevant items of a query.
        kind (QueryKind, default None): a metric of another form, instead of f.
        higher_is_better (bool, default None): direction; by default read off f at ranks 1 and 2^20.
        aggregation (str, default "mean"): how the values of queries become one number; the median
            is taken of first ranks.
        relevance_threshold (float, default 1.0): smallest label of a relevant item, unless the kind
            is graded.
        divisor (callable, default None): with f: number that divides the sum of f, as a function of
            the number m of relevant items, (Q,) int64 in, (Q,) above 0 out; None: m.

    Raises:
        ValueError: if the name is not a key, not one of f and kind is given, divisor is given
            without f, or the direction cannot be derived. When values are computed, if divisor
            returns a number that is not above 0.

    >>> import numpy as np
    >>> from torchrankmetrics.queries import QueryDefinition
    >>> from torchrankmetrics.queries.sample import QuerySample
    >>> queries = QuerySample.ranked(np.array([[1, 4]]), 5)
    >>> QueryDefinition("root", f=lambda r: r**-0.5).values(queries)
    array([0.75])
    >>> of_two = {"f": lambda r: (r <= 2) * 1.0, "divisor": lambda m: np.minimum(m, 2)}
    >>> capped = QueryDefinition("capped", **of_two)
    >>> capped.values(QuerySample.ranked(np.array([[1, 2, 4]]), 5))
    array([1.])
    """

    name: str
    f: RankTransform | None = None
    kind: QueryKind = None  # type: ignore[assignment]  # of f, if it is not given
    higher_is_better: bool | None = None
    aggregation: Literal["mean", "median"] = "mean"
    relevance_threshold: float = 1.0
    divisor: Divisor | None = None

    entries_are_rows = False

    def __post_init__(self) -> None:
        check_key("name", self.name)
        if self.divisor is not None and self.f is None:
            raise ValueError(
                f"{shorten(self.name)} has divisor=, which divides a sum of f=: pass f"
            )
        kind = self.kind if self.f is None else SumOf(as_transform(self.f), self.divisor)
        if kind is None or self.kind not in (None, kind):
            raise ValueError(
                f"{shorten(self.name)} needs f=, a transform of ranks, or another kind=, and not "
                "both"
            )
        higher_is_better = self.higher_is_better
        is_mean = self.aggregation == "mean"
        if not is_mean and not isinstance(kind, binary.FirstRank):
            raise ValueError(
                f"{shorten(self.name)} has aggregation='median', which is for kind=FirstRank(): "
                "write aggregation='mean'"
            )
        if higher_is_better is None:
            higher_is_better = (
                self.f is None
                or RankDefinition(self.name, as_transform(self.f).at(1 << 20)).higher_is_better
            )
        vars(self).update(
            kind=kind,
            is_share=kind.is_share,
            limits=kind.limits,
            uses_candidates=kind.uses_candidates,
            higher_is_better=higher_is_better,
            **dict.fromkeys(("is_mean_of_f", "has_expected", "has_p_value"), is_mean),
        )

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def relevance(self) -> float | None:
        """Smallest label of a relevant item; None for metrics of all labels."""
        return None if self.kind.is_graded else self.relevance_threshold

    def at_threshold(self, relevance_threshold: float) -> QueryDefinition:
        """Return the metric with another smallest label of a relevant item.

        A metric that has its own, or none, is returned unchanged.
        """
        number = one_number(relevance_threshold)
        if number is None or not 0 < number < math.inf:
            raise ValueError(
                f"relevance_threshold must be a label above 0, got {shorten(relevance_threshold)}"
            )
        if self.relevance != 1 or number == 1:
            return self
        return replace(
            self, name=f"{self.name}_rel_{exponent_name(number)}", relevance_threshold=number
        )

    def read(self, queries: QuerySample) -> QuerySample:
        """The queries with the items that the metric counts as relevant."""
        return queries if self.relevance is None else queries.relevant(self.relevance)

    def values(self, sample: QuerySample, rank_type: QueryRankType = "expected") -> FloatArray:
        """Return the value of every query, (Q,) float64.

        NaN where it is undefined, as AUC if all candidates are relevant.

        Args:
            sample (QuerySample): the queries.
            rank_type (str, default "expected"): expected over the orders of tied candidates
                (McSherry and Najork 2008, doi:10.1007/978-3-540-78646-7_38); "optimistic" and
                "pessimistic": with relevant items first or last.
        """
        values = np.zeros(len(sample))
        has_item = sample.num_relevant > 0
        if has_item.any():
            found = sample if has_item.all() else sample.take(has_item)
            values[has_item] = self.kind.values(found.placed(rank_type))
        return values

    @property
    def counts_empty(self) -> bool:
        """Whether 0 is a value of queries without a relevant item: if higher values are better."""
        return bool(self.higher_is_better) and self.kind.counts_empty

    def used(self, sample: QuerySample) -> npt.NDArray[np.bool_]:
        """Whether the metric is defined for queries, and their weight is positive, (Q,) bool."""
        N = sample.known_candidates if self.uses_candidates else sample.num_candidates
        used = self.kind.has_value(N, sample.num_relevant) & (sample.weight > 0)
        return used if self.counts_empty else used & (sample.num_relevant > 0)

    def moments(
        self, num_candidates: npt.ArrayLike, num_relevant: npt.ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of queries under random ranking, (Q,) float64 twice.

        The variance is 0 where nothing can vary.

        Args:
            num_candidates (array-like): (Q,) integers N < 2^62.
            num_relevant (array-like): (Q,) integers m in 1..N.
        """
        return self.kind.moments(QuerySample.of_counts(num_candidates, num_relevant))[:2]

    def optimum(self, num_candidates: npt.ArrayLike, num_relevant: npt.ArrayLike) -> FloatArray:
        """Return the value of the ranking that starts with the relevant items.

        Arguments as for ``moments``.
        """
        return self.kind.moments(QuerySample.of_counts(num_candidates, num_relevant))[2]

    def sample(
        self, rows: Any, side: Side, average: Average, empty_queries: EmptyQueries | None = None
    ) -> Any:
        return rows.query_sample(self, side, average, empty_queries)

    def has_tasks(self, rows: Any, side: Side, average: Average) -> bool:
        return bool(rows.has_relevant_items(self, side))

    def value(self, sample: QuerySample, rank_type: RankType = "realistic") -> float:
        return sample.value_of(self.name, lambda sample: self._value(sample, rank_type))

    def _value(self, sample: QuerySample, rank_type: RankType) -> float:
        """Average over the queries that have a value, sum of c w v / sum of c w.

        NaN without any.
        """
        if not self.is_mean_of_f:
            # not ``value``: ``value_of`` has compared the ranks of items not retrieved
            return MEDIAN_RANK._value(sample.first_ranks, rank_type)
        return _weighted(sample, self.used(sample), self.unit_values(sample, rank_type))

    def null_moments(
        self, sample: QuerySample, expectation: ExpectationProvider | None = None
    ) -> Moments:
        """Mean, variance and best value under random ranking of independent queries.

        They are computed by the provider, or exactly without one.
        """
        used = self.used(sample)
        if expectation is None or not used.any():
            return self.exact_moments(sample)
        if (sample.num_candidates[used] < 0).any():
            raise UnknownCandidatesError
        found = Moments.of(expectation, self, sample.take(used))
        if found.optimum is None:
            optimum = _weighted(sample, used, self.kind.moments(sample)[2])
            found = replace(found, optimum=optimum if self.is_mean_of_f else 1.0)
        return found

    def exact_moments(self, sample: QuerySample) -> Moments:
        """Exact null moments, from N, m and the weights."""
        used = self.used(sample)
        if not used.any():
            return Moments(math.nan, 0.0, math.nan)
        if not self.is_mean_of_f:
            from torchrankmetrics.null.expectation.order_statistics import median_of_first_ranks
            from torchrankmetrics.null.expectation.provider import ExpectationUnavailableError

            if len(np.unique(sample.weight[used])) > 1:
                raise ExpectationUnavailableError(
                    f"{shorten(self.name)} has no exact expectation for queries of different "
                    "weights: use view='base'"
                )
            columns = (sample.known_candidates[used], sample.num_relevant[used])
            (N, m), count = distinct_rows(columns, sample.count[used])
            return replace(median_of_first_ranks(N, m, count), optimum=1.0)
        mean, variance, optimum = self._moments_of_each(sample)
        weight = in_range(sample.weight[used])
        count = sample.count[used]
        share = weight / math.fsum((weight * count).tolist())
        squared = math.fsum((share * share * count * variance[used]).tolist())
        return Moments(_weighted(sample, used, mean), squared, _weighted(sample, used, optimum))

    def _moments_of_each(self, sample: QuerySample) -> FloatArray:
        """Null mean, variance and best value of every query, (3, Q); 0 without a relevant item."""
        found = np.zeros((3, len(sample)))
        has_item = sample.num_relevant > 0
        if has_item.any():
            found[:, has_item] = self.kind.moments(sample.take(has_item))
        return found

    def moments_of_counts(
        self, num_candidates: Any, num_relevant: Any, weight: Any, expectation: Any
    ) -> Moments:
        queries = QuerySample.of_counts(num_candidates, num_relevant, weight)
        return self.null_moments(queries, expectation)

    def log_p_value(self, sample: QuerySample) -> tuple[float, float]:
        from torchrankmetrics.queries.significance import query_p_value

        # others have the value 0 under random ranking, too
        sample = sample.take(sample.num_relevant > 0)
        return query_p_value(self, sample) if len(sample) else (0.0, 0.0)

    def unit_values(self, sample: QuerySample, rank_type: RankType) -> FloatArray:
        """Value of every query, (Q,) float64, NaN if undefined; realistic means expected here."""
        return self.values(sample, "expected" if rank_type == "realistic" else rank_type)

    def as_tasks(self, sample: QuerySample) -> tuple[RankDefinition, RankSample]:
        return MEDIAN_RANK, sample.first_ranks  # of the one metric that is not a mean

    def canonical_rank_type(self, rank_type: RankType) -> RankType:
        return "expected" if rank_type == "realistic" and self.has_expected else rank_type


R_PRECISION = QueryDefinition("r_precision", kind=binary.RPrecisionKind())
QUERY_AUC = QueryDefinition("query_auc", kind=binary.AreaUnderCurve())
FIRST_MEAN_RANK = QueryDefinition("first_mr", kind=binary.FirstRank(), higher_is_better=False)
FIRST_MEDIAN_RANK = QueryDefinition("first_median_rank", None, binary.FirstRank(), False, "median")


def recall_at(k: int) -> QueryDefinition:
    """Return recall at k, #{r_i <= k} / m, in [0, 1]. Raises as ``hits_at``.

    Args:
        k (int): number of first places that count, at least 1.

    >>> from torchrankmetrics.queries import recall_at
    >>> recall_at(100).name
    'recall_at_100'
    """
    return QueryDefinition(_name_at("recall", k), f=AtMost(k), higher_is_better=True)


def precision_at(k: int) -> QueryDefinition:
    """Return precision at k, #{r_i <= k} / k, in [0, 1].

    The divisor is k also where k > N. Raises as ``hits_at``.

    Args:
        k (int): number of first places that count, at least 1.

    >>> from torchrankmetrics.queries import precision_at
    >>> precision_at(5).name
    'precision_at_5'
    """
    return QueryDefinition(_name_at("precision", k), kind=SumOf(AtMost(k), divisor=k))


def capped_recall_at(k: int) -> QueryDefinition:
    """Return capped recall at k, #{r_i <= k} / min(m, k), in [0, 1].

    It is BEIR's R_cap@k. Raises as ``hits_at``.

    Args:
        k (int): number of first places that count, at least 1.

    >>> from torchrankmetrics.queries import capped_recall_at
    >>> capped_recall_at(10).name
    'recall_cap_at_10'
    """
    return _share_of_hits("recall_cap", k, Capped(k))


def f1_at(k: int) -> QueryDefinition:
    """Return F1 at k, the harmonic mean of precision and recall, in [0, 1].

    It is 2 #{r_i <= k} / (m + k).

    Raises as ``hits_at``.

    Args:
        k (int): number of first places that count, at least 1.

    >>> from torchrankmetrics.queries import f1_at
    >>> f1_at(10).name
    'f1_at_10'
    """
    return _share_of_hits("f1", k, HalfSum(k))


def _share_of_hits(name: str, k: int, divisor: Divisor) -> QueryDefinition:
    key = _name_at(name, k)
    return QueryDefinition(key, f=AtMost(k), higher_is_better=True, divisor=divisor)


def fall_out_at(k: int) -> QueryDefinition:
    """Return fall-out at k, the share of the other candidates that are among the first k.

    There are N - m other candidates, and lower values are better.

    Queries whose candidates are all relevant are excluded. Raises as ``hits_at``.

    Args:
        k (int): number of first places that count, at least 1.

    >>> from torchrankmetrics.queries import fall_out_at
    >>> fall_out_at(10).name
    'fall_out_at_10'
    """
    key = _name_at("fall_out", k)
    return QueryDefinition(key, kind=binary.FallOut(k), higher_is_better=False)


def success_at(k: int) -> QueryDefinition:
    """Return success at k, whether a relevant item is among the first k. Raises as ``hits_at``.

    Args:
        k (int): number of first places that count, at least 1.

    >>> from torchrankmetrics.queries import success_at
    >>> success_at(1).name
    'success_at_1'
    """
    return QueryDefinition(_name_at("success", k), kind=binary.Success(AtMost(k)))


def first_reciprocal_rank(k: int | None = None) -> QueryDefinition:
    """Return the reciprocal rank of the first relevant item, 0 if it is beyond k.

    Raises as ``hits_at``.

    Args:
        k (int, default None): number of first places that count, at least 1; None: all.

    >>> from torchrankmetrics.queries import first_reciprocal_rank
    >>> first_reciprocal_rank(10).name
    'rr_at_10'
    """
    return QueryDefinition(_name("rr", k), kind=binary.FirstReciprocal(k))


def average_precision(k: int | None = None) -> QueryDefinition:
    """Return average precision, (1/m) sum of i / r_(i) over the relevant items up to k.

    Raises as ``hits_at``.

    Args:
        k (int, default None): number of first places that count, at least 1; None: all.

    >>> from torchrankmetrics.queries import average_precision
    >>> average_precision(100).name
    'ap_at_100'
    """
    return QueryDefinition(_name("ap", k), kind=binary.AveragePrecisionKind(k))


def capped_average_precision(k: int) -> QueryDefinition:
    """Return capped average precision, 1 / min(m, k) times the sum of i / r_(i) up to k, in [0, 1].

    Raises as ``hits_at``.

    Args:
        k (int): number of first places that count, at least 1.

    >>> from torchrankmetrics.queries import capped_average_precision
    >>> capped_average_precision(10).name
    'ap_cap_at_10'
    """
    key = _name_at("ap_cap", k)
    return QueryDefinition(key, kind=binary.AveragePrecisionKind(k, is_capped=True))


def normalized_dcg(k: int | None = None) -> QueryDefinition:
    """Return nDCG: the sum of label_i / log2(1 + r_i) up to k, over its best value.

    Raises as ``hits_at``.

    Args:
        k (int, default None): number of first places that count, at least 1; None: all.

    >>> from torchrankmetrics.queries import normalized_dcg
    >>> normalized_dcg(10).name
    'ndcg_at_10'
    """
    return QueryDefinition(
        _name("ndcg", k), kind=SumOf(up_to(Discount(), k), "best", is_graded=True)
    )


def exponential_ndcg(k: int | None = None) -> QueryDefinition:
    """Return nDCG with gains 2^label - 1 instead of labels. Raises as ``hits_at``.

    Args:
        k (int, default None): number of first places that count, at least 1; None: all.

    >>> from torchrankmetrics.queries import exponential_ndcg
    >>> exponential_ndcg(10).name
    'ndcg_exp_at_10'
    """
    return QueryDefinition(
        _name("ndcg_exp", k), kind=SumOf(up_to(Discount(), k), "best", True, is_exponential=True)
    )


def discounted_gain(k: int | None = None) -> QueryDefinition:
    """Return DCG, the sum of label_i / log2(1 + r_i) up to k. Raises as ``hits_at``.

    Args:
        k (int, default None): number of first places that count, at least 1; None: all.

    >>> from torchrankmetrics.queries import discounted_gain
    >>> discounted_gain(10).name
    'dcg_at_10'
    """
    return QueryDefinition(
        _name("dcg", k), kind=SumOf(up_to(Discount(), k), divisor=1, is_graded=True)
    )


def rank_biased_precision(p: float = 0.8) -> QueryDefinition:
    """Return rank-biased precision, the sum of (1 - p) p^(r_i - 1), in [0, 1).

    Moffat and Zobel 2008 (doi:10.1145/1416950.1416952).

    Args:
        p (float, default 0.8): probability that a reader goes on to the next place, between 0 and
            1.

    >>> from torchrankmetrics.queries import rank_biased_precision
    >>> rank_biased_precision(0.95).name
    'rbp_0p95'
    """
    number = one_number(p)
    if number is None or not 0 < number < 1:
        raise ValueError(f"p must be a number between 0 and 1, got {shorten(p)}")
    name = "rbp" if number == 0.8 else f"rbp_{exponent_name(number)}"
    return QueryDefinition(name, kind=SumOf(Persistence(number), divisor=1))


def _name(name: str, k: int | None) -> str:
    return name if k is None else _name_at(name, k)


def _name_at(name: str, k: int) -> str:
    return f"{name}_at_{check_int('k', k, 1, 1 << 63)}"


def _weighted(sample: QuerySample, used: npt.NDArray[np.bool_], x: FloatArray) -> float:
    if not used.any():
        return math.nan
    mass = in_range(sample.weight[used]) * sample.count[used]
    # the same bits in any order
    return math.fsum((mass * x[used]).tolist()) / math.fsum(mass.tolist())
