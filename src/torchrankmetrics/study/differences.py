"""Difference of two models on several datasets, and its mean over them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.transforms import IDENTITY
from torchrankmetrics.inference.flips import SignFlipTest
from torchrankmetrics.inference.paired import DEFAULT_DRAWS, SIGN_FLIPS, T_OVER_BOTH, Tested
from torchrankmetrics.inference.standard_errors import Units, student_interval
from torchrankmetrics.inference.testing import holm
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.datasets import differences as draw_differences
from torchrankmetrics.rendering import Column, Rendered, Tabular, paper_name
from torchrankmetrics.study.across import row_at
from torchrankmetrics.study.cells import DatasetResult, Difference, Together
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure

_HERE = "these datasets"


class DatasetDifference(NamedTuple):
    """Difference a - b on a dataset; ``p_adjusted``: by Holm's method over the datasets.

    ``test`` is the name of the test, and ``size`` the number of tasks (or queries, or clusters).
    """

    dataset: str
    difference: float
    low: float
    high: float
    standard_error: float
    degrees_of_freedom: float
    p_value: float
    p_adjusted: float
    test: str
    size: str


@dataclass(frozen=True, eq=False)
class Differences(Rendered):
    """Difference of the models ``a`` and ``b`` over datasets, except those in ``left_out``.

    ``rows`` has one per dataset, and ``here`` is their mean for other test tasks (and seeds) of the
    same datasets.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy
    >>> study = RankStudy()
    >>> for dataset in ("nations", "kinships"):
    ...     for model, ranks in {"a": [1, 2, 1, 4] * 30, "b": [3, 2, 5, 4] * 30}.items():
    ...         study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset=dataset)
    ...
    >>> differences = study.difference("a", "b", "mrr")
    >>> [(row.dataset, round(row.difference, 4)) for row in differences.rows]
    [('nations', 0.3667), ('kinships', 0.3667)]
    """

    a: str
    b: str
    metric: str
    rows: tuple[DatasetDifference, ...]
    here: DatasetDifference
    confidence_level: float
    higher_is_better: bool
    left_out: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the differences and their mean, see ``plots.differences``."""
        rows = {row.dataset: row[1:4] for row in self.rows}
        better = f"{'right' if self.higher_is_better else 'left'} is better for {self.a}"
        label = f"{paper_name(self.metric)}: {self.a} − {self.b} ({better})"
        return draw_differences(rows, {_HERE: self.here[1:4]}, label, ax=ax)

    @property
    def about(self) -> str:
        """Caption: the difference, its interval, and its direction."""
        direction = "positive" if self.higher_is_better else "negative"
        what = (
            f"{paper_name(self.metric)} of {self.a} minus {self.b} with "
            f"{100 * self.confidence_level:g}% intervals"
        )
        return f"{what}; {direction} differences are better for {self.a}."

    def __getitem__(self, dataset: str) -> DatasetDifference:
        """Row of a dataset."""
        return row_at({row.dataset: row for row in self.rows}, dataset)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        values = (Column(name, name, metric=self.metric) for name in ("difference", "low", "high"))
        others = (Column(name) for name in ("p", "p_adjusted", "better", "test", "sample"))
        rows = [
            (*row[:4], row.p_value, row.p_adjusted, self._better(row), row.test, row.size)
            for row in (*self.rows, self.here)
        ]
        meaning = (
            "mean over the datasets with equal weights, for other tasks (and seeds) of the same "
            "datasets."
        )
        notes = [
            f"{self.about} p_adjusted: Holm's method over the datasets.",
            f"{_HERE}: {meaning}",
        ]
        if self.left_out:
            notes.append(f"not compared on {', '.join(self.left_out)}.")
        return Tabular([Column("dataset", key=True), *values, *others], rows, notes)

    def _better(self, row: DatasetDifference) -> str | None:
        """Name of the significantly better model; None if neither is."""
        p_value = row.p_value if math.isnan(row.p_adjusted) else row.p_adjusted
        if p_value > 1 - self.confidence_level:
            return None
        return self.a if (row.difference > 0) == self.higher_is_better else self.b


