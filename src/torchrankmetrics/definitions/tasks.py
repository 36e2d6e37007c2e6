"""Definitions of rank metrics: f, its aggregation, the outer function, the optimum."""

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.kinds import AUC, IDENTITY, AtMost, Exponential, Log, Power, WithCandidates
from torchrankmetrics.definitions.transforms import KnownTransform, RankTransform, Transform, known
from torchrankmetrics.validation import check_choice, check_function, check_int, one_number, shown

# the transforms belong to this module's names
__all__ = ["AUC", "IDENTITY", "AtMost", "Exponential", "Log", "Power", "RankTransform", "Transform", "WithCandidates"]
Aggregation = Literal["mean", "median", "maximum", "minimum", "variance", "mad", "count", "tie_rate"]


@dataclass(frozen=True)
class RankDefinition:
    """A rank metric M = g(aggregate of f(r_i)) over ranks r_i >= 1.

    Args:
        name: canonical name, ``[a-z][a-z0-9_]*``; it becomes the key in logs.
        f: transform of ranks, a float64 tensor in, a finite float64 tensor of the same shape out; one that depends on
            the number of candidates too is wrapped in ``WithCandidates``, and its f(1, N) must not depend on N.
        aggregation: how the transformed ranks become one number; means are weighted by v_i = w_i / sum of w.
        g: post-transform of the aggregate.
        optimum: the value when every rank is 1; None: there is no best value (dispersion, counts).
            By default computed from f and g.
        higher_is_better: direction. By default read off f and g at ranks 1 and 2^20; without an optimum: no direction.
        has_null: False if the value under random ranking is not defined by the candidate counts, as always for counts
            and tie rates.

    Raises:
        ValueError: if the name is not a key, the aggregation is unknown, a default cannot be derived because the value
            at ranks 1 and 2^20 is not finite, or the same, or the best value depends on the number of candidates.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 2, read as transform, aggregation, post-transform.

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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"name must match [a-z][a-z0-9_]*, so that every logger takes it; got {shown(self.name)}")
        check_choice("aggregation", self.aggregation, get_args(Aggregation))
        for part, transform in (("f", self.f), ("g", self.g)):
            check_function(part, transform, "a float64 tensor -> one of the same shape")
        if self.optimum is not None and one_number(self.optimum) is None:
            raise TypeError(f"optimum must be a number or None, got {shown(self.optimum)}")
        if self.aggregation in ("count", "tie_rate"):
            object.__setattr__(self, "has_null", False)
        if self.optimum is not None and (math.isnan(self.optimum) or self.higher_is_better is None):
            far_ranks = torch.tensor([1.0, float(_FAR)], dtype=torch.float64, device="cpu")
            ends = self.g(self.f_at(_FAR)(far_ranks))
            if not isinstance(ends, Tensor) or ends.shape != (2,) or not ends.isfinite().all():
                raise ValueError(
                    f"f and g must give a finite tensor of the shape of the ranks they get; at ranks 1 and 2**20 {ends}"
                )
            at_one, far = ends.tolist()
            if self.uses_candidates:
                near = self.g(self.f_at(self.min_candidates + 1)(torch.ones(1, dtype=torch.float64, device="cpu")))
                if not math.isclose(at_one, near.item(), abs_tol=1e-12):
                    raise ValueError(
                        f"f of {shown(self.name)} must give rank 1 the same value for every number of candidates; "
                        "scale it by its best value, or pass optimum=None"
                    )
            if math.isnan(self.optimum):
                object.__setattr__(self, "optimum", at_one)
            if self.higher_is_better is None:
                if at_one == far:
                    raise ValueError(
                        f"higher_is_better cannot be derived for {shown(self.name)}: f(1) == f(2**20); pass it"
                    )
                object.__setattr__(self, "higher_is_better", at_one > far)

    @cached_property
    def uses_candidates(self) -> bool:
        """Whether f depends on the number of candidates, so that even the base value does."""
        return known(self.f).uses_candidates

    @cached_property
    def min_candidates(self) -> int:
        """The fewest candidates with which a task has a value; tasks with fewer are left out."""
        return known(self.f).min_candidates

    def f_at(self, num_candidates: int) -> KnownTransform:
        """The transform of ranks among so many candidates."""
        return known(self.f).at(num_candidates)

    @property
    def is_mean_of_f(self) -> bool:
        """Whether the value is the mean of f itself, as that of MR, MRR and hits is."""
        return self.aggregation == "mean" and known(self.g).is_identity

    @property
    def is_share(self) -> bool:
        """Whether the value is a share of tasks: hits at k, and the tie rate."""
        return self.aggregation == "tie_rate" or (self.is_mean_of_f and known(self.f).is_share)

    @property
    def is_geometric_mean(self) -> bool:
        """Whether the value is the geometric mean of ranks or its inverse."""
        return self.aggregation == "mean" and self.f == Log() and isinstance(self.g, Exponential)

    @property
    def is_extreme(self) -> bool:
        """Whether the largest or the smallest f(r) makes the value."""
        return self.aggregation in ("maximum", "minimum")

    @cached_property
    def exponents(self) -> tuple[float, float]:
        """The p and a of a metric (sum of v_i r_i^p)^a; NaN for what is no power."""
        return (known(self.f).exponent, known(self.g).exponent) if self.aggregation == "mean" else (math.nan, math.nan)

    def __hash__(self) -> int:
        return hash(self.name)  # every cache of an evaluation asks; definitions of one name are few


_FAR = 1 << 20  # where the direction of a metric is read off

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
RANK_STANDARD_DEVIATION = RankDefinition("rank_std", aggregation="variance", g=Power(0.5), optimum=None)
RANK_MEDIAN_ABSOLUTE_DEVIATION = RankDefinition("rank_mad", aggregation="mad", optimum=None)
RANK_COUNT = RankDefinition("count", aggregation="count", optimum=None)
TIE_RATE = RankDefinition("tie_rate", aggregation="tie_rate", optimum=None)


def hits_at(k: int) -> RankDefinition:
    """Define hits at k, the share of tasks with r_i <= k, in [0, 1]; higher is better.

    Raises:
        TypeError: if k is not an integer.
        ValueError: if k is below 1 or beyond int64.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 2.

    >>> hits_at(10).name
    'hits_at_10'
    """
    k = check_int("k", k, 1, 1 << 63)
    return RankDefinition(f"hits_at_{k}", f=AtMost(k), optimum=1.0, higher_is_better=True)


def power_mean_rank(p: float) -> RankDefinition:
    """Define the power mean (sum of v_i r_i^p)^(1/p), in [1, max N_i]; lower is better.

    p = 1, 0, -1 give MR, GMR, HMR, and +-inf the largest and the smallest rank. It never decreases in p.

    Raises:
        TypeError: if p is not a number.
        ValueError: if p is NaN.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 2.

    >>> power_mean_rank(-2).name, power_mean_rank(1).name
    ('power_mean_rank_minus_2', 'mr')
    """
    number = one_number(p)
    if number is None:
        raise TypeError(f"p must be a real number, got {shown(p)} of type {type(p).__name__}")
    p = number
    if math.isnan(p):
        raise ValueError("p must be a real number or an infinity, got nan")
    known = {1.0: MEAN_RANK, 0.0: GEOMETRIC_MEAN_RANK, -1.0: HARMONIC_MEAN_RANK}.get(float(p))
    if known is not None:
        return known
    name = f"power_mean_rank_{exponent_name(p)}"
    if math.isinf(p):
        return RankDefinition(name, aggregation="maximum" if p > 0 else "minimum")
    return RankDefinition(name, f=Power(p), g=Power(1 / p), optimum=1.0, higher_is_better=False)


def exponent_name(p: float) -> str:
    """Write an exponent as a piece of a key: 2 -> "2", 2.5 -> "2p5", -2 -> "minus_2", -inf -> "minus_inf"."""
    sign = "minus_" if p < 0 else ""
    size = abs(float(p))
    text = "inf" if math.isinf(size) else str(int(size)) if size.is_integer() else format(Decimal(repr(size)), "f")
    return sign + text.replace(".", "p")


_NORMAL_QUARTILE = 0.6744897501960817  # Phi^-1(3/4): the MAD of a standard normal
_HALF = 1e-12  # how near 1/2 a share of the weight counts as exactly half


def aggregate(definition: RankDefinition, x: FloatArray, mass: FloatArray) -> FloatArray:
    """Aggregate transformed ranks: of one sample, or of many outcomes in columns.

    Args:
        definition: the metric, for its kind of aggregation.
        x: (m,) or (m, outcomes) float64, the f(r_i).
        mass: (m,) float64 > 0, the weight of each entry, of any sum.

    Returns:
        () or (outcomes,) float64.

    Raises:
        ValueError: for counts and the tie rate, which are no functions of the f(r_i).
    """
    match definition.aggregation:
        case "mean":
            return weighted_mean(x, mass)
        case "median":
            return weighted_median(x, mass)
        case "maximum":
            return np.asarray(x.max(0))
        case "minimum":
            return np.asarray(x.min(0))
        case "variance":
            return weighted_mean((x - weighted_mean(x, mass)) ** 2, mass)
        case "mad":
            return weighted_median(np.abs(x - weighted_median(x, mass)), mass) / _NORMAL_QUARTILE
    raise ValueError(
        f"{shown(definition.name)} aggregates by {definition.aggregation!r}, which is no function of f(r_i)"
    )


def weighted_mean(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of x (m,) or of the columns of x (m, outcomes), weighted by mass (m,) > 0."""
    if x.ndim == 1:  # the bits of a dot product would depend on the number of threads
        return np.asarray((mass * x).sum() / mass.sum())
    return np.asarray(mass @ x / mass.sum())


def weighted_median(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Lower weighted median; the midpoint where the weight up to it is exactly half (to 1e-12 of the total).

    Args:
        x: (m,) or (m, outcomes) float64.
        mass: (m,) float64 > 0, of any sum.

    Returns:
        () or (outcomes,) float64.
    """
    if x.ndim > 1 or (x[1:] < x[:-1]).any():  # a histogram comes in order
        order = np.argsort(x, axis=0, kind="stable")
        x, mass = np.take_along_axis(x, order, 0), mass[order]
    cumulative = np.cumsum(mass, axis=0)
    half, slack = cumulative[-1] / 2, _HALF * cumulative[-1]
    column = tuple(np.arange(size) for size in x.shape[1:])
    lower = np.argmax(cumulative >= half - slack, axis=0)
    exactly_half = cumulative[(lower, *column)] <= half + slack
    upper = np.minimum(lower + exactly_half, len(x) - 1)
    return np.asarray((x[(lower, *column)] + x[(upper, *column)]) / 2)
