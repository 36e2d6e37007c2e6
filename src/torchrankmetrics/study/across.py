"""Models over several datasets: averages, mean ranks, and the difference of two models."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.stats import chi2, rankdata, sem, studentized_range, t as student

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.definitions.transforms import IDENTITY
from torchrankmetrics.inference.flips import SignFlipTest
from torchrankmetrics.inference.paired import DEFAULT_DRAWS, SIGN_FLIPS, T_OVER_BOTH, Tested
from torchrankmetrics.inference.standard_errors import Units, student_interval
from torchrankmetrics.inference.testing import holm
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.datasets import differences as draw_differences
from torchrankmetrics.rendering import ROW, Cell, Column, Rendered, Styled, Tabular, paper_name
from torchrankmetrics.study.cells import DatasetResult, Difference, Together
from torchrankmetrics.study.figures import critical_difference
from torchrankmetrics.study.tables import StudyTable
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure

Row = TypeVar("Row")
_LEGEND = (
    "Every dataset has the same weight. Intervals: Student's t with the datasets as the sample. "
    "best: number of datasets on which no model has a better value; won: significantly better "
    "than every other model; better than random: all runs are significantly better than random "
    "ranking"
)
_HERE = "these datasets"
_MOST_EXACT = 50  # datasets: with more, chi-square differs by less than 0.01
_MOST_SUMS = 1 << 18  # of ranks in one step of Friedman's exact test: 30 ms


def _row_at(rows: Mapping[Any, Row], key: object) -> Row:
    if key not in rows:
        raise KeyError(f"{shorten(key)} is missing; available: {', '.join(map(str, rows))}")
    return rows[key]


class Average(NamedTuple):
    """A model over datasets of equal weight.

    Attributes:
        value, low, high: mean over the datasets with its interval; NaN ends for fewer than two.
        mean_rank: mean of its rank among the models of a dataset, 1 for the best.
        best, won, beyond_chance: numbers of datasets on which no model has a better value, on which
            it is significantly better than every other model, and than random ranking (None for
            metrics without a p-value).
        num_datasets: number of datasets on which all models have a value.
    """

    value: float
    low: float
    high: float
    mean_rank: float
    best: int
    won: int
    beyond_chance: int | None
    num_datasets: int


@dataclass(frozen=True, eq=False)
class Averages(Rendered):
    """Models over datasets: ``averages["amri", "model"].value``; the notes state what is comparable."""

    measures: tuple[Measure, ...]
    models: tuple[str, ...]
    rows: Mapping[tuple[str, str], Average]
    notes: tuple[str, ...]

    def __getitem__(self, place: tuple[str, str]) -> Average:
        """Row of a (metric, model)."""
        return _row_at(self.rows, place)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        columns = [
            *(Column(name, key=True) for name in ("metric", "model")),
            *(Column(name, audience="programs") for name in ("mean", "low", "high")),
            Column("interval", "mean over datasets", audience="people", metric=ROW),
            *(Column("mean_rank", "mean rank", digits=2), Column("best"), Column("won")),
            *(Column("beyond_chance", "better than random"), Column("datasets")),
        ]
        lines: list[list[Cell]] = []
        for one in self.measures:
            top = (max if one.higher_is_better else min)(
                self.rows[one.key, model].value for model in self.models
            )
            for model in self.models:
                value, low, high, *counts = self.rows[one.key, model]
                printed = Styled(
                    value, low, high, digits=3 if abs(value) < 10 else 1, bold=value == top
                )
                lines.append([one.key, model, value, low, high, printed, *counts])
        return Tabular(columns, lines, self.notes)


def averages(table: StudyTable) -> Averages:
    """Average a table over its datasets; ValueError without any, and for a metric without a direction."""
    rows: dict[tuple[str, str], Average] = {}
    notes = [
        f"{_LEGEND} (Holm's method, family-wise error rate "
        f"{100 * (1 - table.confidence_level):.3g}%)."
    ]
    for one in table.measures:
        chosen, values, left_out = _complete(table, one)
        falling = -values if one.higher_is_better else values
        ranks, leading = rankdata(falling, axis=1), falling == falling.min(1, keepdims=True)
        bottom, top = one.bounds
        for i, model in enumerate(table.models):
            cells = [table.cells[one.key, model, data] for data in chosen]
            tested = [c.is_better_than_random for c in cells if c.is_better_than_random is not None]
            mean, error = (
                float(values[:, i].mean()),
                float(sem(values[:, i])) if len(chosen) > 1 else math.nan,
            )
            low, high = student_interval(mean, error, len(chosen) - 1, table.confidence_level)
            ends = (
                low if bottom is None else max(low, bottom),
                high if top is None else min(high, top),
            )
            best, won = int(leading[:, i].sum()), sum(c.rank == (1, 1) for c in cells)
            beyond, mean_rank = sum(tested) if tested else None, float(ranks[:, i].mean())
            rows[one.key, model] = Average(mean, *ends, mean_rank, best, won, beyond, len(chosen))
        end = "higher" if one.higher_is_better else "lower"
        name = f"{paper_name(one.key)} ({end} is better)"
        notes.append(f"{name}: {_comparability(one, table, chosen)}")
        if left_out:
            notes.append(
                f"{paper_name(one.key)}: without {', '.join(left_out)}, where a model has no value."
            )
    return Averages(table.measures, table.models, rows, tuple(notes))


def _complete(table: StudyTable, one: Measure) -> tuple[list[str], FloatArray, list[str]]:
    """Datasets on which every model has a value, these values (datasets, models), and the other datasets."""
    if one.higher_is_better is None:
        raise ValueError(
            f"{one.key!r} has no direction, so that no model is best by it: choose another metric"
        )
    values = np.array(
        [[table.value(one.key, model, data) for model in table.models] for data in table.datasets]
    )
    known = ~np.isnan(values).any(1)
    if not known.any():
        raise ValueError(
            f"no dataset has {one.key!r} of all models: make a study of models that share datasets"
        )
    chosen, left_out = (list(compress(table.datasets, rows)) for rows in (known, ~known))
    return chosen, values[known], left_out


def _comparability(one: Measure, table: StudyTable, chosen: Sequence[str]) -> str:
    """Meaning of an average of the measure over datasets, see docs/comparable.md."""
    if one.view == "z_score":
        return "not comparable between datasets: z grows with the number of tasks."
    if one.view != "adjusted_index":
        chances = [
            value for data in chosen if not math.isnan(value := table.results[one.key, data].chance)
        ]
        ends = dict.fromkeys(f"{end(chances):.3g}" for end in (min, max) if chances)
        spread = f" (random ranking: {' to '.join(ends)})" if ends else ""
        return f"not comparable between datasets: the value depends on the number of candidates{spread}."
    if one.definition.name in ("auc", "mr"):
        weight = (
            "weigh the same"
            if one.definition.name == "auc"
            else "weigh by their numbers of candidates"
        )
        return f"comparable if candidates are sampled uniformly; the tasks of a dataset {weight}."
    return "0 is random ranking and 1 is perfect on every dataset; other values decrease with the number of candidates."


@dataclass(frozen=True, eq=False)
class Ranking(Rendered):
    """Mean ranks of models over datasets: Friedman's test, and Nemenyi's smallest significant difference.

    Attributes:
        metric, models: key of the metric, and names.
        mean: mean rank of each model, 1 is the best.
        p_value: of Friedman's test that all models are alike.
        critical_difference: smallest significant difference of two mean ranks.
        cliques: indices of models, by ascending mean rank, that are not significantly different.
        num_datasets: number of datasets on which all models have a value.
        left_out: the other datasets.
        confidence_level: 1 - the error rates of the tests.
        is_exact: whether the p-value is exact; False: from the chi-square distribution, of many
            datasets.
        higher_is_better: direction of the metric.
    """

    metric: str
    models: tuple[str, ...]
    mean: tuple[float, ...]
    p_value: float
    critical_difference: float
    cliques: tuple[tuple[int, ...], ...]
    num_datasets: int
    left_out: tuple[str, ...]
    confidence_level: float
    is_exact: bool
    higher_is_better: bool

    @property
    def _what(self) -> str:
        end = "higher" if self.higher_is_better else "lower"
        name = paper_name(self.metric)
        return f"Mean ranks by {name} ({end} is better) over {self.num_datasets} datasets"

    @property
    def about(self) -> str:
        """Caption of the figure."""
        what = f"{self._what}; a bar joins models"
        return f"{what} that are not significantly different with the datasets as the sample (Friedman, Nemenyi)."

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the critical difference, see ``study.critical_difference``."""
        return critical_difference(self.models, self, ax=ax)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        letters = [
            "".join(chr(97 + g) for g, c in enumerate(self.cliques) if i in c)
            for i in range(len(self.models))
        ]
        order = np.argsort(self.mean, kind="stable").tolist()
        rows = [(self.models[i], self.mean[i], letters[i]) for i in order]
        apart = f"models that share a letter (less than {self.critical_difference:.2f} apart)"
        test = f"not significantly different at {100 * (1 - self.confidence_level):.3g}%."
        method = "exact" if self.is_exact else "chi-square"
        friedman_p = f"Friedman: p = {self.p_value:.2g} ({method})"
        notes = [f"{self._what}, 1 is best. {friedman_p}. Nemenyi: {apart} are {test}"]
        if self.left_out:
            notes.append(f"Without {', '.join(self.left_out)}, where a model has no value.")
        columns = [
            Column("model", key=True),
            Column("mean_rank", "mean rank", digits=2),
            Column("group"),
        ]
        return Tabular(columns, rows, notes)


