"""Power of a comparison to come, from the variance that one at hand has by tasks and by training seeds."""

import math
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.stats import nct, norm
from scipy.stats import t as student

_MOST_TASKS, _MOST_SEEDS = 1 << 40, 1 << 20


@dataclass(frozen=True)
class VarianceParts:
    """Variance of a difference of two models by source, for one task and one training seed of each model.

    The variance with n tasks and s seeds of each model is seeds / s + tasks / n + interaction / (s n).

    Attributes:
        seeds: what training seeds bring; 0 where they were not told apart.
        tasks: what test tasks bring.
        interaction: what is of a seed on a task.
        seeds_known: whether seeds were told apart; else the difference is one of two sets of weights.

    Source: Owen 2007 (doi:10.1214/07-AOAS122) for the two-way layout.
    """

    seeds: float
    tasks: float
    interaction: float
    seeds_known: bool

    def variance(self, num_tasks: float, num_seeds: float = 1) -> float:
        """Variance of the difference with so many tasks and so many seeds of each model."""
        return self.seeds / num_seeds + self.tasks / num_tasks + self.interaction / num_seeds / num_tasks

    def power(self, difference: float, num_tasks: float, num_seeds: float = 1, confidence_level: float = 0.95) -> float:
        """Probability in [0, 1] that a two-sided test at 1 - confidence_level finds a difference of this size.

        Noncentral t with Welch-Satterthwaite degrees of freedom; with one seed of each model and variance by seeds
        there is no test of methods: 0.
        """
        variance = self.variance(num_tasks, num_seeds)
        if variance == 0:
            return 1.0 if difference else 1 - confidence_level
        between = self.seeds / num_seeds + self.interaction / num_seeds / num_tasks
        if self.seeds_known and num_seeds < 2:
            return 0.0
        tasks = self.tasks / num_tasks
        squares = tasks**2 / max(num_tasks - 1, 1)
        if self.seeds_known:  # half of it is of either model
            squares += between**2 / 2 / (num_seeds - 1)
        freedom = min((between + tasks) ** 2 / squares, 1e6)
        bar, shift = float(student.ppf((1 + confidence_level) / 2, freedom)), abs(difference) / math.sqrt(variance)
        if shift > 35:  # beyond what the noncentral law is computed for, and certain
            return 1.0
        found = float(nct.sf(bar, freedom, shift))
        if math.isnan(found):  # where the series of the noncentral law fails, it is normal (Johnson and Welch 1940)
            found = float(norm.sf((bar * (1 - 1 / (4 * freedom)) - shift) / math.sqrt(1 + bar**2 / (2 * freedom))))
        other = float(nct.cdf(-bar, freedom, shift))
        return min(found + (0.0 if math.isnan(other) else other), 1.0)

    def tasks_for(self, difference: float, power: float, num_seeds: int = 1, confidence_level: float = 0.95) -> float:
        """Fewest tasks with which the power is reached; infinite where seeds alone keep it below."""
        return _fewest(lambda n: self.power(difference, n, num_seeds, confidence_level), power, 2, _MOST_TASKS)

    def seeds_for(self, difference: float, power: float, num_tasks: int, confidence_level: float = 0.95) -> float:
        """Fewest seeds of each model with which the power is reached; infinite where the tasks alone keep it below."""
        first = 2 if self.seeds_known else 1
        return _fewest(lambda s: self.power(difference, num_tasks, s, confidence_level), power, first, _MOST_SEEDS)

    def detectable(self, power: float, num_tasks: int, num_seeds: int = 1, confidence_level: float = 0.95) -> float:
        """Smallest difference that is found with this power; infinite where nothing is."""
        error = math.sqrt(self.variance(num_tasks, num_seeds))
        if error == 0:
            return 0.0
        reached = self.power(30 * error, num_tasks, num_seeds, confidence_level)
        top = 30 * error
        while reached < power:
            top *= 10
            if top > 1e12 * error or reached == 0:
                return math.inf
            reached = self.power(top, num_tasks, num_seeds, confidence_level)
        return float(
            brentq(lambda d: self.power(d, num_tasks, num_seeds, confidence_level) - power, 0.0, top, xtol=1e-12 * top)
        )


def _fewest(power_of, bar: float, first: int, most: int) -> float:  # type: ignore[no-untyped-def]
    if power_of(first) >= bar:
        return first
    low, high = first, 2 * first
    while power_of(high) < bar:
        low, high = high, 2 * high
        if high > most:
            return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= bar else (middle, high)
    return high
