"""plan: how many tasks, how many training seeds, for a difference that is to be found."""

from dataclasses import dataclass

import numpy as np

from torchrankmetrics.evaluation.clusters import Cluster
from torchrankmetrics.evaluation.compare import Models, paired
from torchrankmetrics.evaluation.names import Asked
from torchrankmetrics.theory.inference.planning import VarianceParts


@dataclass(frozen=True)
class Plan:
    """What a comparison to come can find, from the variance of one at hand; ``print`` gives the grid.

    Attributes:
        metric: canonical key; differences are in its units.
        variance: parts by source, of one task (or cluster) and one seed of each model.
        num_units: tasks, or clusters, of the comparison at hand.
        num_seeds: its seeds of each model.
        unit: "tasks" or "clusters".
        confidence_level: of the test to come.
    """

    metric: str
    variance: VarianceParts
    num_units: int
    num_seeds: int
    unit: str
    confidence_level: float

    def power(self, difference: float, num_units: int | None = None, num_seeds: int | None = None) -> float:
        """Probability to find a difference of this size, with as many tasks and seeds as now or as are said."""
        return self.variance.power(
            difference, num_units or self.num_units, num_seeds or self.num_seeds, self.confidence_level
        )

    def tasks_for(self, difference: float, power: float = 0.8, num_seeds: int | None = None) -> float:
        """Fewest tasks (or clusters) that find it with this power; infinite where only more seeds help."""
        return self.variance.tasks_for(difference, power, num_seeds or self.num_seeds, self.confidence_level)

    def seeds_for(self, difference: float, power: float = 0.8, num_units: int | None = None) -> float:
        """Fewest seeds of each model that find it with this power; infinite where only more tasks help."""
        return self.variance.seeds_for(difference, power, num_units or self.num_units, self.confidence_level)

    def detectable(self, power: float = 0.8, num_units: int | None = None, num_seeds: int | None = None) -> float:
        """Smallest difference that is found with this power."""
        units, seeds = num_units or self.num_units, num_seeds or self.num_seeds
        return self.variance.detectable(power, units, seeds, self.confidence_level)

    def __str__(self) -> str:
        seeds = [2, 3, 5, 10] if self.variance.seeds_known else [1]
        sizes = [self.num_units, 2 * self.num_units, 5 * self.num_units, 10 * self.num_units]
        head = f"{self.metric}: smallest difference found with power 0.8 at {100 * self.confidence_level:g} %"
        width = max(len(f"{size}") for size in sizes) + len(self.unit) + 1
        lines = [f"{'':{width}}" + "".join(f"{f'{n} seeds' if n > 1 else '1 run':>10}" for n in seeds)]
        for size in sizes:
            cells = (self.detectable(num_units=size, num_seeds=n) for n in seeds)
            lines.append(f"{f'{size} {self.unit}':{width}}" + "".join(f"{cell:>10.4g}" for cell in cells))
        return "\n".join([head, *lines])


def plan(
    a: Models, b: Models, metric: Asked = "mrr", *, confidence_level: float = 0.95, cluster: Cluster | None = None
) -> Plan:
    """Plan a comparison from one at hand: tasks and seeds that a difference needs, differences that they find.

    The variance is taken from the difference of the two models given, split by seeds and tasks where each has several
    runs. It is an estimate itself: with two or three seeds a rough one. The difference to be found is to be chosen for
    its use: the observed one in its place gives a power that says no more than the p-value.

    Args:
        a: a ``RankTable``, ``RankCollection`` or ``Ranks``, to plan tasks for two sets of weights; or a list of them,
            one per training seed, to plan seeds too.
        b: the other model, with as many runs of the same tasks.
        metric: one metric, as in ``compare``, that is a mean of f.
        confidence_level: of the two-sided test to come.
        cluster: what is drawn together, as in ``compare``: then clusters are planned.

    Raises:
        TypeError, ValueError: as ``compare``; for metrics that are no mean of f, and lists of different length.

    Source: Hoenig and Heisey 2001 (doi:10.1198/000313001300339897) on observed power.
    """
    found = paired(a, b, metric, cluster)
    runs = found.runs
    size_a, size_b = runs.num_a, len(runs.samples) - runs.num_a
    if size_a != size_b:
        raise ValueError(f"a and b must have as many runs each to plan with, got {size_a} and {size_b}")
    split = runs.variance(confidence_level)
    n, square = runs.units.size, found.slope**2
    parts = VarianceParts(
        seeds=split.seeds * size_a * square,
        tasks=split.tasks * n * square,
        interaction=split.interaction * size_a * n * square,
        seeds_known=size_a > 1,
    )
    unit = "tasks" if runs.keys is None else "clusters"
    if not np.isfinite([parts.seeds, parts.tasks, parts.interaction]).all():
        raise ValueError(f"{found.measure.key!r} is undefined on these tasks: chance leaves no room")
    return Plan(found.measure.key, parts, n, size_a, unit, confidence_level)
