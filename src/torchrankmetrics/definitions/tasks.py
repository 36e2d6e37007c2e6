"""Definitions of rank metrics: transform f, aggregation, post-transform g, optimum."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.definitions.protocol import (
    Average,
    Bounds,
    EmptyQueries,
    MetricDefinition,
    Side,
)
from torchrankmetrics.definitions.sample import (
    CandidateCounts,
    FloatArray,
    IntArray,
    Moments,
    RankSample,
    RankType,
    power_mean,
    weighted_mean,
    weighted_median,
)
from torchrankmetrics.definitions.sums import panel_means
from torchrankmetrics.definitions.transforms import (
    AUC,
    IDENTITY,
    AtMost,
    Exponential,
    Log,
    Power,
    RankTransform,
    Transform,
    apply_transform,
    as_transform,
    with_limits,
)
from torchrankmetrics.validation import (
    check_choice,
    check_function,
    check_int,
    check_key,
    one_number,
    shorten,
)

if TYPE_CHECKING:
    from torchrankmetrics.null.expectation.provider import ExpectationProvider

Aggregation = Literal[
    "mean", "median", "maximum", "minimum", "variance", "mad", "count", "tie_rate"
]


@dataclass(frozen=True)
class RankDefinition(MetricDefinition):
    """A rank metric M = g(aggregate of f(r_i)) over ranks r_i >= 1.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 2.

    Args:
        name (str): canonical name, ``[a-z][a-z0-9_]*``; the key in logs.
        f (callable, default IDENTITY): transform of ranks, a float64 tensor to a finite one of its
            shape; if it depends on the number N of candidates too, a ``WithCandidates`` whose f(1,
            N) does not depend on N.
        aggregation (str, default "mean"): how the transformed ranks become one number; means are
            weighted by v_i = w_i / sum of w.
        g (callable, default IDENTITY): post-transform of the aggregate.
        optimum (float, default computed): the value when every rank is 1; None: no best value
            (dispersion, counts).
        higher_is_better (bool, default None): direction, by default read off f and g at ranks 1 and
            2^20, or none without an optimum.
        has_null (bool, default True): whether the candidate counts define the value under random
            ranking, which they never do for counts and tie rates.

    Raises:
        ValueError: if the name is not a key, the aggregation is unknown, or a default cannot be
            derived because the value at ranks 1 and 2^20 is not finite, the same, or at rank 1
            depends on the number of candidates.

    >>> import torch
    >>> from torchrankmetrics import RankDefinition
    >>> dcg = RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))
    >>> dcg.optimum, dcg.higher_is_better
    (1.0, True)
    """

    name: str
    f: RankTransform = IDENTITY
    aggregation: Aggregation = "mean"
    g: Transform = IDENTITY
    optimum: float | None = math.nan
    higher_is_better: bool | None = None
    has_null: bool = True

    min_candidates = 1  # tasks with fewer have no value
    is_geometric_mean = False  # or its inverse
    is_extreme = False  # the largest or the smallest f(r)
    is_power_mean = False  # f = r^p, g = x^(1/p); not MR and HMR, whose sums need no scaling

    def __post_init__(self) -> None:
        self._check_arguments()
        vars(self).update(self._properties())
        if self.optimum is None:
            return
        if math.isnan(self.optimum) or self.higher_is_better is None:
            vars(self).update(self._optimum_and_direction(self.optimum))

    def _check_arguments(self) -> None:
        check_key("name", self.name)
        check_choice("aggregation", self.aggregation, get_args(Aggregation))
        check_function("f", self.f, "a float64 tensor -> one of the same shape")
        check_function("g", self.g, "a float64 tensor -> one of the same shape")
        if self.optimum is not None and one_number(self.optimum) is None:
            raise TypeError(f"optimum must be a number or None, got {shorten(self.optimum)}")

    def _properties(self) -> dict[str, Any]:
        """The attributes of ``MetricDefinition`` that follow from f, aggregation and g."""
        f = as_transform(self.f)
        g = as_transform(self.g)
        is_mean = self.aggregation == "mean"
        is_mean_of_f = is_mean and g.is_identity
        is_geometric_mean = is_mean and f == Log() and isinstance(g, Exponential)
        is_root = abs(f.exponent) not in (0, 1) and g.exponent == 1 / f.exponent
        is_count = self.aggregation in ("count", "tie_rate")
        # the worst mean rank (all r = N) is as far above the null mean as the best one is below it
        lowest_index = -1.0 if is_mean_of_f and f.is_identity else None
        return {
            "of_tasks": self,
            "has_null": self.has_null and not is_count,
            "uses_candidates": f.uses_candidates,
            "min_candidates": f.min_candidates,
            "is_mean_of_f": is_mean_of_f,
            "is_share": self.aggregation == "tie_rate" or (is_mean_of_f and f.is_share),
            "is_geometric_mean": is_geometric_mean,
            "is_extreme": self.aggregation in ("maximum", "minimum"),
            "has_optimum": self.optimum is not None,
            "lowest_index": lowest_index,
            "has_expected": is_geometric_mean or is_mean_of_f,
            "is_power_mean": is_mean and is_root,
        }

    def _optimum_and_direction(self, optimum: float) -> dict[str, Any]:
        """Defaults of ``optimum`` and ``higher_is_better``, from the values at ranks 1 and 2^20."""
        at_one, far = self._values_at(1, _FAR)
        if self.uses_candidates:
            self._check_value_at_one(at_one)
        if math.isnan(optimum):
            optimum = at_one
        higher_is_better = self.higher_is_better
        if higher_is_better is None:
            if at_one == far:
                raise ValueError(
                    f"higher_is_better must be passed for {shorten(self.name)}: its value is the "
                    "same at ranks 1 and 2**20"
                )
            higher_is_better = at_one > far
        return {"optimum": optimum, "higher_is_better": higher_is_better}

    def _values_at(self, *ranks: int) -> list[float]:
        """Values g(f(r)) among 2^20 candidates, with errors for functions not of tensors."""
        r = torch.tensor(ranks, dtype=torch.float64, device="cpu")
        try:
            values = self.g(as_transform(self.f).at(_FAR)(r))
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"f of {shorten(self.name)} must map a float64 tensor of ranks to a tensor of "
                f"the same shape, but raises {str(error)!r}; write functions of torch, such as "
                "torch.log2(r), and conditions as torch.where(r <= 10, 1 / r, 0.0)"
            ) from error
        is_tensor = isinstance(values, Tensor) and values.shape == r.shape
        if not is_tensor or not values.isfinite().all():
            raise ValueError(
                "f and g must give a finite tensor of their input's shape; at ranks 1, 2**20: "
                f"{values}"
            )
        return values.tolist()

    def _check_value_at_one(self, at_one: float) -> None:
        """Raise if f(1, N) depends on N."""
        f = as_transform(self.f)
        one = torch.ones(1, dtype=torch.float64, device="cpu")
        among_few = self.g(f.at(f.min_candidates + 1)(one)).item()
        if not math.isclose(at_one, among_few, abs_tol=1e-12):
            raise ValueError(
                f"f of {shorten(self.name)} must give rank 1 the same value for every "
                "number of candidates; scale it by its best value, or pass optimum=None"
            )

    @property
    def has_p_value(self) -> bool:  # type: ignore[override]
        """Whether the value is a monotone function of a mean of f, or an extreme rank."""
        if not self.has_null or self.higher_is_better is None:
            return False
        if self.is_extreme:
            return self.f == IDENTITY and self.g == IDENTITY
        return self.aggregation == "mean" and self.g_direction != 0

    @cached_property
    def g_direction(self) -> int:
        """1 if g is increasing on the means of f, -1 if decreasing, 0 if neither."""
        g = as_transform(self.g)
        if g.direction:
            return g.direction
        means = np.unique(apply_transform(as_transform(self.f).at(_FAR), _PROBE))
        steps = np.diff(g.values(means))
        if (steps > 0).all():
            return 1
        return -1 if (steps < 0).all() else 0

    def __hash__(self) -> int:
        return hash(self.name)  # used by every cache; few definitions share a name

    def sample(
        self, rows: Any, side: Side, average: Average, empty_queries: EmptyQueries | None = None
    ) -> Any:
        return rows.sample(side, average, self.min_candidates)

    def value(self, sample: RankSample, rank_type: RankType = "realistic") -> float:
        return sample.value_of(self.name, lambda sample: self._value(sample, rank_type))

    def _value(self, sample: RankSample, rank_type: RankType) -> float:
        if self.aggregation == "count":
            return float(sample.num_tasks)
        if sample.num_tasks == 0:
            return math.nan
        if self.aggregation == "tie_rate":
            return sample.tie_mass / sample.total
        if rank_type == "expected":
            return self._value_over_tie_orders(sample)
        if self.is_power_mean:
            rank, mass, _ = sample.histogram(rank_type, by_candidates=False)
            return power_mean(as_transform(self.f).exponent, rank, mass)
        return float(apply_transform(self.g, self._aggregate(sample, rank_type), "g")[0])

    def _value_over_tie_orders(self, sample: RankSample) -> float:
        if self.is_geometric_mean:
            return self._geometric_mean_over_tie_orders(sample)
        blocks = sample if self.uses_candidates else sample.tie_blocks
        candidates = blocks.known_candidates if self.uses_candidates else None
        mean = as_transform(self.f).block_means(blocks.optimistic, blocks.pessimistic, candidates)
        mean = self._with_limits(mean, blocks.optimistic, sample)
        return float((blocks.mass * mean).sum() / sample.total)

    def _geometric_mean_over_tie_orders(self, sample: RankSample) -> float:
        """The product of the means of r^s over the block of each task, s = +-v."""
        blocks = sample.tie_blocks
        s = as_transform(self.g).direction * blocks.weight / sample.total
        # (rank / unit)^s >= 1: nothing cancels
        unit = np.where(s > 0, blocks.optimistic, blocks.pessimistic)
        excess = panel_means(
            lambda rank, block: np.expm1(s[block] * np.log(rank / unit[block])),
            blocks.optimistic,
            blocks.pessimistic,
        )
        log_factors = np.log1p(excess) + s * np.log(unit)
        return float(np.exp((blocks.count * log_factors).sum()))

    def _aggregate(self, sample: RankSample, rank_type: RankType) -> FloatArray:
        """Aggregate f over ranks, of a type other than "expected": the value before g, (1,)."""
        rank, mass, num_candidates = sample.histogram(rank_type, by_candidates=self.uses_candidates)
        values = apply_transform(self.f, rank, num_candidates=num_candidates)
        return aggregate(self, self._with_limits(values, rank, sample), mass).reshape(1)

    def _with_limits(self, values: FloatArray, rank: Any, sample: RankSample) -> FloatArray:
        """Values of f, for a mean of them with the limit of f for items that were not retrieved."""
        if not self.is_mean_of_f or sample.num_candidates is not None:
            return values
        return with_limits(self.f, values, rank, None)

    def null_moments(self, sample: RankSample, expectation: "ExpectationProvider") -> Moments:
        return Moments.of(expectation, self, sample.candidate_counts)

    def moments_of_counts(
        self,
        num_candidates: Any,
        num_relevant: Any,
        weight: Any,
        expectation: "ExpectationProvider",
    ) -> Moments:
        counts = CandidateCounts.of(num_candidates, weight)
        return Moments.of(expectation, self, counts.at_least(self.min_candidates))

    def log_p_value(self, sample: RankSample) -> tuple[float, float]:
        from torchrankmetrics.null.p_values import upper_tail

        value = self.value(sample, "pessimistic")
        mean = float(self._aggregate(sample, "pessimistic")[0])
        tail = upper_tail(self, value, sample.candidate_counts, mean=mean)
        return tail.log_p, math.exp(tail.log_p) * tail.error

    def unit_values(self, sample: RankSample, rank_type: RankType) -> FloatArray:
        if self.aggregation == "tie_rate":
            return (sample.pessimistic > sample.optimistic).astype(np.float64)
        if rank_type == "expected":
            return as_transform(self.f).block_means(
                sample.optimistic, sample.pessimistic, sample.num_candidates
            )
        rank = sample.rank(rank_type)
        values = apply_transform(self.f, rank, num_candidates=sample.num_candidates)
        return self._with_limits(values, rank, sample)

    def mean_limits(self, sample: RankSample) -> tuple[float, float]:
        if self.is_share:
            return 0.0, 1.0
        f = as_transform(self.f)
        N = sample.num_candidates
        is_unknown = N is None and (f.uses_candidates or not f.has_limit)
        if not f.smooth or is_unknown:
            return -math.inf, math.inf
        if N is None:
            ends = f.values(np.array([1.0, math.inf])).tolist()
        else:
            ends = [self._mean_at(sample, np.ones_like(N)), self._mean_at(sample, N)]
        return min(ends), max(ends)

    def _mean_at(self, sample: RankSample, ranks: IntArray) -> float:
        N = sample.num_candidates
        values = apply_transform(self.f, ranks.astype(np.float64), num_candidates=N)
        return float((sample.mass * values).sum() / sample.total)

    def is_function_of_mean(self, rank_type: RankType = "realistic") -> bool:
        is_mean = self.aggregation == "mean" and (rank_type != "expected" or self.is_mean_of_f)
        return self.aggregation == "tie_rate" or (is_mean and self.has_p_value)

    def as_tasks(self, sample: RankSample) -> "tuple[RankDefinition, RankSample]":
        return self, sample

    def best(self, moments: Moments) -> float | None:
        return self.optimum

    @property
    def limits(self) -> Bounds:  # type: ignore[override]
        """Bounds of the base value, of user-defined functions only the best one."""
        f = as_transform(self.f)
        g = as_transform(self.g)
        limit = math.nan  # of the value as ranks grow
        if f.has_limit and g.has_limit:
            limit = float(g(f(torch.tensor(math.inf, dtype=torch.float64, device="cpu"))))
        worst = limit if math.isfinite(limit) else None
        return (worst, self.optimum) if self.higher_is_better else (self.optimum, worst)


_FAR = 1 << 20  # rank at which the direction of a metric is read
# ranks between which g must be monotone
_PROBE = np.r_[np.arange(1.0, 65.0), 2.0 ** np.arange(7, 21)]

MEAN_RANK = RankDefinition("mr")
MEAN_RECIPROCAL_RANK = RankDefinition("mrr", f=Power(-1))
MEAN_AUC = RankDefinition("auc", f=AUC)
INVERSE_MEAN_RANK = RankDefinition("imr", g=Power(-1))
HARMONIC_MEAN_RANK = RankDefinition("hmr", f=Power(-1), g=Power(-1))
GEOMETRIC_MEAN_RANK = RankDefinition("gmr", f=Log(), g=Exponential(1))
INVERSE_GEOMETRIC_MEAN_RANK = RankDefinition("igmr", f=Log(), g=Exponential(-1))
MEDIAN_RANK = RankDefinition("median_rank", aggregation="median")
INVERSE_MEDIAN_RANK = RankDefinition("inverse_median_rank", aggregation="median", g=Power(-1))
RANK_VARIANCE = RankDefinition("rank_variance", aggregation="variance", optimum=None)
RANK_STANDARD_DEVIATION = RankDefinition(
    "rank_std", aggregation="variance", g=Power(0.5), optimum=None
)
RANK_MEDIAN_ABSOLUTE_DEVIATION = RankDefinition("rank_mad", aggregation="mad", optimum=None)
RANK_COUNT = RankDefinition("count", aggregation="count", optimum=None)
TIE_RATE = RankDefinition("tie_rate", aggregation="tie_rate", optimum=None)


def hits_at(k: int) -> RankDefinition:
    """Return hits at k, the share of tasks with r_i <= k, in [0, 1]; higher is better.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 2.

    Args:
        k (int): number of first places that count, from 1 to 2^63 - 1.

    Raises:
        TypeError, ValueError: if k is not an integer, or out of this range.

    >>> from torchrankmetrics.definitions import hits_at
    >>> hits_at(10).name
    'hits_at_10'
    """
    k = check_int("k", k, 1, 1 << 63)
    return RankDefinition(f"hits_at_{k}", f=AtMost(k), optimum=1.0, higher_is_better=True)


def power_mean_rank(p: float) -> RankDefinition:
    """Return the power mean (sum of v_i r_i^p)^(1/p), in [1, max N_i]; lower is better.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 2.

    p = 1, 0, -1 give MR, GMR, HMR, and +-inf the largest and the smallest rank. It never decreases
    in p.

    Args:
        p (float): exponent, a real number or an infinity.

    Raises:
        TypeError, ValueError: if p is not a number, or NaN.

    >>> from torchrankmetrics.definitions import power_mean_rank
    >>> power_mean_rank(-2).name, power_mean_rank(1).name
    ('power_mean_rank_minus_2', 'mr')
    """
    if (number := one_number(p)) is None:
        raise TypeError(f"p must be a real number, got {shorten(p)} of type {type(p).__name__}")
    if math.isnan(number):
        raise ValueError("p must be a real number or an infinity, got nan")
    p = number
    if p in (-1, 0, 1):
        return {1: MEAN_RANK, 0: GEOMETRIC_MEAN_RANK, -1: HARMONIC_MEAN_RANK}[int(p)]
    name = f"power_mean_rank_{exponent_name(p)}"
    if math.isinf(p):
        return RankDefinition(name, aggregation="maximum" if p > 0 else "minimum")
    return RankDefinition(name, f=Power(p), g=Power(1 / p), optimum=1.0, higher_is_better=False)


def exponent_name(p: float) -> str:
    """Write an exponent as a piece of a key: 2 -> "2", 2.5 -> "2p5", -inf -> "minus_inf"."""
    size = abs(float(p))
    if math.isinf(size):
        text = "inf"
    elif size.is_integer():
        text = str(int(size))
    else:
        text = format(Decimal(repr(size)), "f").replace(".", "p")
    return f"minus_{text}" if p < 0 else text


def _maximum(x: FloatArray, mass: FloatArray) -> FloatArray:
    return np.asarray(x.max(0))


def _minimum(x: FloatArray, mass: FloatArray) -> FloatArray:
    return np.asarray(x.min(0))


def _weighted_variance(x: FloatArray, mass: FloatArray) -> FloatArray:
    return weighted_mean((x - weighted_mean(x, mass)) ** 2, mass)


def _weighted_mad(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Median absolute deviation; 1 for a standard normal, by its upper quartile."""
    return weighted_median(np.abs(x - weighted_median(x, mass)), mass) / 0.6744897501960817


# of transformed ranks (m,), or of many outcomes in columns, with their mass (m,)
_AGGREGATES: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "mean": weighted_mean,
    "median": weighted_median,
    "maximum": _maximum,
    "minimum": _minimum,
    "variance": _weighted_variance,
    "mad": _weighted_mad,
}


def aggregate(definition: RankDefinition, x: FloatArray, mass: FloatArray) -> FloatArray:
    """Aggregate transformed ranks: of one sample, or of many outcomes in columns."""
    return _AGGREGATES[definition.aggregation](x, mass)
