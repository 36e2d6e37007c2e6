"""Two models over data sets: their difference on each, over these data sets, and over others of the kind."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.plots.across import differences as draw
from torchrankmetrics.rendering import Cell, Column, Rendered, Tabular
from torchrankmetrics.study.cells import Measured
from torchrankmetrics.theory.inference.across import RandomEffects, random_effects
from torchrankmetrics.theory.inference.testing import holm

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure

_ROUNDING = 1e-12  # of a difference, as a share of the values
HERE, ELSEWHERE = "these data sets", "other data sets"


@dataclass(frozen=True)
class DataSetDifference:
    """Difference a - b on a data set; p_adjusted: one family over the data sets."""

    dataset: str
    difference: float
    low: float
    high: float
    standard_error: float
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, eq=False)
class Differences(Rendered):
    """Two models over data sets.

    Attributes:
        a, b, metric: what was subtracted.
        rows: a data set each.
        here: mean over these data sets, for other tasks (and seeds) of them: they are not the sample.
        elsewhere: mean over data sets of the kind, of which these are a sample; None for fewer than two.
        confidence_level: of the intervals.
        higher_is_better: direction of the metric.
        left_out: data sets where the two cannot be compared.
    """

    a: str
    b: str
    metric: str
    rows: tuple[DataSetDifference, ...]
    here: DataSetDifference
    elsewhere: RandomEffects | None
    confidence_level: float
    higher_is_better: bool
    left_out: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the differences and their averages, see ``plots.differences``."""
        ends = {row.dataset: (row.difference, row.low, row.high) for row in (*self.rows, self.here)}
        averages = {self.here.dataset: ends.pop(self.here.dataset)}
        if self.elsewhere is not None:
            averages[ELSEWHERE] = (self.elsewhere.value, self.elsewhere.low, self.elsewhere.high)
        label = f"{self.metric}: {self.a} less {self.b} ({self._better} is better for {self.a})"
        return draw(ends, averages, label, ax=ax)

    @property
    def about(self) -> str:
        """What was subtracted, and which direction is better for whom."""
        what = f"{self.metric} of {self.a} less that of {self.b}"
        return f"{what}, {100 * self.confidence_level:g} % intervals; {self._better} of 0 is better for {self.a}."

    @property
    def _better(self) -> str:
        return "right" if self.higher_is_better else "left"

    def __getitem__(self, dataset: str) -> DataSetDifference:
        """Row of a data set."""
        for row in self.rows:
            if row.dataset == dataset:
                return row
        raise KeyError(f"{dataset!r} is not there; there are {', '.join(row.dataset for row in self.rows)}")

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        names = ("dataset", "difference", "low", "high", "p", "p_adjusted")
        columns = [Column(name, key=name == "dataset") for name in names]
        lines: list[list[Cell]] = [
            [r.dataset, r.difference, r.low, r.high, r.p_value, r.p_adjusted] for r in (*self.rows, self.here)
        ]
        notes = [
            f"{self.about} p_adjusted: one family over the data sets (Holm).",
            f"{HERE}: each counts once; generalises to other tasks (and seeds) on these data sets.",
        ]
        if self.elsewhere is not None:
            found = self.elsewhere
            lines.append([ELSEWHERE, found.value, found.low, found.high, found.p_value, None])
            notes.append(
                f"{ELSEWHERE}: random effects over {found.num_datasets}, for data sets of the kind; true "
                f"differences vary by {found.tau:.3g} (I² = {100 * found.inconsistency:.0f} %), the next one lies in "
                f"[{found.predicted[0]:.3g}, {found.predicted[1]:.3g}]."
            )
        if self.left_out:
            notes.append(f"not compared on {', '.join(self.left_out)}.")
        return Tabular(columns, lines, tuple(notes))


def differences(a: str, b: str, one: Measure, found: Mapping[str, Measured], confidence_level: float) -> Differences:
    """Subtract two models on every data set, and average.

    Raises:
        ValueError: if they can be compared nowhere, or the metric has no direction or no error.
    """
    pairs: dict[str, _Pair] = {}
    for name, part in found.items():
        if a in part.tested and b in part.tested and part.tests is not None:
            i, j = part.tested.index(a), part.tested.index(b)
            place = part.tests.pairs.index((min(i, j), max(i, j)))
            (value, error, freedom), (low, high) = part.differences[place].tolist(), part.ends[place].tolist()
            turned = (value, low, high) if i < j else (-value, -high, -low)
            pairs[name] = _Pair(*turned, error, freedom, part.tests.p_values[place])
    if not pairs:
        raise ValueError(
            f"{a!r} and {b!r} can be compared by {one.key!r} on no data set: it takes a mean over tasks that has a "
            "direction, and runs of both on the same tasks"
        )
    adjusted = holm([pair.p_value for pair in pairs.values()]).tolist()
    rows = [
        DataSetDifference(name, pair.value, pair.low, pair.high, pair.error, pair.p_value, p)
        for (name, pair), p in zip(pairs.items(), adjusted, strict=True)
    ]
    here = _mean_here(list(pairs.values()), confidence_level)
    spread = [row for row in rows if row.standard_error > 0]
    elsewhere = None
    if len(spread) > 1:
        elsewhere = random_effects([r.difference for r in spread], [r.standard_error for r in spread], confidence_level)
    left_out = tuple(name for name in found if name not in pairs)
    return Differences(
        a=a,
        b=b,
        metric=one.key,
        rows=tuple(rows),
        here=here,
        elsewhere=elsewhere,
        confidence_level=confidence_level,
        higher_is_better=bool(one.higher_is_better),
        left_out=left_out,
    )


class _Pair(NamedTuple):
    """Difference of two models on a data set."""

    value: float
    low: float
    high: float
    error: float
    freedom: float
    p_value: float


def _mean_here(pairs: list[_Pair], confidence_level: float) -> DataSetDifference:
    """Mean over data sets that are no sample: their errors add up, with Welch-Satterthwaite degrees of freedom.

    Where no data set has any spread t would be sure: p is that of the surest data set, by Bonferroni over all of them.
    """
    values = [pair.value for pair in pairs]
    mean = float(np.mean(values))
    variance = sum(pair.error**2 for pair in pairs)
    error = math.sqrt(variance) / len(pairs)
    if error == 0:
        surest = min(1.0, len(pairs) * min(pair.p_value for pair in pairs))
        p_value = 1.0 if abs(mean) <= _ROUNDING * max(map(abs, values)) else surest
        return DataSetDifference(HERE, mean, mean, mean, 0.0, p_value, math.nan)
    freedom = variance**2 / sum(pair.error**4 / pair.freedom for pair in pairs)
    half = float(student.ppf((1 + confidence_level) / 2, freedom)) * error
    p_value = float(2 * student.sf(abs(mean) / error, freedom))
    return DataSetDifference(HERE, mean, mean - half, mean + half, error, p_value, math.nan)
