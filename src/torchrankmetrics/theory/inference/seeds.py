"""Several training runs per model: how much of the difference is luck of the seeds, how much of the test tasks."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.stats import t as student

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.inference.units import Units

# means (b, k) of f for k runs -> g of them and its slopes, elementwise, both (b, k)
SmoothFunction = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class SeedSplit:
    """Parts of the variance of a difference of two models, averaged over their seeds.

    Attributes:
        seeds: what other training seeds would change, on any tasks.
        tasks: what other test tasks would change, for any seeds.
        interaction: what is of a seed on a task: falls with the number of either.
        num_seeds: number of runs of A and of B.
    """

    seeds: float
    tasks: float
    interaction: float
    num_seeds: tuple[int, int]

    @property
    def total(self) -> float:
        """Variance of the difference."""
        return self.seeds + self.tasks + self.interaction

    @property
    def seed_share(self) -> float:
        """Share of the variance that more training seeds would lower, in [0, 1]; NaN without any variance."""
        return self.seeds / self.total if self.total > 0 else math.nan


@dataclass(frozen=True)
class SeededDifference:
    """Difference of two models over seeds and tasks, with its interval and p-value."""

    difference: float
    standard_error: float
    freedom: float
    low: float
    high: float
    split: SeedSplit

    @property
    def p_value(self) -> float:
        """Two-sided p-value of "no difference"."""
        return self.p_value_of(0.0)

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of "the difference is ``null``", by Student's t."""
        if self.standard_error == 0:
            return 1.0 if self.difference == null else 0.0
        return float(2 * student.sf(abs(self.difference - null) / self.standard_error, self.freedom))


def seeded_difference(units: Units, num_a: int, smooth: SmoothFunction, level: float) -> SeededDifference:
    """Compare mean metrics over the seeds of A and of B, generalising to new seeds and new tasks.

    Variance: the two-way layout seeds x tasks by moments, parts below zero set to zero. Interval and p-value: Student's
    t with Welch-Satterthwaite degrees of freedom.

    Args:
        units: f over tasks or clusters, one column per run, the runs of A first.
        num_a: how many runs are of A.
        smooth: g and its slope, elementwise on the (b, k) means.
        level: of confidence.

    Raises:
        ValueError: if a model has fewer than two runs.

    Source: Owen 2007 (doi:10.1214/07-AOAS122); Welch 1947 (doi:10.1093/biomet/34.1-2.28).
    """
    runs = units.sums.shape[1]
    models = (slice(0, num_a), slice(num_a, runs))
    sizes = (num_a, runs - num_a)
    if min(sizes) < 2:
        raise ValueError(f"at least 2 runs of each model are needed to see the variance of training seeds, got {sizes}")
    values, slope = (x[0] for x in smooth(units.mean[None]))
    influence = units.influence * slope
    difference = float(values[models[0]].mean() - values[models[1]].mean())

    between, interaction = [], []
    for model, size in zip(models, sizes, strict=True):
        own = influence[:, model] - influence[:, model].mean(1, keepdims=True)
        between.append(float(values[model].var(ddof=1)) / size)
        interaction.append(units.factor * float(units.count @ (own**2).sum(1)) / (size - 1) / size)
    paired = influence[:, models[0]].mean(1) - influence[:, models[1]].mean(1)
    of_tasks = units.factor * float(units.count @ paired**2)
    # the spread between runs and the spread between tasks each hold the interaction once
    seeds = sum(max(b - i, 0.0) for b, i in zip(between, interaction, strict=True))
    tasks = max(of_tasks - sum(interaction), 0.0)
    split = SeedSplit(seeds, tasks, sum(interaction), sizes)

    error = math.sqrt(split.total)
    if error == 0:
        return SeededDifference(difference, 0.0, math.inf, difference, difference, split)
    parts = [(b, size - 1) for b, size in zip(between, sizes, strict=True)] + [(tasks, units.size - 1)]
    freedom = sum(v for v, _ in parts) ** 2 / sum(v**2 / dof for v, dof in parts)
    half = float(student.ppf((1 + level) / 2, freedom)) * error
    return SeededDifference(difference, error, freedom, difference - half, difference + half, split)
