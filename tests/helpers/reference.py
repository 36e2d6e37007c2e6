"""Every metric, exact and slow: Fractions, plain loops, enumeration, from papers, no library code.

Formulas: Hoyt et al. 2022 (arXiv 2203.07544) and Berrendorf et al. 2020 (arXiv 2002.06914). To have
    a new metric tested
against every invariant, add it to ``METRICS``.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

PHI_INVERSE_3_4 = 0.674489750196081743202227  # of the standard normal


@dataclass(frozen=True)
class Task:
    """One ranking task: what the target's rank lies between, among how many candidates."""

    optimistic: int
    pessimistic: int
    num_candidates: int
    weight: Fraction = Fraction(1)
    group: int = 0

    def rank(self, rank_type: str) -> Fraction:
        if rank_type == "realistic":
            return Fraction(self.optimistic + self.pessimistic, 2)
        return Fraction(getattr(self, rank_type))


@dataclass(frozen=True)
class Metric:
    """A metric as a function of ranks r_i and shares v_i; ``better`` is None without a direction.

    If it ``uses_candidates``, the numbers N_i are a third argument. Tasks with fewer than
    ``min_candidates`` have no value. ``by_chance`` is the base value expected
    of random ranks where that does not depend on the candidate counts.
    """

    formula: Callable[..., Fraction | float]
    better: str | None
    expected: bool = False
    uses_candidates: bool = False
    min_candidates: int = 1
    by_chance: Fraction | None = None

    def value(self, r: list[Fraction], v: list[Fraction], N: list[int]) -> Fraction | float:
        return self.formula(r, v, N) if self.uses_candidates else self.formula(r, v)


def mean(x: list[Fraction], v: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(x, v, strict=True)), Fraction(0))


def median(x: list[Fraction], v: list[Fraction]) -> Fraction:
    """Lower weighted median; midpoint with the next value if the weight up to it is exactly 1/2."""
    pairs = sorted(zip(x, v, strict=True))
    below = Fraction(0)
    for i, (value, share) in enumerate(pairs):
        below += share
        if below == Fraction(1, 2):
            return (value + pairs[i + 1][0]) / 2
        if below > Fraction(1, 2):
            return value
    raise AssertionError


def power_mean(p: float) -> Callable[[list[Fraction], list[Fraction]], float]:
    """For a whole p exact up to the root."""
    if p == int(p):
        return lambda r, v: float(mean([x ** int(p) for x in r], v)) ** (1 / p)
    return lambda r, v: math.fsum(b * float(a) ** p for a, b in zip(r, v, strict=True)) ** (1 / p)


def geometric(sign: int) -> Callable[[list[Fraction], list[Fraction]], float]:
    return lambda r, v: math.exp(
        sign * math.fsum(float(b) * math.log(a) for a, b in zip(r, v, strict=True))
    )


def variance(x: list[Fraction], v: list[Fraction]) -> Fraction:
    middle = mean(x, v)
    return mean([(a - middle) ** 2 for a in x], v)


def mad(x: list[Fraction], v: list[Fraction]) -> float:
    middle = median(x, v)
    return float(median([abs(a - middle) for a in x], v)) / PHI_INVERSE_3_4


def hits(k: int) -> Callable[[list[Fraction], list[Fraction]], Fraction]:
    return lambda r, v: mean([Fraction(x <= k) for x in r], v)


def auc(r: list[Fraction], v: list[Fraction], N: list[int]) -> Fraction:
    """Mean share of the negatives of a task that the target is above."""
    return mean([Fraction(n - x) / (n - 1) for x, n in zip(r, N, strict=True)], v)


METRICS: dict[str, Metric] = {
    "mr": Metric(mean, "lower", expected=True),
    "mrr": Metric(lambda r, v: mean([1 / x for x in r], v), "higher", expected=True),
    "auc": Metric(
        auc,
        "higher",
        expected=True,
        uses_candidates=True,
        min_candidates=2,
        by_chance=Fraction(1, 2),
    ),
    "hits_at_1": Metric(hits(1), "higher", expected=True),
    "hits_at_3": Metric(hits(3), "higher", expected=True),
    "imr": Metric(lambda r, v: 1 / mean(r, v), "higher"),
    "hmr": Metric(lambda r, v: 1 / mean([1 / x for x in r], v), "lower"),
    "gmr": Metric(geometric(1), "lower", expected=True),
    "igmr": Metric(geometric(-1), "higher", expected=True),
    "power_mean_rank_2": Metric(power_mean(2), "lower"),
    "power_mean_rank_minus_2": Metric(power_mean(-2), "lower"),
    "power_mean_rank_0p5": Metric(power_mean(0.5), "lower"),
    "power_mean_rank_inf": Metric(lambda r, v: max(r), "lower"),
    "power_mean_rank_minus_inf": Metric(lambda r, v: min(r), "lower"),
    "median_rank": Metric(median, "lower"),
    "inverse_median_rank": Metric(lambda r, v: 1 / median(r, v), "higher"),
    "rank_variance": Metric(variance, None),
    "rank_std": Metric(lambda r, v: math.sqrt(variance(r, v)), None),
    "rank_mad": Metric(mad, None),
}
VIEWS = ("base", "normalized", "adjusted_index", "z_score")