def differences(
    a: str, b: str, one: Measure, results: Mapping[str, DatasetResult], level: float
) -> Differences:
    """Subtract two models on every dataset, and average; ValueError without a common dataset."""
    pairs = _pairs(a, b, results)
    if not pairs:
        needed = (
            "it needs runs on the same tasks, and a metric that is a mean over tasks with a "
            "direction"
        )
        raise ValueError(
            f"{shorten(a)} and {shorten(b)} can be compared by {one.key!r} on no dataset: {needed}"
        )
    adjusted = holm([pair.p_value for pair in pairs.values()]).tolist()
    rows = tuple(
        _row(name, pair, p_adjusted, str(results[name].size))
        for (name, pair), p_adjusted in zip(pairs.items(), adjusted, strict=True)
    )
    mean = _mean_of(list(pairs.values()), level)
    tables = [results[name].together for name in pairs]
    flips = _mean_by_flips(a, b, tables, list(pairs.values()), level)
    if flips is not None:
        mean = mean._replace(low=flips.low, high=flips.high, p_value=flips.p_value, test=flips.test)
    here = _row(_HERE, mean, math.nan, f"{len(pairs)} datasets")
    left_out = tuple(name for name in results if name not in pairs)
    return Differences(a, b, one.key, rows, here, level, bool(one.higher_is_better), left_out)


def _pairs(a: str, b: str, results: Mapping[str, DatasetResult]) -> dict[str, Difference]:
    """Differences a - b by dataset, where they are known."""
    pairs = {}
    for name, result in results.items():
        if (a, b) in result.pairs:
            pairs[name] = result.pairs[a, b]
        elif (b, a) in result.pairs:
            pairs[name] = result.pairs[b, a].turned
    return pairs


def _row(name: str, pair: Difference, p_adjusted: float, size: str) -> DatasetDifference:
    return DatasetDifference(name, *pair[:6], p_adjusted, pair.test, size)


def _mean_of(pairs: list[Difference], confidence_level: float) -> Difference:
    """Mean over fixed datasets, its interval, error and p, by Welch-Satterthwaite.

    If no dataset has any spread, p is the smallest p-value of a dataset, by Bonferroni over all of
    them.
    """
    mean = float(np.mean([pair.value for pair in pairs]))
    variance = sum(pair.standard_error**2 for pair in pairs)
    error = math.sqrt(variance) / len(pairs)
    if error == 0:
        is_zero = abs(mean) <= 1e-12 * max(abs(pair.value) for pair in pairs)  # up to rounding
        least = min(1.0, len(pairs) * min(pair.p_value for pair in pairs))
        return Difference(mean, mean, mean, 0.0, math.inf, 1.0 if is_zero else least, T_OVER_BOTH)
    freedom = variance**2 / sum(pair.standard_error**4 / pair.freedom for pair in pairs)
    low, high = student_interval(mean, error, freedom, confidence_level)
    p_value = float(2 * student.sf(abs(mean) / error, freedom))
    return Difference(mean, low, high, error, freedom, p_value, T_OVER_BOTH)


def _mean_by_flips(
    a: str,
    b: str,
    tables: Sequence[Together | None],
    pairs: Sequence[Difference],
    level: float,
) -> Tested | None:
    """Sign-flip test of the mean over fixed datasets with single runs; None for several runs.

    All units are flipped, with the values of a dataset scaled so that their means differ by its
    difference in the view.
    """
    parts = []
    for together, pair in zip(tables, pairs, strict=True):
        places = None if together is None else (together.names.index(a), together.names.index(b))
        if together is None or places is None or not together.is_single(*places):
            return None
        units = together.pair(*places)
        apart = float(units.mean[0] - units.mean[1])
        slope = pair.value / apart if apart else 1.0
        share = 1 / (units.total * len(pairs))
        parts.append(replace(units, weight=units.weight * share, sums=units.sums * share * slope))
    test = SignFlipTest(
        _pooled(parts),
        IDENTITY,
        (-math.inf, math.inf),
        DEFAULT_DRAWS.permutations,
        DEFAULT_DRAWS.seed,
    )
    return Tested(*test.difference(level)[:3], SIGN_FLIPS)


def _pooled(parts: Sequence[Units]) -> Units:
    weight = np.concatenate([part.weight for part in parts])
    sums = np.concatenate([part.sums for part in parts])
    count = np.concatenate([part.count for part in parts])
    return Units(weight, sums, count, clustered=any(part.clustered for part in parts))
