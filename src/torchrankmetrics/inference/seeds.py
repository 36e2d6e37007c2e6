"""Several training runs per model: variance between seeds and between ranking tasks."""

import math
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.transforms import Transform, apply_transform, transform_slopes
from torchrankmetrics.inference.standard_errors import Units, effective_tasks_of, student_interval


@dataclass(frozen=True)
class SeedSplit:
    """Components of the variance of a model's mean value, or of a difference of two models."""

    seeds: float  # between training seeds
    tasks: float  # between ranking tasks
    interaction: float  # of single runs on single tasks; more seeds or more tasks decrease it
    num_seeds: tuple[int, ...]  # number of runs of each model

    @property
    def total(self) -> float:
        """Variance of the value or the difference."""
        return self.seeds + self.tasks + self.interaction

    @property
    def seed_share(self) -> float:
        """Share of the variance between seeds, in [0, 1]; NaN without any variance."""
        return self.seeds / self.total if self.total > 0 else math.nan


class SeededEstimate(NamedTuple):
    """A value or a difference over seeds and tasks with its interval and its degrees of freedom."""

    value: float
    standard_error: float
    freedom: float
    low: float
    high: float
    split: SeedSplit
    rounding: float  # an error up to this counts as zero
    least: float  # then p is at least this, the smallest p of a sign-flip test

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of the hypothesis that the value is ``null``, by Student's t."""
        if self.standard_error <= self.rounding:
            return 1.0 if abs(self.value - null) <= self.rounding else self.least
        return float(2 * student.sf(abs(self.value - null) / self.standard_error, self.freedom))


class SeededModels:
    """Means over the runs of several models on the same tasks, with variances from seeds and from tasks.

    Moments of the two-way layout seeds x tasks (doi:10.1214/07-AOAS122), Student's t with Welch-Satterthwaite degrees
    of freedom. ``units`` has a column per run, the ``sizes`` runs of each model next to each other.
    """

    def __init__(self, units: Units, sizes: tuple[int, ...], g: Transform) -> None:
        self.units, self.sizes = units, sizes
        values = apply_transform(g, units.mean, "g")
        influence = units.influence * transform_slopes(g, units.mean)
        value, means = [], []
        self.between, self.interaction = [], []
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            model = slice(end - size, end)
            value.append(float(values[model].mean()))
            means.append(influence[:, model].mean(1))
            own = influence[:, model] - means[-1][:, None]
            squares = float((units.count * (own**2).sum(1)).sum())
            degrees = max(size - 1, 1)  # both components of a single run are 0
            self.between.append(float(values[model].var(ddof=min(size - 1, 1))) / size)
            self.interaction.append(units.factor * squares / degrees / size)
        self.value: FloatArray = np.array(value)
        self._influence = np.stack(means, 1)

    def effective_tasks(self, model: int) -> float:
        """Effective number of tasks or clusters for the error of a value, see ``effective_tasks_of``."""
        return effective_tasks_of(self._influence[:, model], self.units.count)

    def mean(self, model: int, level: float) -> SeededEstimate:
        """Value of one model; the interval is for new seeds and new tasks."""
        return self._estimate((model,), float(self.value[model]), self._influence[:, model], level)

    def difference(self, a: int, b: int, level: float) -> SeededEstimate:
        """Difference of models a and b; if either has a single run, only tasks are regarded as random."""
        paired = self._influence[:, a] - self._influence[:, b]
        return self._estimate((a, b), float(self.value[a] - self.value[b]), paired, level)

    def _estimate(self, models: tuple[int, ...], value: float, influence: FloatArray, level: float) -> SeededEstimate:
        sizes = tuple(self.sizes[i] for i in models)
        known = models if min(sizes) > 1 else ()
        of_tasks = self.units.factor * float((self.units.count * influence**2).sum())
        interaction = sum(self.interaction[i] for i in known)
        # the variance between runs and the variance between tasks both contain the interaction once
        seeds = sum(max(self.between[i] - self.interaction[i], 0.0) for i in known)
        tasks = max(of_tasks - interaction, 0.0)
        split = SeedSplit(seeds, tasks, interaction, sizes)
        error, rounding = math.sqrt(split.total), 1e-12 * max(abs(float(self.value[i])) for i in models)
        least = max(2.0 ** (1 - self.units.size), sys.float_info.min)
        if error <= rounding:
            value = value if abs(value) > rounding else 0.0
            half = math.inf if value and len(models) > 1 and least > 1 - level else 0.0
            split = SeedSplit(0.0, 0.0, 0.0, sizes)
            return SeededEstimate(value, 0.0, math.inf, value - half, value + half, split, rounding, least)
        parts = [(self.between[i], self.sizes[i] - 1) for i in known] + [(tasks, self.units.size - 1)]
        squares = sum(v**2 / dof for v, dof in parts)
        # without variance between runs and between tasks only the interaction remains
        freedom = sum(v for v, _ in parts) ** 2 / squares if squares > 0 else float(self.units.size - 1)
        ends = student_interval(value, error, freedom, level)
        return SeededEstimate(value, error, freedom, *ends, split, rounding, least)