def ranking(table: StudyTable) -> Ranking:
    """Rank the models of a table on every dataset by its first metric; ValueError for less than 2 x 2 values.

    Source: Demsar 2006 (https://jmlr.org/papers/v7/demsar06a.html).
    """
    one, level = table.measures[0], table.confidence_level
    _, values, left_out = _complete(table, one)
    (n, k), ranks = values.shape, rankdata(-values if one.higher_is_better else values, axis=1)
    if min(n, k) < 2:
        raise ValueError(f"mean ranks need 2 models on 2 datasets or more, got {k} and {n}")
    p_value, is_exact = friedman(ranks)
    critical = float(studentized_range.ppf(level, k, np.inf)) * math.sqrt(k * (k + 1) / (12 * n))
    mean = ranks.mean(0)
    return Ranking(
        one.key,
        table.models,
        tuple(mean.tolist()),
        p_value,
        critical,
        _cliques(mean, critical),
        n,
        tuple(left_out),
        level,
        is_exact,
        bool(one.higher_is_better),
    )


def friedman(ranks: FloatArray) -> tuple[float, bool]:
    """P-value of Friedman's test of ranks (datasets, models), and whether it is exact.

    Exact: the distribution of the sums of ranks if every order of the ranks of a dataset is equally
    likely, dataset by dataset. Sums that differ in the order of the models are one state. With many
    datasets the p-value is from the chi-square distribution, with ties.
    """
    n, k = ranks.shape
    middle = (k + 1) / 2
    deviation = float(((ranks.sum(0) - n * middle) ** 2).sum())
    spread = float(((ranks - middle) ** 2).sum())
    if spread == 0:
        return 1.0, True
    if (exact := _friedman_exact(np.rint(2 * ranks).astype(np.int64), 4 * deviation)) is not None:
        return exact, True
    return float(chi2.sf(deviation * (k - 1) / spread, k - 1)), False


