"""Several training runs per model: variance between seeds and between ranking tasks."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.transforms import apply_transform, transform_slopes
from torchrankmetrics.inference.units import Units, effective_tasks_of

# means (b, k) of f for k runs -> g of them and its slopes, elementwise, both (b, k)
SmoothFunction = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


def smooth_of(definition: Definition) -> SmoothFunction:
    """The g of a definition, and its slopes."""
    g = definition.g

    def smooth(means: FloatArray) -> tuple[FloatArray, FloatArray]:
        flat = means.ravel()
        return apply_transform(g, flat, "g").reshape(means.shape), transform_slopes(g, flat).reshape(means.shape)

    return smooth


@dataclass(frozen=True)
class SeedSplit:
    """Parts of the variance of a model's value, or of a difference of two models, averaged over their seeds.

    Attributes:
        seeds: what other training seeds would change, on any tasks.
        tasks: what other test tasks would change, for any seeds.
        interaction: what is of a seed on a task: falls with the number of either.
        num_seeds: number of runs of each model.
    """

    seeds: float
    tasks: float
    interaction: float
    num_seeds: tuple[int, ...]

    @property
    def total(self) -> float:
        """Variance of the value or the difference."""
        return self.seeds + self.tasks + self.interaction

    @property
    def seed_share(self) -> float:
        """Share of the variance that more training seeds would lower, in [0, 1]; NaN without any variance."""
        return self.seeds / self.total if self.total > 0 else math.nan


@dataclass(frozen=True)
class SeededEstimate:
    """A value or a difference over seeds and tasks, with its interval; ``freedom``: of its error.

    An error up to ``rounding``, that of the values it is made of, is none: then no p-value is below ``least``, that of
    flips of the signs, for without any spread t would be sure. A difference that these cannot reject is unbounded.
    """

    value: float
    standard_error: float
    freedom: float
    low: float
    high: float
    split: SeedSplit
    rounding: float
    least: float

    @property
    def p_value(self) -> float:
        """Two-sided p-value of "it is zero"."""
        return self.p_value_of(0.0)

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of "it is ``null``", by Student's t."""
        if self.standard_error <= self.rounding:
            return 1.0 if abs(self.value - null) <= self.rounding else self.least
        return float(2 * student.sf(abs(self.value - null) / self.standard_error, self.freedom))


class SeededModels:
    """Means over the runs of several models on the same tasks, and what seeds and tasks each add to their errors.

    Variances are those of the two-way layout seeds x tasks by moments, parts below zero set to zero; intervals and
    p-values Student's t with Welch-Satterthwaite degrees of freedom. Of a model with one run nothing is known of its
    seeds: its error, and that of its differences, is of the tasks alone.

    Args:
        units: f over tasks or clusters, one column per run, the runs of a model next to each other.
        sizes: how many runs each model has.
        smooth: g and its slope, elementwise on the (b, k) means.

    Source: Owen 2007 (doi:10.1214/07-AOAS122); Welch 1947 (doi:10.1093/biomet/34.1-2.28).
    """

    def __init__(self, units: Units, sizes: tuple[int, ...], smooth: SmoothFunction) -> None:
        self.units, self.sizes = units, sizes
        values, slope = (x[0] for x in smooth(units.mean[None]))
        influence = units.influence * slope
        value, means = [], []
        self.between, self.interaction = [], []
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            model = slice(end - size, end)
            own = influence[:, model] - influence[:, model].mean(1, keepdims=True)
            several = size > 1
            self.between.append(float(values[model].var(ddof=1)) / size if several else 0.0)
            squares = float(units.count @ (own**2).sum(1))
            self.interaction.append(units.factor * squares / (size - 1) / size if several else 0.0)
            value.append(float(values[model].mean()))
            means.append(influence[:, model].mean(1))
        self.value: FloatArray = np.array(value)
        self._influence = np.stack(means, 1)

    def effective_tasks(self, model: int) -> float:
        """Number of tasks or clusters that the error of a value rests on, see ``effective_tasks_of``."""
        return effective_tasks_of(self._influence[:, model], self.units.count)

    def mean(self, model: int, level: float) -> SeededEstimate:
        """Value of one model; the interval generalises to new seeds and new tasks."""
        return self._estimate((model,), float(self.value[model]), self._influence[:, model], level)

    def difference(self, a: int, b: int, level: float) -> SeededEstimate:
        """Value of model a less that of model b; if either has a single run, the runs are compared as they are."""
        paired = self._influence[:, a] - self._influence[:, b]
        return self._estimate((a, b), float(self.value[a] - self.value[b]), paired, level)

    def _seeds(self, model: int) -> float:
        # the spread between runs holds the interaction once
        return max(self.between[model] - self.interaction[model], 0.0)

    def _estimate(self, models: tuple[int, ...], value: float, influence: FloatArray, level: float) -> SeededEstimate:
        sizes = tuple(self.sizes[i] for i in models)
        known = models if min(sizes) > 1 else ()  # whose seeds are told apart
        of_tasks = self.units.factor * float(self.units.count @ influence**2)
        interaction = sum(self.interaction[i] for i in known)
        seeds = sum(self._seeds(i) for i in known)
        tasks = max(of_tasks - interaction, 0.0)  # the spread between tasks holds it once, too
        split = SeedSplit(seeds, tasks, interaction, sizes)
        error, rounding = math.sqrt(split.total), 1e-12 * max(abs(float(self.value[i])) for i in models)
        told = rounding, max(2.0 ** (1 - self.units.size), sys.float_info.min)
        if error <= rounding:
            value = value if abs(value) > rounding else 0.0
            reach = math.inf if value and len(models) > 1 and told[1] > 1 - level else 0.0
            ends = value - reach, value + reach
            return SeededEstimate(value, 0.0, math.inf, *ends, SeedSplit(0.0, 0.0, 0.0, sizes), *told)
        parts = [(self.between[i], self.sizes[i] - 1) for i in known] + [(tasks, self.units.size - 1)]
        squares = sum(v**2 / dof for v, dof in parts)
        # runs of equal value on tasks of equal mean: what is left is of a run on a task
        freedom = sum(v for v, _ in parts) ** 2 / squares if squares > 0 else float(self.units.size - 1)
        half = float(student.ppf((1 + level) / 2, freedom)) * error
        return SeededEstimate(value, error, freedom, value - half, value + half, split, *told)


def seeded_difference(units: Units, num_a: int, smooth: SmoothFunction, level: float) -> SeededEstimate:
    """Compare mean metrics over the seeds of A and of B, generalising to new seeds and new tasks.

    Args:
        units: f over tasks or clusters, one column per run, the runs of A first.
        num_a: how many runs are of A.
        smooth: g and its slope, elementwise on the (b, k) means.
        level: of confidence.

    Raises:
        ValueError: if a model has fewer than two runs.
    """
    sizes = (num_a, units.sums.shape[1] - num_a)
    if min(sizes) < 2:
        raise ValueError(f"at least 2 runs of each model are needed to see the variance of training seeds, got {sizes}")
    return SeededModels(units, sizes, smooth).difference(0, 1, level)
