"""Independent units of an evaluation (ranking tasks or clusters) with their influences."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Units:
    """Independent units, with k weighted means over them; u is the number of distinct units.

    Attributes:
        weight: (u,) float64, sum of the weights w in a unit.
        sums: (u, k) float64, sums of w f.
        count: (u,) int64, number of equal units of an entry.
        clustered: whether a unit may contain several tasks.
    """

    weight: FloatArray
    sums: FloatArray
    count: IntArray
    clustered: bool = False

    @property
    def size(self) -> int:
        """Number of units."""
        return int(self.count.sum())

    def require_two(self) -> None:
        """Raise a ValueError if there are fewer than two units, so that no standard error can be estimated."""
        if self.size < 2:
            raise ValueError(
                f"at least 2 independent tasks or clusters are needed for an error estimate, got {self.size}"
            )

    @cached_property
    def total(self) -> float:
        """Sum W of all weights."""
        return float((self.count * self.weight).sum())  # a dot product would start threads

    @cached_property
    def mean(self) -> FloatArray:
        """(k,) means, sum of w f over W."""
        return np.asarray(self.count @ self.sums / self.total, dtype=np.float64)

    @cached_property
    def influence(self) -> FloatArray:
        """(u, k) influences, sums of v (f - M); for clusters the jackknife's, divided by 1 - share of the weight."""
        plain = (self.sums - self.weight[:, None] * self.mean) / self.total
        return plain / (1 - self.weight[:, None] / self.total) if self.clustered and self.size > 1 else plain

    @property
    def factor(self) -> float:
        """Variance over the sum of squared influences: n / (n - 1); in the jackknife (n - 1) / n."""
        self.require_two()
        return (self.size - 1) / self.size if self.clustered else self.size / (self.size - 1)

    @cached_property
    def covariance(self) -> FloatArray:
        """(k, k) covariance of the means."""
        square = self.influence.T @ (self.count[:, None] * self.influence)
        return np.asarray(self.factor * square, dtype=np.float64)

    @cached_property
    def effective(self) -> float:
        """Effective number of units: W^2 over the sum of squared weights."""
        return self.total**2 / float((self.count * self.weight**2).sum())


def effective_tasks_of(influence: FloatArray, count: IntArray) -> float:
    """Effective number of units for a standard error: (sum of u^2)^2 / sum of u^4, in [1, n]; 0 without variance.

    It is n over the kurtosis of the influences u. If it is small, a few units determine the error.

    Args:
        influence: (u,) float64, influence of each unit on the estimate.
        count: (u,) int64, number of equal units of an entry.
    """
    largest = float(np.abs(influence).max(initial=0.0))
    if largest == 0:
        return 0.0
    square = (influence / largest) ** 2
    return float((count * square).sum()) ** 2 / float((count * square**2).sum())


def units_of(values: FloatArray, weight: FloatArray, count: IntArray, cluster: IntArray | None = None) -> Units:
    """Collect values f of tasks into units: the tasks themselves, or clusters of them.

    Args:
        values: (m,) or (m, k) float64.
        weight: (m,) float64 > 0, of one task.
        count: (m,) int64, number of tasks of an entry.
        cluster: (m,) int64 keys; None: every task is a unit.
    """
    values = values[:, None] if values.ndim == 1 else values
    if cluster is None:
        return Units(weight, weight[:, None] * values, count)
    key, index = np.unique(cluster, return_inverse=True)
    mass = weight * count
    sums = np.empty((len(key), values.shape[1]))
    for column, total in zip(values.T, sums.T, strict=True):
        total[:] = np.bincount(index, mass * column, minlength=len(key))
    of_cluster = np.bincount(index, mass, minlength=len(key)).astype(np.float64)
    return Units(of_cluster, sums, np.ones(len(key), dtype=np.int64), clustered=True)
