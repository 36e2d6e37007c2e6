"""`equivalence`: tests whether two models are equal within a margin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchrankmetrics.inference.compare import Models, paired
from torchrankmetrics.inference.intervals import Cluster, check_confidence_level, warn_of_few_tasks
from torchrankmetrics.inference.testing import one_sided
from torchrankmetrics.metrics.registry import MetricLike
from torchrankmetrics.rendering import Cell, Column, Tabular
from torchrankmetrics.validation import check_int, one_number, shorten


@dataclass(frozen=True)
class Equivalence:
    """Difference a - b of a metric on the same tasks, compared with a margin.

    Attributes:
        metric (str): canonical key.
        a, b (float): values of the two models; with several seeds, their means.
        difference (float): a - b.
        margin (float): largest difference that does not matter, > 0, in units of the metric.
        low, high (float): interval of level 2 confidence_level - 1, which corresponds to two one-sided tests at 1 -
            confidence_level.
        confidence_level (float): in (0, 1).
        p_equivalent (float): of the hypothesis that the absolute difference is at least the margin.
        p_not_worse (float): of the hypothesis that a is worse than b by the margin or more.
        p_not_better (float): of the hypothesis that a is better than b by the margin or more.
        test (str): name of the test.
        num_tasks (int): number of ranking tasks on which both models were compared.
    """

    metric: str
    a: float
    b: float
    difference: float
    margin: float
    low: float
    high: float
    confidence_level: float
    p_equivalent: float
    p_not_worse: float
    p_not_better: float
    test: str
    num_tasks: int

    @property
    def equivalent(self) -> bool:
        """Whether the models are equal within the margin, at the confidence level."""
        return self.p_equivalent <= 1 - self.confidence_level + 1e-12

    @property
    def not_inferior(self) -> bool:
        """Whether a is not worse than b by the margin, at the confidence level."""
        return self.p_not_worse <= 1 - self.confidence_level + 1e-12

    def __str__(self) -> str:
        verdict = "not shown to be equivalent"
        if self.equivalent:
            verdict = "equivalent"
        elif self.not_inferior:
            verdict = "a is not inferior"
        interval = f"[{self.low:+.4f}, {self.high:+.4f}] at {100 * (2 * self.confidence_level - 1):g}%"
        return (
            f"{self.metric}: {self.a:.4f} - {self.b:.4f} = {self.difference:+.4f} {interval}, "
            f"margin {self.margin:g}: {verdict} (p = {self.p_equivalent:.2g}; a not worse: p = {self.p_not_worse:.2g}; "
            f"{self.test}); {self.num_tasks} tasks"
        )


def equivalences(found: Sequence[Equivalence]) -> Tabular:
    """Build a table with a row per metric, for the same models and margin."""
    names = ("metric", "a", "b", "difference", "low", "high", "p_equivalent", "p_not_worse", "equivalent", "test")
    headings = {"difference": "a - b", "p_equivalent": "p equivalent", "p_not_worse": "p a not worse"}
    columns = [Column(name, headings.get(name), key=name == "metric") for name in names]
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        ends = (one.difference, one.low, one.high, one.p_equivalent, one.p_not_worse)
        rows.append((one.metric, one.a, one.b, *ends, "yes" if one.equivalent else "not shown", one.test))
    first = found[0]
    confidence_level, inner = 100 * first.confidence_level, 100 * (2 * first.confidence_level - 1)
    note = f"{first.num_tasks} tasks, margin {first.margin:g}, tests at {confidence_level:g}%, intervals at {inner:g}%"
    return Tabular(columns, rows, (note,))


def equivalence(
    a: Models,
    b: Models,
    metric: MetricLike = "mrr",
    *,
    margin: float,
    confidence_level: float = 0.95,
    cluster: Cluster | None = None,
    n_resamples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
) -> Equivalence:
    """Test whether two models are equal within a margin, and whether ``a`` is not inferior to ``b``.

    Two one-sided tests, each half of the two-sided test that ``compare`` inverts for its interval. They reject at
    1 - confidence_level exactly if the interval of level 2 confidence_level - 1 is on that side of the margin. Choose
    the margin before you see the ranks: a margin chosen from the data makes any two models equivalent.

    Args:
        a (Ranks, RankTable, RankCollection or list): a ``RankTable``, ``RankCollection`` or ``Ranks``; or a list of
            them, one per training seed.
        b (Ranks, RankTable, RankCollection or list): the other model, of the same tasks.
        metric (str, RankDefinition or RankMetric, default "mrr"): one metric, as in ``compare``.
        margin (float): > 0, in units of the metric in its view.
        confidence_level (float, default 0.95): above 0.5.
        cluster (str or integers, default None): unit of resampling, as in ``compare``.
        n_resamples (int, default 2000): number of bootstrap samples, for metrics that are not a function of a mean.
        permutations (int, default 9999): number of flips of the sign-flip test.
        seed (int, default 0): random seed of both.

    Returns:
        Difference, interval and p-values; ``equivalent`` and ``not_inferior`` are the decisions.

    Raises:
        TypeError, ValueError: as ``compare``, and for a margin that is not a finite number above 0.

    Source: Schuirmann 1987 (doi:10.1007/BF01068419).

    >>> from torchrankmetrics import Ranks
    >>> a, b = Ranks([1, 2, 1, 3, 1, 2] * 20, None, 50), Ranks([1, 2, 1, 3, 2, 1] * 20, None, 50)
    >>> equivalence(a, b, "mrr", margin=0.1).equivalent
    True
    """
    number = one_number(margin)
    if number is None:
        raise TypeError(f"margin must be a number, got {shorten(margin)} of type {type(margin).__name__}")
    margin = number
    if not 0 < margin < float("inf"):
        raise ValueError(f"margin must be above 0 and finite, in the units of the metric; got {margin}")
    confidence_level = check_confidence_level(confidence_level)
    if confidence_level <= 0.5:
        raise ValueError(f"confidence_level must be above 0.5 for one-sided tests, got {confidence_level}")
    check_int("n_resamples", n_resamples, 100)
    check_int("permutations", permutations, 99)
    check_int("seed", seed, 0)
    (found,) = paired(a, b, [metric], cluster, (n_resamples, permutations, seed))
    key = found.measure.key
    if math.isnan(found.slope) or found.slope == 0:
        raise ValueError(
            f"{shorten(key)} is undefined: every possible ranking of these tasks gives the same value (zero variance "
            "under the null)"
        )
    interval = found.comparison(2 * confidence_level - 1)
    at_lower, at_upper = (found.p_value_of(end) for end in (-margin, margin))
    below, above = one_sided(interval.difference, margin, at_lower, at_upper)
    warn_of_few_tasks({key: interval.effective_tasks})
    higher = found.measure.higher_is_better
    return Equivalence(
        metric=key,
        a=found.a,
        b=found.b,
        difference=interval.difference,
        margin=float(margin),
        low=interval.low,
        high=interval.high,
        confidence_level=confidence_level,
        p_equivalent=max(below, above),
        p_not_worse=below if higher else above,
        p_not_better=above if higher else below,
        test="bootstrap percentiles" if interval.p_value is None else interval.test,
        num_tasks=found.num_tasks,
    )
