"""p-values of query metrics, exact or simulated."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import (
    CandidateCounts,
    FloatArray,
    IntArray,
    changes,
    distinct_rows,
    in_range,
)
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.null.p_values import log_p_value
from torchrankmetrics.null.tails.distribution import Atoms, Summands
from torchrankmetrics.null.tails.upper import log_upper_tail
from torchrankmetrics.queries.kind import QueryKind
from torchrankmetrics.queries.sample import QuerySample
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
    """Queries with equal N, m, and gains (m,) of their relevant items (None: all are 1): entries of a sum of c v X."""

    num_candidates: int
    num_answers: int
    gain: FloatArray | None
    weight: FloatArray  # (u,) v; below 0 if lower values are better
    number: IntArray  # (u,) c


def query_p_value(definition: "QueryDefinition", sample: QuerySample, samples: int = 10_000) -> tuple[float, float]:
    """Log p of a mean at least as good as the sample's, and the standard error of p if it is simulated.

    Each relevant item is last in its tie block: P(p <= a) <= a for every tie structure, if moving a relevant item up
    never makes the metric worse. Without exact distributions of all queries, outcomes are simulated: if at least 10
    of B are as good as the observed one, p is (1 + their number) / (1 + B).
    """
    value, moments = definition.value(sample, "pessimistic"), definition.null_moments(sample)
    if math.isnan(value):
        raise ValueError(f"{shorten(definition.name)} needs a query that has a value to have a p-value")
    if moments.variance == 0:
        return 0.0, 0.0
    kind, better = definition.kind, 1 if definition.higher_is_better else -1
    shapes = _shapes(definition, sample)
    of = [shape for shape in shapes for _ in shape.weight]
    weight, count = (np.concatenate([shape[i] for shape in shapes]) for i in (3, 4))
    if all(shape.num_answers == 1 and shape.gain is None for shape in shapes):
        task = RankDefinition(definition.name, f=kind.f, optimum=None, higher_is_better=better > 0)
        counts = CandidateCounts.of([shape.num_candidates for shape in of], weight, count)
        return log_p_value(task, value / kind.scale, counts), 0.0
    total = float((weight * count).sum())
    slack = _TOLERANCE * abs(value - moments.mean) + _ROUNDING * abs(value)
    atoms = _distributions(kind, shapes)
    if atoms is None:
        shapes = [shape._replace(weight=better * (shape.weight / total)) for shape in shapes]
        reached, drawn = simulated_tail(kind, shapes, better * value - slack, samples)
        log_p = math.log((1 + reached) / (1 + drawn))
        p = math.exp(log_p)
        if reached >= _RARE or len(of) > _MOST_TILTED:
            return log_p, math.sqrt(p * (1 - p) / drawn)
        log_tilted, error = tilted_tail(kind, shapes, better * value - slack)
        log_p = min(log_tilted + error, log_p)
        return log_p, math.exp(log_p) * error
    if better < 0:
        atoms = [(-values[::-1], probability[::-1]) for values, probability in atoms]
    of_atoms = [one for one, shape in zip(atoms, shapes, strict=True) for _ in shape.weight]
    sums = Summands(of_atoms, weight / total, count.astype(np.float64))
    return log_upper_tail(sums, better * value, slack)[1], 0.0


def _shapes(definition: "QueryDefinition", sample: QuerySample) -> list[Shape]:
    """Distinct shapes of the queries that have a value, their distinct weights, and how many have each."""
    used = (sample.weight > 0) & definition.has_value(sample.num_candidates, sample.num_answers)
    of_gains, gains = _distinct_gains(sample, definition.kind.is_graded)
    columns = (sample.known_candidates[used], sample.num_answers[used], of_gains[used], in_range(sample.weight[used]))
    (N, m, of_gains, weight), count = distinct_rows(columns, sample.count[used])
    ends = [*np.flatnonzero(changes(N, m, of_gains)).tolist(), len(N)]
    return [Shape(int(N[i]), int(m[i]), gains[of_gains[i]], weight[i:j], count[i:j]) for i, j in pairwise(ends)]


def _distinct_gains(sample: QuerySample, is_graded: bool) -> tuple[IntArray, list[FloatArray | None]]:
    """The index of the gains of every query, and the distinct ones, each (m,), None for gains of 1."""
    if not is_graded:
        return np.zeros(len(sample), dtype=np.int64), [None]
    starts, _, gain, number = sample.levels
    gains = [np.repeat(*own) for own in zip(np.split(gain, starts[1:]), np.split(number, starts[1:]), strict=True)]
    found: dict[bytes, int] = {}
    of = np.array([found.setdefault(one.tobytes(), len(found)) for one in gains])
    distinct = [gains[i] for i in np.unique(of, return_index=True)[1]]
    return of, [None if (one == 1).all() else one for one in distinct]


def _distributions(kind: QueryKind, shapes: list[Shape]) -> list[Atoms] | None:
    """Distributions of the shapes; None if one is not known, or they are too many."""
    entries = sum(len(shape.weight) for shape in shapes)
    if entries > _MOST_PAIRS:
        return None
    few = min(_MOST_ATOMS // entries, _MOST_VALUES // len(np.unique(np.concatenate([one.weight for one in shapes]))))
    most = min(max(few, _ATOMS[0]), _ATOMS[1])
    found = []
    for N, m, gain, *_ in shapes:
        if (atoms := kind.distribution(N, m, most, gain)) is None:
            return None
        found.append(atoms)
    return found


def simulated_tail(kind: QueryKind, shapes: list[Shape], least: float, samples: int) -> tuple[int, int]:
    """Simulate outcomes of the sum: how many are at least ``least``, and how many, at most ``samples``, were drawn."""
    random = np.random.default_rng(0)
    ranks_of_one = sum(shape.num_answers * int(shape.number.sum()) for shape in shapes)
    samples = min(samples, max(_FEWEST, _BUDGET // ranks_of_one))
    totals = np.zeros(samples)
    for N, m, gain, weight, number in shapes:
        weights = np.repeat(weight, number)
        rows = max(1, _BLOCK // (m * len(weights)))
        for start in range(0, samples, rows):
            size = min(rows, samples - start)
            for block in range(0, len(weights), _BLOCK):
                some = weights[block : block + _BLOCK]
                ranks = random_subsets(random, N, m, size * len(some))
                gains = None if gain is None else random.permuted(np.tile(gain, (len(ranks), 1)), axis=1)
                values = kind.values(QuerySample.ranked(ranks, N, gains))
                totals[start : start + size] += (values.reshape(size, len(some)) * some).sum(1)
    return int((totals >= least).sum()), samples


def random_subsets(random: np.random.Generator, N: int, m: int, rows: int) -> IntArray:
    """Uniform m-subsets of 1..N, ascending, (rows, m) int64."""
    if 2 * m > N:  # what is left out
        chosen = np.ones((rows, N), dtype=bool)
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


def tilted_tail(kind: QueryKind, shapes: list[Shape], least: float) -> tuple[float, float]:
    """Log P(sum of c v X >= least) by importance sampling toward the top, and the standard error of this logarithm."""
    # Samples of each X, with some relevant items among the first places and large gains before small ones, are with
    # their weights the distributions of the summands: of their sum the tail is computed as usual.
    random = np.random.default_rng(0)
    m = np.array([shape.num_answers for shape in shapes])
    cost = m * np.array([shape.number.sum() for shape in shapes])
    draws = np.clip(_BUDGET / 8 * cost / cost.sum() / m, *_DRAWS).astype(int)
    better = 1 if shapes[0].weight[0] > 0 else -1
    lists = []
    for (N, m_of_one, gain, *_), size in zip(shapes, draws.tolist(), strict=True):
        ranks, weight = _near_the_top(random, N, m_of_one, size, len(shapes) > _FEW_PAIRS)
        if gain is not None:
            gain, ratio = _large_first(random, gain, len(ranks))
            weight = weight * ratio
        values = better * kind.values(QuerySample.ranked(ranks, N, gain))
        order = np.argsort(values, kind="stable")
        lists.append((values[order], weight[order]))
    of = [one for one, shape in zip(lists, shapes, strict=True) for _ in shape.weight]
    share, count = (np.concatenate([shape[i] for shape in shapes]) for i in (3, 4))
    sums = Summands(of, np.abs(share), count.astype(np.float64))
    log_p = log_upper_tail(sums, least, 0.0)[1]
    t, errors = sums.saddlepoint(least), 0.0  # log p moves by K(t) at the saddlepoint
    for (x, w), shape in zip(lists, shapes, strict=True):
        moved = np.zeros(len(x))
        for v, c in zip(np.abs(shape.weight).tolist(), shape.number.tolist(), strict=True):
            tilted = np.exp(t * v * (x - x[-1]))
            moved += c * w * (tilted / np.average(tilted, weights=w) - 1)
        errors += (moved**2).mean() / len(moved) / w.mean() ** 2
    return min(log_p, 0.0), math.sqrt(errors)


def _near_the_top(random: np.random.Generator, N: int, m: int, size: int, coarse: bool) -> tuple[IntArray, FloatArray]:
    """Draw m-subsets of 1..N, many near the top, and the ratio of their uniform to their proposal probability."""
    # m - j items of the first T places and j of the rest, for a few values of T and j in equal parts
    depths = np.unique(np.rint(np.geomspace(m, N, _LEVELS // 2 if coarse else _LEVELS)).astype(np.int64)).tolist()
    rest = np.unique(np.rint(np.linspace(0, m, 3 if coarse else _SHARES + 1)).astype(np.int64)).tolist()
    mixture = [(depth, j) for depth in depths for j in rest]
    each = max(1, size // len(mixture))
    drawn = []
    for depth, j in mixture:
        top = random_subsets(random, depth, m - j, each)
        low = random_subsets(random, max(N - m + j, 1), j, each)
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
    """Draw orders of gains (size, m), many with large ones first, and the ratio of their probabilities."""
    # Plackett 1975 (doi:10.2307/2346567), log-weights in proportion to the gains; the last proposal sorts the gains
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
