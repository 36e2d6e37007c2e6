"""Two models over data sets: their difference on each, over these data sets, and over others of the kind."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.plots.across import differences as draw
from torchrankmetrics.rendering import Cell, Column, Rendered, Tabular
from torchrankmetrics.study.cells import Measured
from torchrankmetrics.theory.inference.across import RandomEffects, random_effects
from torchrankmetrics.theory.inference.testing import holm


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
        level: of the intervals.
        higher_is_better: direction of the metric.
        left_out: data sets where the two cannot be compared.
    """

    a: str
    b: str
    metric: str
    rows: tuple[DataSetDifference, ...]
    here: DataSetDifference
    elsewhere: RandomEffects | None
    level: float
    higher_is_better: bool
    left_out: tuple[str, ...]

    def plot(self, ax: Any = None) -> Any:
        """Draw the differences and their averages, see ``plots.differences``."""
        ends = {row.dataset: (row.difference, row.low, row.high) for row in (*self.rows, self.here)}
        averages = {self.here.dataset: ends.pop(self.here.dataset)}
        if self.elsewhere is not None:
            averages["other data sets"] = (self.elsewhere.value, self.elsewhere.low, self.elsewhere.high)
        label = f"{self.metric}: {self.a} less {self.b} ({self._better} is better for {self.a})"
        return draw(ends, averages, label, ax=ax)

    @property
    def about(self) -> str:
        """What was subtracted, and which direction is better for whom."""
        level = f"{100 * self.level:g} % intervals"
        return f"{self.metric} of {self.a} less that of {self.b}, {level}; {self._better} of 0 is better for {self.a}."

    @property
    def _better(self) -> str:
        return "right" if self.higher_is_better else "left"

    def __getitem__(self, dataset: str) -> DataSetDifference:
        """Row of a data set."""
        for row in self.rows:
            if row.dataset == dataset:
                return row
        raise KeyError(f"{dataset!r} is not there; there are {', '.join(row.dataset for row in self.rows)}")

    def __str__(self) -> str:
        return self.to_text()

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        names = ("dataset", "difference", "low", "high", "p", "p_adjusted")
        columns = [Column(name, key=name == "dataset") for name in names]
        lines: list[list[Cell]] = [
            [r.dataset, r.difference, r.low, r.high, r.p_value, r.p_adjusted] for r in (*self.rows, self.here)
        ]
        notes = [
            f"{self.about} p_adjusted: one family over the data sets (Holm).",
            f"{self.here.dataset}: each counts once; generalises to other tasks of these data sets.",
        ]
        if self.elsewhere is not None:
            found = self.elsewhere
            lines.append(["other data sets", found.value, found.low, found.high, found.p_value, None])
            notes.append(
                f"other data sets: random effects over {found.num_datasets}, for data sets of the kind; true "
                f"differences vary by {found.tau:.3g} (I² = {100 * found.inconsistency:.0f} %), the next one lies in "
                f"[{found.predicted[0]:.3g}, {found.predicted[1]:.3g}]."
            )
        if self.left_out:
            notes.append(f"not compared on {', '.join(self.left_out)}.")
        return Tabular(columns, lines, tuple(notes))


def differences(a: str, b: str, one: Measure, found: Mapping[str, Measured], level: float) -> Differences:
    """Subtract two models on every data set, and average.

    Raises:
        ValueError: if they can be compared nowhere, or the metric has no direction or no error.
    """
    z, rows, pairs = float(norm.ppf((1 + level) / 2)), [], {}
    for name, part in found.items():
        if a in part.tested and b in part.tested and part.tests is not None:
            i, j = part.tested.index(a), part.tested.index(b)
            place = part.tests.pairs.index((min(i, j), max(i, j)))
            value, error = part.differences[place].tolist()
            pairs[name] = (value if i < j else -value, error, part.tests.p_values[place], part.ends[place], i < j)
    if not pairs:
        raise ValueError(
            f"{a!r} and {b!r} can be compared by {one.key!r} on no data set: it takes a mean over tasks that has a "
            "direction, and runs of both on the same tasks"
        )
    adjusted = holm([pair[2] for pair in pairs.values()])
    for (name, (value, error, p, ends, forward)), p_adjusted in zip(pairs.items(), adjusted, strict=True):
        low, high = ends if forward else (-ends[1], -ends[0])
        rows.append(DataSetDifference(name, value, low, high, error, p, float(p_adjusted)))
    mean = float(np.mean([row.difference for row in rows]))
    error = math.sqrt(sum(row.standard_error**2 for row in rows)) / len(rows)
    p = float(2 * norm.sf(abs(mean) / error)) if error > 0 else float(mean == 0)
    here = DataSetDifference("these data sets", mean, mean - z * error, mean + z * error, error, p, math.nan)
    spread = [row for row in rows if row.standard_error > 0]
    elsewhere = None
    if len(spread) > 1:
        elsewhere = random_effects([r.difference for r in spread], [r.standard_error for r in spread], level)
    left_out = tuple(name for name in found if name not in pairs)
    return Differences(a, b, one.key, tuple(rows), here, elsewhere, level, bool(one.higher_is_better), left_out)
