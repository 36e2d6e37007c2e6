"""Definitions of rank metrics: the transform f, the aggregation, the post-transform g, the optimum."""

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
    known,
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
    """A rank metric M = g(aggregate of f(r_i)) over ranks r_i >= 1 (Hoyt et al. 2022, arXiv 2203.07544, section 2).

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
    is_power_mean = False  # a = 1 / p; others than MR and HMR, which are sums of few digits

    def __post_init__(self) -> None:
        check_key("name", self.name)
        check_choice("aggregation", self.aggregation, get_args(Aggregation))
        for part, transform in (("f", self.f), ("g", self.g)):
            check_function(part, transform, "a float64 tensor -> one of the same shape")
        if self.optimum is not None and one_number(self.optimum) is None:
            raise TypeError(f"optimum must be a number or None, got {shorten(self.optimum)}")
        f, g, is_mean = known(self.f), known(self.g), self.aggregation == "mean"
        is_geometric_mean = is_mean and f == Log() and isinstance(g, Exponential)
        vars(self).update(
            of_tasks=self,
            has_null=self.has_null and self.aggregation not in ("count", "tie_rate"),
            uses_candidates=f.uses_candidates,
            min_candidates=f.min_candidates,
            is_mean_of_f=is_mean and g.is_identity,
            is_share=self.aggregation == "tie_rate" or (is_mean and g.is_identity and f.is_share),
            is_geometric_mean=is_geometric_mean,
            is_extreme=self.aggregation in ("maximum", "minimum"),
            has_optimum=self.optimum is not None,
            # r -> N + 1 - r turns the mean rank around its null mean: the worst is as far from it
            # as the best
            lowest_index=-1.0 if is_mean and f.is_identity and g.is_identity else None,
            has_expected=is_geometric_mean or (is_mean and g.is_identity),
            is_power_mean=is_mean
            and abs(f.exponent) not in (0, 1)
            and g.exponent == 1 / f.exponent,
        )
        if self.optimum is not None and (math.isnan(self.optimum) or self.higher_is_better is None):
            far_ranks = torch.tensor([1.0, float(_FAR)], dtype=torch.float64, device="cpu")
            try:
                ends = self.g(f.at(_FAR)(far_ranks))
            except (TypeError, ValueError, RuntimeError) as error:
                raise TypeError(
                    f"f of {shorten(self.name)} must map a float64 tensor of ranks to a tensor of "
                    f"the same shape, but raises {str(error)!r}; write functions of torch, such as "
                    "torch.log2(r), and conditions as torch.where(r <= 10, 1 / r, 0.0)"
                ) from error
            if not isinstance(ends, Tensor) or ends.shape != (2,) or not ends.isfinite().all():
                raise ValueError(
                    "f and g must give a finite tensor of their input's shape; at ranks 1, 2**20: "
                    f"{ends}"
                )
            at_one, far = ends.tolist()
            if self.uses_candidates:
                near = self.g(
                    f.at(f.min_candidates + 1)(torch.ones(1, dtype=torch.float64, device="cpu"))
                )
                if not math.isclose(at_one, near.item(), abs_tol=1e-12):
                    raise ValueError(
                        f"f of {shorten(self.name)} must give rank 1 the same value for every "
                        "number of candidates; scale it by its best value, or pass optimum=None"
                    )
            if self.higher_is_better is None and at_one == far:
                raise ValueError(
                    f"higher_is_better must be passed for {shorten(self.name)}, as f(1) == f(2**20)"
                )
            vars(self).update(
                optimum=at_one if math.isnan(self.optimum) else self.optimum,
                higher_is_better=at_one > far
                if self.higher_is_better is None
                else self.higher_is_better,
            )

    @property
    def has_p_value(self) -> bool:  # type: ignore[override]
        """Whether the value is a monotone function of a mean of f, or the largest or smallest rank."""
        if not self.has_null or self.higher_is_better is None:
            return False
        if self.is_extreme:
            return self.f == IDENTITY and self.g == IDENTITY
        return self.aggregation == "mean" and self.g_direction != 0

    @cached_property
    def g_direction(self) -> int:
        """1 if g is increasing on the means of f, -1 if decreasing, 0 if neither."""
        g = known(self.g)
        if g.direction:
            return g.direction
        steps = np.diff(g.values(np.unique(apply_transform(known(self.f).at(_FAR), _PROBE))))
        return 1 if (steps > 0).all() else -1 if (steps < 0).all() else 0

    def __hash__(self) -> int:
        return hash(self.name)  # used by every cache; few definitions share a name

    def sample(
        self, rows: Any, side: Side, average: Average, empty_queries: EmptyQueries = "skip"
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
            return power_mean(known(self.f).exponent, rank, mass)
        return float(apply_transform(self.g, self._aggregate(sample, rank_type), "g")[0])

    def _value_over_tie_orders(self, sample: RankSample) -> float:
        blocks = sample if self.uses_candidates else sample.tie_blocks
        low, high = blocks.optimistic, blocks.pessimistic
        if self.is_geometric_mean:
            s = known(self.g).direction * blocks.weight / sample.total
            unit = np.where(s > 0, low, high)  # (rank / unit)^s >= 1: nothing cancels
            excess = panel_means(
                lambda rank, block: np.expm1(s[block] * np.log(rank / unit[block])), low, high
            )
            return float(np.exp((blocks.count * (np.log1p(excess) + s * np.log(unit))).sum()))
        mean = known(self.f).block_means(
            low, high, blocks.known_candidates if self.uses_candidates else None
        )
        mean = self._with_limits(mean, low, sample)
        return float((blocks.mass * mean).sum() / sample.total)

    def _aggregate(self, sample: RankSample, rank_type: RankType) -> FloatArray:
        """Aggregate f over the ranks of a rank type other than "expected", (1,) float64: the value before g."""
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
        self, num_candidates: Any, num_answers: Any, weight: Any, expectation: "ExpectationProvider"
    ) -> Moments:
        counts = CandidateCounts.of(num_candidates, weight)
        return Moments.of(expectation, self, counts.at_least(self.min_candidates))

    def log_p_value(self, sample: RankSample) -> tuple[float, float]:
        from torchrankmetrics.null.p_values import p_value_bracket

        value, mean = (
            self.value(sample, "pessimistic"),
            float(self._aggregate(sample, "pessimistic")[0]),
        )
        low, high = p_value_bracket(self, value, sample.candidate_counts, mean=mean)
        return high, math.exp(high) - math.exp(low) if high - low > _RESOLVED else 0.0

    def unit_values(self, sample: RankSample, rank_type: RankType) -> FloatArray:
        if self.aggregation == "tie_rate":
            return (sample.pessimistic > sample.optimistic).astype(np.float64)
        if rank_type == "expected":
            return known(self.f).block_means(
                sample.optimistic, sample.pessimistic, sample.num_candidates
            )
        rank = sample.rank(rank_type)
        values = apply_transform(self.f, rank, num_candidates=sample.num_candidates)
        return self._with_limits(values, rank, sample)

    def mean_limits(self, sample: RankSample) -> tuple[float, float]:
        N, f = sample.num_candidates, known(self.f)
        if self.is_share:
            return 0.0, 1.0
        if not f.smooth or (N is None and (f.uses_candidates or not f.has_limit)):
            return -math.inf, math.inf
        if N is None:
            low, high = sorted(f.values(np.array([1.0, math.inf])).tolist())
        else:
            ends = [
                apply_transform(self.f, r.astype(np.float64), num_candidates=N)
                for r in (np.ones_like(N), N)
            ]
            low, high = sorted(float((sample.mass * x).sum() / sample.total) for x in ends)
        return low, high

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
        f, g = known(self.f), known(self.g)
        limit = math.nan  # of the value as ranks grow
        if f.has_limit and g.has_limit:
            limit = float(g(f(torch.tensor(math.inf, dtype=torch.float64, device="cpu"))))
        worst = limit if math.isfinite(limit) else None
        return (worst, self.optimum) if self.higher_is_better else (self.optimum, worst)


_RESOLVED = 1e-3  # relative width of a bracket of p that counts as none
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
    """Return hits at k, the share of tasks with r_i <= k, in [0, 1]; higher is better (Hoyt et al. 2022, section 2).

    Args:
        k (int): number of first places that count, from 1 to 2^63 - 1.

    Raises:
        TypeError, ValueError: if k is not an integer, or out of this range.

    >>> hits_at(10).name
    'hits_at_10'
    """
    k = check_int("k", k, 1, 1 << 63)
    return RankDefinition(f"hits_at_{k}", f=AtMost(k), optimum=1.0, higher_is_better=True)


def power_mean_rank(p: float) -> RankDefinition:
    """Return the power mean (sum of v_i r_i^p)^(1/p), in [1, max N_i]; lower is better (Hoyt et al. 2022, section 2).

    p = 1, 0, -1 give MR, GMR, HMR, and +-inf the largest and the smallest rank. It never decreases
    in p.

    Args:
        p (float): exponent, a real number or an infinity.

    Raises:
        TypeError, ValueError: if p is not a number, or NaN.

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
    """Write an exponent as a piece of a key: 2 -> "2", 2.5 -> "2p5", -2 -> "minus_2", -inf -> "minus_inf"."""
    size = abs(float(p))
    text = (
        "inf"
        if math.isinf(size)
        else str(int(size))
        if size.is_integer()
        else format(Decimal(repr(size)), "f")
    )
    return ("minus_" if p < 0 else "") + text.replace(".", "p")


# of transformed ranks (m,), or of many outcomes in columns, with their mass (m,)
_AGGREGATES: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "mean": weighted_mean,
    "median": weighted_median,
    "maximum": lambda x, mass: np.asarray(x.max(0)),
    "minimum": lambda x, mass: np.asarray(x.min(0)),
    "variance": lambda x, mass: weighted_mean((x - weighted_mean(x, mass)) ** 2, mass),
    # 1 for a standard normal, by its upper quartile
    "mad": lambda x, mass: (
        weighted_median(np.abs(x - weighted_median(x, mass)), mass) / 0.6744897501960817
    ),
}


def aggregate(definition: RankDefinition, x: FloatArray, mass: FloatArray) -> FloatArray:
    """Aggregate transformed ranks: of one sample, or of many outcomes in columns."""
    return _AGGREGATES[definition.aggregation](x, mass)
