"""p-values of query metrics, exact or simulated."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, IntArray, distinct_rows, in_range
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.null.p_values import log_p_value
from torchrankmetrics.null.tails.distribution import Atoms, ListedSummands
from torchrankmetrics.null.tails.upper import log_upper_tail
from torchrankmetrics.queries.kind import QueryKind
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.validation import shown

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition

_BUDGET = 1 << 25  # ranks drawn in all
_FEWEST = 99  # outcomes, however many ranks they take
_BLOCK = 1 << 20  # ranks in memory at a time


def simulated_tail(
    kind: QueryKind, N: IntArray, m: IntArray, share: FloatArray, count: IntArray, least: float, samples: int, seed: int
) -> tuple[int, int]:
    """Draw values of sum of c v X by chance: how many are at least ``least``, and how many were drawn.

    Args:
        kind: of the metric; lower is better where v < 0.
        N: (u,) int64, ascending, then m: equal pairs are drawn together.
        m: (u,) int64.
        share: (u,) float64, v of one query.
        count: (u,) int64, c.
        least: the value to reach.
        samples: how many to draw at most.
        seed: of NumPy's default generator.
    """
    random = np.random.default_rng(seed)
    samples = min(samples, max(_FEWEST, _BUDGET // int((count * m).sum())))
    totals = np.zeros(samples)
    first = np.flatnonzero(np.r_[True, (N[1:] != N[:-1]) | (m[1:] != m[:-1])])
    for begin, end in zip(first, [*first[1:], len(N)], strict=True):
        one_N, one_m = int(N[begin]), int(m[begin])
        weights = np.repeat(share[begin:end], count[begin:end])
        rows = max(1, _BLOCK // (one_m * len(weights)))
        for start in range(0, samples, rows):
            size = min(rows, samples - start)
            for block in range(0, len(weights), _BLOCK):
                some = weights[block : block + _BLOCK]
                ranks = random_subsets(random, one_N, one_m, size * len(some))
                values = kind.values(QuerySample.ranked(ranks, one_N))
                totals[start : start + size] += (values.reshape(size, len(some)) * some).sum(1)
    return int((totals >= least).sum()), samples


def random_subsets(random: np.random.Generator, N: int, m: int, rows: int) -> IntArray:
    """Uniform m-subsets of 1..N, ascending, (rows, m) int64."""
    if 2 * m > N:  # what is left out
        chosen = np.ones((rows, N), dtype=bool)
        if m < N:
            np.put_along_axis(chosen, random_subsets(random, N, N - m, rows) - 1, False, axis=1)
        return (np.nonzero(chosen)[1] + 1).reshape(rows, m)
    if m * m > 4 * N:  # draws with replacement would rarely be distinct
        keys = random.random((rows, N))
        return np.sort(np.argpartition(keys, m, axis=1)[:, :m], axis=1) + 1
    ranks = np.empty((rows, m), dtype=np.int64)
    repeated = np.arange(rows)
    while len(repeated):
        ranks[repeated] = np.sort(random.integers(1, N, (len(repeated), m), endpoint=True), axis=1)
        repeated = repeated[(np.diff(ranks[repeated], axis=1) == 0).any(1)]
    return ranks


_MOST_PAIRS = 1 << 14  # distinct pairs of N and m
_MOST_ATOMS = 1 << 19  # of all laws together
_MOST_VALUES = 1 << 17  # of all atoms: laws of one weight share them
_ATOMS = 128, 2048  # of one law, at least and at most
_TOLERANCE = 1e-9  # relative distance within which the mean reaches an atom
_ROUNDING = 4e-15


@dataclass(frozen=True)
class QueryPValue:
    """P(a mean over queries at least as good as the observed one, by chance).

    Attributes:
        log_p: its natural logarithm, in [-inf, 0].
        samples: 0 if it was computed from the law; else the number B of simulated outcomes, of which it counts those
            that are as good and the observed one, (1 + #) / (1 + B): valid, and never below 1 / (1 + B).
    """

    log_p: float
    samples: int = 0

    @property
    def p(self) -> float:
        """The p-value; 0.0 may be an underflow of ``log_p``."""
        return math.exp(self.log_p)

    @property
    def standard_error(self) -> float:
        """Of the simulation; 0 without one."""
        return math.sqrt(self.p * (1 - self.p) / self.samples) if self.samples else 0.0


def query_p_value(
    definition: "QueryDefinition",
    sample: QuerySample,
    *,
    samples: int = 10_000,
    seed: int = 0,
) -> QueryPValue:
    """Probability under random ranking of a mean over queries at least as good as that of a sample.

    The value is that of pessimistic ranks: each relevant item is last in its tie block. So P(p <= a) <= a for every tie
    structure, if moving a relevant item up never makes the metric worse.

    From the law of one query for recall, precision, success, the first hit and R-precision; for others where every
    query has one answer or so few candidates that its law can be listed (AUC: up to 2048 pairs). Else simulated.

    Args:
        definition: the metric.
        sample: the queries; those without a value are left out.
        samples: how many outcomes are simulated at most; fewer where they take more than 2^25 ranks.
        seed: of the simulation.

    Raises:
        ValueError: if no query has a value, or ``samples`` is below 1.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    value, moments = definition.value(sample, "pessimistic"), definition.null_moments(sample)
    if math.isnan(value):
        raise ValueError(f"{shown(definition.name)} needs a query that has a value to have a p-value")
    if moments.variance == 0:
        return QueryPValue(0.0)
    (N, m, weight), count = _merged(definition, sample)
    better = 1 if definition.higher_is_better else -1
    kind = definition.query_kind
    f, scale = kind.of_one_answer
    if (m == 1).all():
        task = RankDefinition(definition.name, f=f, optimum=None, higher_is_better=better > 0)
        return QueryPValue(log_p_value(task, value / scale, CandidateCounts.of(N, weight, count)))
    share = weight / float((weight * count).sum())
    slack = _TOLERANCE * abs(value - moments.mean) + _ROUNDING * abs(value)
    lists = _distributions(definition, N, m, len(np.unique(weight)))
    if lists is None:
        least = better * value - slack
        reached, drawn = simulated_tail(kind, N, m, better * share, count, least, samples, seed)
        return QueryPValue(math.log((1 + reached) / (1 + drawn)), drawn)
    if better < 0:
        turned = {id(one): (-one[0][::-1], one[1][::-1]) for one in lists}
        lists = [turned[id(one)] for one in lists]
    sums = ListedSummands(lists, share, count.astype(np.float64))
    return QueryPValue(min(log_upper_tail(sums, better * value, slack)[1], 0.0))


def _merged(definition: "QueryDefinition", sample: QuerySample) -> tuple[tuple[npt.NDArray[Any], ...], IntArray]:
    """Distinct (N, m, weight) of the queries that have a value, and how many have each."""
    used = (sample.weight > 0) & definition.has_value(sample.num_candidates, sample.num_answers)
    N, m = sample.num_candidates[used], sample.num_answers[used]
    return distinct_rows((N, m, in_range(sample.weight[used])), sample.count[used])


def _distributions(definition: "QueryDefinition", N: IntArray, m: IntArray, weights: int) -> Sequence[Atoms] | None:
    """Distributions of the queries; None if one is not known, or they are too many."""
    pairs = list(zip(N.tolist(), m.tolist(), strict=True))
    distinct = dict.fromkeys(pairs)
    if len(pairs) > _MOST_PAIRS:
        return None
    most = min(max(min(_MOST_ATOMS // len(pairs), _MOST_VALUES // weights), _ATOMS[0]), _ATOMS[1])
    found: dict[tuple[int, int], Atoms] = {}
    for pair in distinct:
        atoms = definition.query_kind.distribution(*pair, most)
        if atoms is None:
            return None
        found[pair] = atoms
    return [found[pair] for pair in pairs]