# a direction is needed to adjust by
METRIC_VIEWS = [(name, view) for name in METRICS for view in VIEWS[:2]]
METRIC_VIEWS += [
    (name, view) for name in METRICS for view in VIEWS[2:] if METRICS[name].better is not None
]


def key(name: str, view: str) -> str:
    """The name of a view in the papers' short forms."""
    if name == "mr" and view in ("normalized", "adjusted_index"):
        return "amr" if view == "normalized" else "amri"
    return {
        "base": "",
        "normalized": "normalized_",
        "adjusted_index": "adjusted_",
        "z_score": "z_",
    }[view] + name


def macro(tasks: list[Task]) -> list[Fraction]:
    """Weights that sum to one in every group that has any."""
    total: dict[int, Fraction] = {}
    for task in tasks:
        total[task.group] = total.get(task.group, Fraction(0)) + task.weight
    return [task.weight / total[task.group] if total[task.group] else Fraction(0) for task in tasks]


def value(
    name: str, tasks: list[Task], rank_type: str = "realistic", average: str = "micro"
) -> float:
    """Base value of a metric; a task of zero weight, or with too few candidates, does not exist."""
    used, total = _used(name, tasks, average)
    if name == "count":
        return len(used)
    if not used:
        return math.nan
    if name == "tie_rate":
        return float(sum((w for t, w in used if t.pessimistic > t.optimistic), Fraction(0)) / total)
    v = [weight / total for _, weight in used]
    N = [task.num_candidates for task, _ in used]
    if rank_type != "expected":
        return float(METRICS[name].value([task.rank(rank_type) for task, _ in used], v, N))
    # one task after the other, each at every rank of its block of ties, all orders equally likely
    blocks = [range(task.optimistic, task.pessimistic + 1) for task, _ in used]
    outcomes = [
        float(METRICS[name].value([Fraction(r) for r in ranks], v, N))
        for ranks in itertools.product(*blocks)
    ]
    return math.fsum(outcomes) / len(outcomes)


def moments(name: str, tasks: list[Task], average: str = "micro") -> tuple[float, float]:
    """Mean and variance of the base value over all rank vectors, each equally likely."""
    used, total = _used(name, tasks, average)
    if not used:
        return math.nan, 0.0
    v, N = [weight / total for _, weight in used], [task.num_candidates for task, _ in used]
    vectors = itertools.product(*(range(1, n + 1) for n in N))
    # as Fractions, so that a constant has no variance at all
    values = [
        Fraction(METRICS[name].value([Fraction(r) for r in ranks], v, N)) for ranks in vectors
    ]
    center = sum(values) / len(values)
    return float(center), float(sum((x - center) ** 2 for x in values) / len(values))


def view(name: str, view_name: str, base: float, mean_and_variance: tuple[float, float]) -> float:
    """A base value relative to random ranking; NaN without variance under random ranking."""
    if view_name == "base":
        return base
    expectation, spread = mean_and_variance
    if view_name == "normalized":
        return base / expectation if expectation else math.nan
    if spread == 0:
        return math.nan
    if view_name == "adjusted_index":
        optimum = float(METRICS[name].value([Fraction(1)], [Fraction(1)], [2]))
        return (base - expectation) / (optimum - expectation)
    return (
        (base - expectation) / math.sqrt(spread) * (1 if METRICS[name].better == "higher" else -1)
    )


def _used(
    name: str, tasks: list[Task], average: str
) -> tuple[list[tuple[Task, Fraction]], Fraction]:
    """The tasks that a metric is of, with their weights, and the sum of these."""
    least = METRICS[name].min_candidates if name in METRICS else 1
    tasks = [task for task in tasks if task.num_candidates >= least]
    weights = macro(tasks) if average == "macro" else [task.weight for task in tasks]
    used = [(task, weight) for task, weight in zip(tasks, weights, strict=True) if weight > 0]
    return used, sum((weight for _, weight in used), Fraction(0))
