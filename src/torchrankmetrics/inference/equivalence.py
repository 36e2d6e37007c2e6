"""`equivalence`: tests whether two models are equal within a margin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchrankmetrics.inference.compare import Models, paired
from torchrankmetrics.inference.intervals import Cluster, check_confidence_level, warn_of_few_tasks
from torchrankmetrics.inference.testing import one_sided
from torchrankmetrics.metrics.registry import MetricLike
from torchrankmetrics.rendering import Cell, Column, Tabular
from torchrankmetrics.validation import check_int, one_number, shown


@dataclass(frozen=True)
class Equivalence:
    """Difference a - b of a metric on the same tasks, against a margin; ``print`` tells it in a line.

    Attributes:
        metric: canonical key.
        a, b: values of the two models; with several seeds, their means.
        difference: a - b.
        margin: what counts as no difference, > 0, in the units of the metric.
        low, high: interval of level 2 confidence_level - 1, which two one-sided tests at 1 - confidence_level go with.
        confidence_level: in (0, 1).
        p_equivalent: of "the difference is at least the margin, in one direction or the other".
        p_not_worse: of "a is worse than b by the margin or more"; small: a is not inferior.
        p_not_better: of "a is better than b by the margin or more".
        test: what gave the p-values.
        num_tasks: ranking tasks that both models were compared on.
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
        """Whether the models are equal to within the margin, at the level."""
        return self.p_equivalent <= 1 - self.confidence_level + 1e-12

    @property
    def not_inferior(self) -> bool:
        """Whether a is not worse than b by the margin, at the level."""
        return self.p_not_worse <= 1 - self.confidence_level + 1e-12

    def __str__(self) -> str:
        verdict = "not shown to be equivalent"
        if self.equivalent:
            verdict = "equivalent"
        elif self.not_inferior:
            verdict = "a is not inferior"
        interval = f"[{self.low:+.4f}, {self.high:+.4f}] at {100 * (2 * self.confidence_level - 1):g} %"
        return (
            f"{self.metric}: {self.a:.4f} - {self.b:.4f} = {self.difference:+.4f} {interval}, "
            f"margin {self.margin:g}: {verdict} (p = {self.p_equivalent:.2g}; a not worse: p = {self.p_not_worse:.2g}; "
            f"{self.test}); {self.num_tasks} tasks"
        )


def equivalences(found: Sequence[Equivalence]) -> Tabular:
    """A table with a row per metric, of the same models and margin."""
    names = ("metric", "a", "b", "difference", "low", "high", "p_equivalent", "p_not_worse", "equivalent", "test")
    headings = {"difference": "a - b", "p_equivalent": "p equivalent", "p_not_worse": "p a not worse"}
    columns = [Column(name, headings.get(name), key=name == "metric") for name in names]
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        ends = (one.difference, one.low, one.high, one.p_equivalent, one.p_not_worse)
        rows.append((one.metric, one.a, one.b, *ends, "yes" if one.equivalent else "not shown", one.test))
    first = found[0]
    confidence_level, inner = 100 * first.confidence_level, 100 * (2 * first.confidence_level - 1)
    note = (
        f"{first.num_tasks} tasks, margin {first.margin:g}, tests at {confidence_level:g} %, intervals at {inner:g} %"
    )
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
    """Ask whether two models are equal to within a margin, and whether ``a`` is not inferior to ``b``.

    Two one-sided tests, each half of the two-sided test that ``compare`` inverts for its interval: so they reject at
    1 - confidence_level exactly where the interval of level 2 confidence_level - 1 lies on that side of the margin. The
    margin is to be chosen before the ranks are seen: with one read off them every two models are equivalent.

    Args:
        a: a ``RankTable``, ``RankCollection`` or ``Ranks``; or a list of them, one per training seed.
        b: the other model, of the same tasks.
        metric: one metric, as in ``compare``.
        margin: > 0, in the units of the metric in its view.
        confidence_level: above 0.5.
        cluster: what is drawn together, as in ``compare``.
        n_resamples: of the bootstrap, for the median and its kin.
        permutations: of the sign-flip test.
        seed: of both.

    Raises:
        TypeError, ValueError: as ``compare``; for a margin that is no number above 0, or a level of 0.5 or below.

    Source: Schuirmann 1987 (doi:10.1007/BF01068419).

    >>> from torchrankmetrics import Ranks
    >>> a, b = Ranks([1, 2, 1, 3, 1, 2] * 20, None, 50), Ranks([1, 2, 1, 3, 2, 1] * 20, None, 50)
    >>> equivalence(a, b, "mrr", margin=0.1).equivalent
    True
    """
    number = one_number(margin)
    if number is None:
        raise TypeError(f"margin must be a number, got {shown(margin)} of type {type(margin).__name__}")
    margin = number
    if not 0 < margin < float("inf"):
        raise ValueError(f"margin must be above 0 and finite, in the units of the metric; got {margin}")
    confidence_level = check_confidence_level(confidence_level)
    if confidence_level <= 0.5:
        raise ValueError(f"confidence_level must be above 0.5 for one-sided tests, got {confidence_level}")
    check_int("n_resamples", n_resamples, 100)
    check_int("permutations", permutations, 99)
    found = paired(a, b, metric, cluster)
    slope = found.slope
    if math.isnan(slope) or slope == 0:
        raise ValueError(f"{shown(found.measure.key)} is undefined on these tasks: chance leaves no room")
    draws = (n_resamples, permutations, seed)
    runs = found.runs
    interval, _ = runs.difference(2 * confidence_level - 1, *draws)
    at_lower, at_upper = (runs.p_value_of(end / slope, *draws) for end in (-margin, margin))
    sides = one_sided(found.difference, margin, at_lower, at_upper)
    low, high = sorted((interval.low * slope, interval.high * slope))
    higher = found.measure.higher_is_better
    warn_of_few_tasks({found.measure.key: interval.effective_tasks})
    return Equivalence(
        metric=found.measure.key,
        a=found.a,
        b=found.b,
        difference=found.difference,
        margin=float(margin),
        low=low,
        high=high,
        confidence_level=confidence_level,
        p_equivalent=sides.equivalent,
        p_not_worse=sides.below if higher else sides.above,
        p_not_better=sides.above if higher else sides.below,
        test="bootstrap percentiles" if interval.p_value is None else interval.test,
        num_tasks=found.num_tasks,
    )