def _friedman_exact(doubled: IntArray, deviation: float) -> float | None:
    """Probability of such a sum of squares of doubled ranks or a larger one; None if it takes too long."""
    n, k = doubled.shape
    base = 2 * n * k + 1  # above every sum: a state is one number with the sums as digits
    if n > _MOST_EXACT or math.factorial(k) > _MOST_SUMS or base**k >= 1 << 63:
        return None
    digits = base ** np.arange(k, dtype=np.int64)
    sums, share = np.zeros((1, k), dtype=np.int64), np.ones(1)
    for row in doubled:
        orders = np.array(list(itertools.permutations(row.tolist())))
        if len(sums) * len(orders) > _MOST_SUMS:
            return None
        every = np.sort((sums[:, None] + orders).reshape(-1, k), axis=1)
        states, index = np.unique(every @ digits, return_inverse=True)
        each = np.repeat(share / len(orders), len(orders))
        share = np.bincount(index, each).astype(np.float64)
        sums = states[:, None] // digits % base
    reached = ((sums - n * (k + 1)) ** 2).sum(1) >= deviation - 0.5  # sums are integers
    return float(share[reached].sum())


def _cliques(mean: FloatArray, critical: float) -> tuple[tuple[int, ...], ...]:
    """Sets of models, by ascending mean rank, that are at most the critical difference apart."""
    order = np.argsort(mean, kind="stable")
    cliques: list[tuple[int, ...]] = []
    for start in range(len(order)):
        rest = order[start:]
        together = tuple(rest[mean[rest] - mean[order[start]] <= critical].tolist())
        if len(together) > 1 and not (cliques and set(together) <= set(cliques[-1])):
            cliques.append(together)
    return tuple(cliques)


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
    """Difference of the models ``a`` and ``b`` over datasets, on which the two cannot be compared if ``left_out``.

    ``rows`` has one per dataset, and ``here`` is their mean for other test tasks (and seeds) of the
    same datasets.
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
        what = f"{paper_name(self.metric)} of {self.a} minus {self.b} with {100 * self.confidence_level:g}% intervals"
        return f"{what}; {direction} differences are better for {self.a}."

    def __getitem__(self, dataset: str) -> DatasetDifference:
        """Row of a dataset."""
        return _row_at({row.dataset: row for row in self.rows}, dataset)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        values = (Column(name, name, metric=self.metric) for name in ("difference", "low", "high"))
        others = (Column(name) for name in ("p", "p_adjusted", "better", "test", "sample"))
        rows = [
            (*row[:4], row.p_value, row.p_adjusted, self._better(row), row.test, row.size)
            for row in (*self.rows, self.here)
        ]
        meaning = "mean over the datasets with equal weights, for other tasks (and seeds) of the same datasets."
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
    """Subtract two models on every dataset, and average; ValueError if they cannot be compared on any."""
    pairs = dict[str, Difference]()
    for name, result in results.items():
        if (a, b) in result.pairs:
            pairs[name] = result.pairs[a, b]
        elif (b, a) in result.pairs:
            pairs[name] = result.pairs[b, a].turned
    if not pairs:
        needed = "it needs runs on the same tasks, and a metric that is a mean over tasks with a direction"
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
        low, high, p_value, test, *_ = flips
        mean = mean._replace(low=low, high=high, p_value=p_value, test=test)
    here = _row(_HERE, mean, math.nan, f"{len(pairs)} datasets")
    left_out = tuple(name for name in results if name not in pairs)
    return Differences(a, b, one.key, rows, here, level, bool(one.higher_is_better), left_out)


def _row(name: str, pair: Difference, p_adjusted: float, size: str) -> DatasetDifference:
    return DatasetDifference(name, *pair[:6], p_adjusted, pair.test, size)


def _mean_of(pairs: list[Difference], confidence_level: float) -> Difference:
    """Mean over fixed datasets, its interval, error and p: variances add up, Welch-Satterthwaite degrees of freedom.

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
    """Sign-flip test of the mean over fixed datasets, on which both models have single runs; None for several.

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
    pooled = Units(
        np.concatenate([part.weight for part in parts]),
        np.concatenate([part.sums for part in parts]),
        np.concatenate([part.count for part in parts]),
        clustered=any(part.clustered for part in parts),
    )
    test = SignFlipTest(
        pooled, IDENTITY, (-math.inf, math.inf), DEFAULT_DRAWS.permutations, DEFAULT_DRAWS.seed
    )
    low, high, p_value, _ = test.difference(level)
    return Tested(low, high, p_value, SIGN_FLIPS)
