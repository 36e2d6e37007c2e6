"""Several training runs per model: how much of the difference is luck of the seeds, how much of the test tasks."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.inference.bootstrap import SmoothFunction, redraws
from torchrankmetrics.theory.inference.units import Units


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

    standard_error: float
    low: float
    high: float
    p_value: float
    split: SeedSplit


def seeded_difference(
    units: Units, num_a: int, smooth: SmoothFunction, level: float, resamples: int, seed: int
) -> SeededDifference:
    """Compare mean metrics over the seeds of A and of B, generalising to new seeds and new tasks.

    Variance: the two-way layout seeds x tasks by moments, parts below zero set to zero. Interval: hierarchical
    bootstrap (runs of A, runs of B and tasks drawn with replacement). Its draws spread too little over few runs and too
    much where runs and tasks interact, so they are scaled to that variance, and widened by Student's over the normal
    quantile. p-value: Student's t with Welch-Satterthwaite degrees of freedom.

    Args:
        units: f over tasks or clusters, one column per run, the runs of A first.
        num_a: how many runs are of A.
        smooth: g and its slope, elementwise on the (b, k) means.
        level: of confidence.
        resamples: number of bootstrap samples.
        seed: of the bootstrap.

    Raises:
        ValueError: if a model has fewer than two runs.

    Source: Hesterberg 2015 (doi:10.1080/00031305.2015.1089789) on the widening; Owen 2007 (doi:10.1214/07-AOAS122).
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
        return SeededDifference(0.0, difference, difference, 1.0 if difference == 0 else 0.0, split)
    parts = [(b, size - 1) for b, size in zip(between, sizes, strict=True)] + [(tasks, units.size - 1)]
    freedom = sum(v for v, _ in parts) ** 2 / sum(v**2 / dof for v, dof in parts)
    replicates = _hierarchical(units, models, smooth, resamples, seed)
    wider = float(student.ppf((1 + level) / 2, freedom) / norm.ppf((1 + level) / 2)) * error / float(replicates.std())
    ends = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    low, high = (difference + wider * (float(end) - difference) for end in ends)
    p_value = float(2 * student.sf(abs(difference) / error, freedom))
    return SeededDifference(error, low, high, p_value, split)


def _hierarchical(
    units: Units, models: tuple[slice, slice], smooth: SmoothFunction, resamples: int, seed: int
) -> FloatArray:
    rng = np.random.default_rng([seed, 1])
    replicates = []
    for draws in redraws(units.count, resamples, seed):
        values = smooth(draws @ units.sums / (draws @ units.weight)[:, None])[0]
        means = []
        for model in models:
            runs = values[:, model]
            picked = rng.integers(0, runs.shape[1], runs.shape)
            means.append(np.take_along_axis(runs, picked, axis=1).mean(1))
        replicates.append(means[0] - means[1])
    return np.concatenate(replicates)
