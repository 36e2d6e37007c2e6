"""Mean ranks of models over datasets: Friedman's test and Nemenyi's critical difference."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2, rankdata, studentized_range

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.rendering import Column, Rendered, Tabular, paper_name
from torchrankmetrics.study.across import complete_values, with_reasons
from torchrankmetrics.study.figures import critical_difference
from torchrankmetrics.study.tables import StudyTable

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure

_MOST_EXACT = 50  # datasets: with more, chi-square differs by less than 0.01
_MOST_SUMS = 1 << 18  # of ranks in one step of Friedman's exact test: 30 ms


@dataclass(frozen=True, eq=False)
class Ranking(Rendered):
    """Mean ranks of models over datasets, with Friedman's and Nemenyi's tests.

    Attributes:
        metric, models: key of the metric, and names.
        mean: mean rank of each model, 1 is the best.
        p_value: of Friedman's test that all models are alike.
        critical_difference: smallest significant difference of two mean ranks.
        cliques: indices of models, by ascending mean rank, that are not significantly different.
        num_datasets: number of datasets on which all models have a value of the same tasks.
        left_out: the other datasets, each with the reason why it is left out.
        confidence_level: 1 - the error rates of the tests.
        is_exact: whether the p-value is exact; False: from the chi-square distribution, of many
            datasets.
        higher_is_better: direction of the metric.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy
    >>> study = RankStudy()
    >>> for dataset in ("nations", "kinships", "umls"):
    ...     for model, ranks in {"a": [1, 2, 1, 4], "b": [3, 2, 5, 4]}.items():
    ...         study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset=dataset)
    ...
    >>> ranking = study.mean_ranks("mrr")
    >>> ranking.models, ranking.mean
    (('a', 'b'), (1.0, 2.0))
    """

    metric: str
    models: tuple[str, ...]
    mean: tuple[float, ...]
    p_value: float
    critical_difference: float
    cliques: tuple[tuple[int, ...], ...]
    num_datasets: int
    left_out: Mapping[str, str]
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
        return (
            f"{what} that are not significantly different with the datasets as the sample "
            "(Friedman, Nemenyi)."
        )

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the critical difference, see ``study.critical_difference``."""
        return critical_difference(self.models, self, ax=ax)

    def _letters(self, i: int) -> str:
        return "".join(chr(97 + g) for g, clique in enumerate(self.cliques) if i in clique)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        letters = [self._letters(i) for i in range(len(self.models))]
        order = np.argsort(self.mean, kind="stable").tolist()
        rows = [(self.models[i], self.mean[i], letters[i]) for i in order]
        apart = f"models that share a letter (less than {self.critical_difference:.2f} apart)"
        test = f"not significantly different at {100 * (1 - self.confidence_level):.3g}%."
        method = "exact" if self.is_exact else "chi-square"
        friedman_p = f"Friedman: p = {self.p_value:.2g} ({method})"
        notes = [f"{self._what}, 1 is best. {friedman_p}. Nemenyi: {apart} are {test}"]
        notes += [f"Without {text}." for text in with_reasons(self.left_out)]
        columns = [
            Column("model", key=True),
            Column("mean_rank", "mean rank", digits=2),
            Column("group"),
        ]
        return Tabular(columns, rows, notes)


def ranking(table: StudyTable) -> Ranking:
    """Rank the models of a table on every dataset by its first metric, of 2 x 2 values or more.

    Source: Demsar 2006 (https://jmlr.org/papers/v7/demsar06a.html).
    """
    one = table.measures[0]
    level = table.confidence_level
    _, values, left_out = complete_values(table, one)
    (n, k) = values.shape
    ranks = rankdata(-values if one.higher_is_better else values, axis=1)
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
        left_out,
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
    """Probability of such a sum of squared doubled ranks or more; None if it takes too long."""
    n, k = doubled.shape
    base = 2 * n * k + 1  # above every sum: a state is one number with the sums as digits
    if n > _MOST_EXACT or math.factorial(k) > _MOST_SUMS or base**k >= 1 << 63:
        return None
    digits = base ** np.arange(k, dtype=np.int64)
    sums = np.zeros((1, k), dtype=np.int64)
    share = np.ones(1)
    for row in doubled:
        orders = np.array(list(itertools.permutations(row.tolist())))
        if len(sums) * len(orders) > _MOST_SUMS:
            return None
        every = np.sort((sums[:, None] + orders).reshape(-1, k), axis=1)
        states, index = np.unique(every @ digits, return_inverse=True)
        share = np.bincount(index, np.repeat(share / len(orders), len(orders))).astype(np.float64)
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
