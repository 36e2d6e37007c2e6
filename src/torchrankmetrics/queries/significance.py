"""p-values of query metrics, exact or simulated."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, IntArray, distinct_rows, in_range
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.null.p_values import log_p_value
from torchrankmetrics.null.tails.distribution import Atoms, ListedSummands
from torchrankmetrics.null.tails.upper import log_upper_tail
from torchrankmetrics.queries.kind import QueryKind
from torchrankmetrics.queries.sample import QuerySample, changes
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition

_BUDGET = 1 << 25  # ranks drawn in all
_FEWEST = 99  # outcomes, however many ranks they take
_BLOCK = 1 << 20  # ranks in memory at a time
_RARE = 10  # simulated outcomes below which the tail is estimated by importance sampling
_MOST_TILTED = 2000  # distinct queries
_LEVELS, _SHARES = 8, 4  # depths, and numbers of relevant items near the top, that a proposal mixes
_FEW_PAIRS = 64  # of N and m, beyond which a proposal mixes fewer
_DRAWS = 512, 1 << 15  # per pair of N and m, at least and at most
_PREFERENCES = 0.0, 4.0, 16.0, 1e9  # for the largest gain over the smallest, in the orders that a proposal mixes
_MOST_PAIRS = 1 << 14  # distinct pairs of N and m
_MOST_ATOMS = 1 << 19  # of all distributions together
_MOST_VALUES = 1 << 17  # of all atoms: distributions of one weight share them
_ATOMS = 128, 2048  # of one distribution, at least and at most
_TOLERANCE = 1e-9  # relative distance within which the mean reaches an atom
_ROUNDING = 4e-15


class Shape(NamedTuple):
    """What random ranking leaves of a query: N, m, and the gains (m,) of its relevant items; None: all are 1."""

    num_candidates: int
    num_answers: int
    gain: FloatArray | None = None


class Entries(NamedTuple):
    """Entries of a weighted sum of values X of queries, sum of c v X, in the order of their shapes."""

    shapes: list[Shape]  # distinct ones
    shape: IntArray  # (u,) the index of the shape of each entry, ascending
    weight: FloatArray  # (u,) v; below 0 if lower values are better
    number: IntArray  # (u,) c


@dataclass(frozen=True)
class QueryPValue:
    """P(a mean over queries at least as good as the observed one) under random ranking.

    If at least 10 of B simulated outcomes are as good as the observed one, p is (1 + their number) / (1 + B).
    """

    log_p: float  # natural logarithm, in [-inf, 0]
    samples: int = 0  # number B of simulated outcomes; 0 if p was computed
    log_error: float | None = None  # standard error of log_p if it is estimated by importance sampling

    @property
    def p(self) -> float:
        """The p-value; 0.0 may be an underflow of ``log_p``."""
        return math.exp(self.log_p)

    @property
    def standard_error(self) -> float:
        """Of the simulation; 0 without one."""
        if self.log_error is None:
            return math.sqrt(self.p * (1 - self.p) / self.samples) if self.samples else 0.0
        return self.p * self.log_error


def query_p_value(definition: "QueryDefinition", sample: QuerySample, samples: int = 10_000) -> QueryPValue:
    """Compute the probability under random ranking of a mean over queries at least as good as the sample's.

    Each relevant item is last in its tie block: P(p <= a) <= a for every tie structure, if moving a relevant item up
    never makes the metric worse. Without exact distributions of all queries, outcomes are simulated.
    """
    value, moments = definition.value(sample, "pessimistic"), definition.null_moments(sample)
    if math.isnan(value):
        raise ValueError(f"{shorten(definition.name)} needs a query that has a value to have a p-value")
    if moments.variance == 0:
        return QueryPValue(0.0)
    entries, kind = _entries(definition, sample), definition.kind
    shapes, of, weight, count = entries
    better = 1 if definition.higher_is_better else -1
    if all(shape.num_answers == 1 and shape.gain is None for shape in shapes):
        task = RankDefinition(definition.name, f=kind.f, optimum=None, higher_is_better=better > 0)
        N = np.array([shape.num_candidates for shape in shapes])[of]
        return QueryPValue(log_p_value(task, value / kind.scale, CandidateCounts.of(N, weight, count)))
    share = weight / float((weight * count).sum())
    slack = _TOLERANCE * abs(value - moments.mean) + _ROUNDING * abs(value)
    atoms = _distributions(kind, entries)
    if atoms is None:
        entries, least = entries._replace(weight=better * share), better * value - slack
        reached, drawn = simulated_tail(kind, entries, least, samples)
        log_p = math.log((1 + reached) / (1 + drawn))
        if reached >= _RARE or len(of) > _MOST_TILTED:
            return QueryPValue(log_p, drawn)
        log_tilted, error = tilted_tail(kind, entries, least)
        return QueryPValue(min(log_tilted + error, log_p), drawn, error)
    if better < 0:
        atoms = [(-values[::-1], probability[::-1]) for values, probability in atoms]
    sums = ListedSummands([atoms[i] for i in of.tolist()], share, count.astype(np.float64))
    return QueryPValue(log_upper_tail(sums, better * value, slack)[1])


def _entries(definition: "QueryDefinition", sample: QuerySample) -> Entries:
    """Distinct shapes and weights of the queries that have a value, and how many have each."""
    used = (sample.weight > 0) & definition.has_value(sample.num_candidates, sample.num_answers)
    of_gains, gains = _distinct_gains(sample, definition.kind.is_graded)
    columns = (sample.known_candidates[used], sample.num_answers[used], of_gains[used], in_range(sample.weight[used]))
    (N, m, of_gains, weight), count = distinct_rows(columns, sample.count[used])
    new = changes(N, m, of_gains)
    about = zip(N[new].tolist(), m[new].tolist(), of_gains[new].tolist(), strict=True)
    return Entries([Shape(n, k, gains[i]) for n, k, i in about], np.cumsum(new) - 1, weight, count)


def _distinct_gains(sample: QuerySample, is_graded: bool) -> tuple[IntArray, list[FloatArray | None]]:
    """The index of the gains of every query, and the distinct ones, each (m,), None for gains of 1."""
    if not is_graded:
        return np.zeros(len(sample), dtype=np.int64), [None]
    starts, _, gain, number = sample.levels
    found: dict[bytes, int] = {}
    of: list[int] = []
    gains: list[FloatArray | None] = []
    for own, times in zip(np.split(gain, starts[1:]), np.split(number, starts[1:]), strict=True):
        of.append(found.setdefault(own.tobytes() + times.tobytes(), len(found)))
        if of[-1] == len(gains):
            gains.append(None if (own == 1).all() else np.repeat(own, times))
    return np.array(of), gains


def _distributions(kind: QueryKind, entries: Entries) -> Sequence[Atoms] | None:
    """Distributions of the shapes; None if one is not known, or they are too many."""
    if len(entries.shape) > _MOST_PAIRS:
        return None
    few = min(_MOST_ATOMS // len(entries.shape), _MOST_VALUES // len(np.unique(entries.weight)))
    most = min(max(few, _ATOMS[0]), _ATOMS[1])
    found = []
    for N, m, gain in entries.shapes:
        atoms = kind.distribution(N, m, most, gain)
        if atoms is None:
            return None
        found.append(atoms)
    return found


def simulated_tail(kind: QueryKind, entries: Entries, least: float, samples: int) -> tuple[int, int]:
    """Simulate outcomes of the sum: how many are at least ``least``, and how many, at most ``samples``, were drawn."""
    random = np.random.default_rng(0)
    shapes, of, weight, count = entries
    ranks_of_one = sum(shapes[i].num_answers * c for i, c in zip(of.tolist(), count.tolist(), strict=True))
    samples = min(samples, max(_FEWEST, _BUDGET // ranks_of_one))
    totals = np.zeros(samples)
    ends = np.searchsorted(of, np.arange(len(shapes) + 1)).tolist()
    for shape, begin, end in zip(shapes, ends[:-1], ends[1:], strict=True):
        weights = np.repeat(weight[begin:end], count[begin:end])
        rows = max(1, _BLOCK // (shape.num_answers * len(weights)))
        for start in range(0, samples, rows):
            size = min(rows, samples - start)
            for block in range(0, len(weights), _BLOCK):
                some = weights[block : block + _BLOCK]
                values = drawn_values(kind, shape, random, size * len(some))
                totals[start : start + size] += (values.reshape(size, len(some)) * some).sum(1)
    return int((totals >= least).sum()), samples


def drawn_values(kind: QueryKind, shape: Shape, random: np.random.Generator, number: int) -> FloatArray:
    """Values of queries of a shape under random ranking, (number,)."""
    N, m, gain = shape
    ranks = random_subsets(random, N, m, number)
    gains = None if gain is None else random.permuted(np.tile(gain, (number, 1)), axis=1)
    return kind.values(QuerySample.ranked(ranks, N, gains))


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


def tilted_tail(kind: QueryKind, entries: Entries, least: float) -> tuple[float, float]:
    """Log P(sum of c v X >= least) by importance sampling toward the top, and the standard error of this logarithm.

    Each query's X is sampled from proposals with some relevant items among the first places, and large gains before
    small ones. These weighted samples are the distributions of the summands: the tail of their sum is computed as
    usual, and log p moves by K(t) at the saddlepoint t.
    """
    random = np.random.default_rng(0)
    shapes, of, share, count = entries
    m = np.array([shape.num_answers for shape in shapes])
    cost = np.bincount(of, count * m[of])
    draws = np.clip(_BUDGET / 8 * cost / cost.sum() / m, *_DRAWS).astype(int)
    better = 1 if share[0] > 0 else -1
    lists = []
    for (N, m_of_one, gain), size in zip(shapes, draws.tolist(), strict=True):
        ranks, weight = _near_the_top(random, N, m_of_one, size, len(shapes) > _FEW_PAIRS)
        if gain is not None:
            gain, ratio = _large_first(random, gain, len(ranks))
            weight = weight * ratio
        values = better * kind.values(QuerySample.ranked(ranks, N, gain))
        order = np.argsort(values, kind="stable")
        lists.append((values[order], weight[order]))
    sums = ListedSummands([lists[i] for i in of.tolist()], np.abs(share), count.astype(np.float64))
    log_p = log_upper_tail(sums, least, 0.0)[1]
    t = sums.saddlepoint(least)
    moved = [np.zeros(len(x)) for x, _ in lists]
    for i, v, c in zip(of.tolist(), np.abs(share).tolist(), count.tolist(), strict=True):
        x, w = lists[i]
        tilted = np.exp(t * v * (x - x[-1]))
        moved[i] += c * w * (tilted / np.average(tilted, weights=w) - 1)
    errors = [(one**2).mean() / len(one) / w.mean() ** 2 for one, (_, w) in zip(moved, lists, strict=True)]
    return min(log_p, 0.0), math.sqrt(sum(errors))


def _near_the_top(random: np.random.Generator, N: int, m: int, size: int, coarse: bool) -> tuple[IntArray, FloatArray]:
    """Draw m-subsets of 1..N, many near the top, and the ratio of their uniform to their proposal probability.

    A proposal draws m - j items from the first T places and j from the rest; T and j take a few values in equal parts.
    """
    depths = np.unique(np.rint(np.geomspace(m, N, _LEVELS // 2 if coarse else _LEVELS)).astype(np.int64)).tolist()
    rest = np.unique(np.rint(np.linspace(0, m, 3 if coarse else _SHARES + 1)).astype(np.int64)).tolist()
    mixture = [(depth, j) for depth in depths for j in rest]
    each = max(1, size // len(mixture))
    drawn = []
    for depth, j in mixture:
        top = random_subsets(random, depth, m - j, each) if j < m else np.empty((each, 0), dtype=np.int64)
        low = random_subsets(random, N - m + j, j, each) if j else np.empty((each, 0), dtype=np.int64)
        for k in range(m - j):
            low = low + (low >= top[:, k : k + 1])
        drawn.append(np.sort(np.concatenate([top, low], axis=1), axis=1))
    ranks = np.concatenate(drawn)
    logs = [
        _log_choices((ranks <= depth).sum(axis=1), m - j) - _log_choices(depth, m - j) - _log_choices(N - m + j, j)
        for depth, j in mixture
    ]
    density = np.logaddexp.reduce(np.array(logs), axis=0) - math.log(len(mixture))
    return ranks, np.exp(-_log_choices(N, m) - density)


def _large_first(random: np.random.Generator, gain: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Draw orders of gains (size, m), many with large ones first, and the ratio of their uniform to their probability.

    Orders are of Plackett and Luce, with log-weights in proportion to the gains: Plackett 1975 (doi:10.2307/2346567).
    The last proposal sorts the gains.
    """
    levels, number = np.unique(gain, return_counts=True)
    level = (gain - levels[0]) / max(levels[-1] - levels[0], 1e-300)
    preference = np.array(_PREFERENCES)[random.integers(len(_PREFERENCES), size=size), None]
    order = np.argsort(-(preference * level + random.gumbel(size=(size, len(gain)))), axis=1)
    level = level[order]
    logs = [
        (t * level - np.logaddexp.accumulate(t * level[:, ::-1], axis=1)[:, ::-1]).sum(axis=1)
        for t in _PREFERENCES[:-1]
    ]
    is_sorted = (np.diff(level, axis=1) <= 0).all(axis=1)
    logs.append(np.where(is_sorted, -sum(math.lgamma(c + 1) for c in number.tolist()), -np.inf))
    density = np.logaddexp.reduce(np.array(logs), axis=0) - math.log(len(logs))
    return gain[order], np.exp(-math.lgamma(len(gain) + 1) - density)


def _log_choices(n: npt.ArrayLike, k: int) -> FloatArray:
    """Log of the number of k-subsets of n items; -inf if n < k."""
    n = np.asarray(n, dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(n[..., None] - np.arange(k), 0.0)).sum(axis=-1)
    return np.asarray(logs - math.lgamma(k + 1))
