"""p-values of query metrics, exact or simulated."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.sample import (
    FloatArray,
    IntArray,
    changes,
    distinct_rows,
    in_range,
)
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.null.p_values import log_p_value
from torchrankmetrics.null.tails.summands import Atoms, Summands, listed_summands
from torchrankmetrics.null.tails.upper import log_upper_tail
from torchrankmetrics.queries.kind import QueryKind
from torchrankmetrics.queries.sample import QuerySample, random_subsets
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
# for the largest gain over the smallest, in the orders that a proposal mixes
_PREFERENCES = 0.0, 4.0, 16.0, 1e9
_MOST_PAIRS = 1 << 14  # distinct pairs of N and m
_MOST_ATOMS = 1 << 19  # of all distributions together
_MOST_VALUES = 1 << 17  # of all atoms: distributions of one weight share them
_ATOMS = 128, 2048  # of one distribution, at least and at most
_TOLERANCE = 1e-9  # relative distance within which the mean reaches an atom
_ROUNDING = 4e-15


class Terms(NamedTuple):
    """A sum of c v X: queries with equal N, m, and gains (m,) of their relevant items have the same X."""

    shapes: list[tuple[int, int, FloatArray | None]]  # N, m and gains (None: all are 1)
    of: IntArray  # (u,) index of the shape
    weight: FloatArray  # (u,) v; below 0 if lower values are better
    number: IntArray  # (u,) c


def query_p_value(
    definition: "QueryDefinition", sample: QuerySample, samples: int = 10_000
) -> tuple[float, float]:
    """Log p of a mean at least as good as the sample's, and the standard error of p if it is simulated.

    Each relevant item is last in its tie block: P(p <= a) <= a for every tie structure, if moving a
    relevant item up never makes the metric worse. Without exact distributions of all queries,
    outcomes are simulated: if at least 10 of B are as good as the observed one, p is (1 + their
    number) / (1 + B).
    """
    sample = sample.take(definition.used(sample))
    value, moments = definition.value(sample, "pessimistic"), definition.null_moments(sample)
    if math.isnan(value):
        raise ValueError(
            f"{shorten(definition.name)} needs a query that has a value to have a p-value"
        )
    if moments.variance == 0:
        return 0.0, 0.0
    kind, better = definition.kind, 1 if definition.higher_is_better else -1
    terms = _terms(sample, kind.is_graded)
    if all(m == 1 and gain is None for _, m, gain in terms.shapes):
        task = RankDefinition(definition.name, f=kind.f, optimum=None, higher_is_better=better > 0)
        return log_p_value(task, value / kind.scale, sample.first_ranks.candidate_counts), 0.0
    slack = _TOLERANCE * abs(value - moments.mean) + _ROUNDING * abs(value)
    atoms = _distributions(kind, terms)
    terms = terms._replace(
        weight=better * (terms.weight / float((terms.weight * terms.number).sum()))
    )
    if atoms is not None:
        if better < 0:
            atoms = [(-values[::-1], probability[::-1]) for values, probability in atoms]
        return log_upper_tail(_sum(terms, atoms), better * value, slack)[1], 0.0
    reached, drawn = simulated_tail(kind, terms, better * value - slack, samples)
    log_p = math.log((1 + reached) / (1 + drawn))
    p = math.exp(log_p)
    if reached >= _RARE or len(terms.of) > _MOST_TILTED:
        return log_p, math.sqrt(p * (1 - p) / drawn)
    log_tilted, error = tilted_tail(kind, terms, better * value - slack)
    log_p = min(log_tilted + error, log_p)
    return log_p, math.exp(log_p) * error


def _terms(sample: QuerySample, is_graded: bool) -> Terms:
    """Distinct shapes of queries, their distinct weights, and how many have each."""
    gains: list[FloatArray | None] = [None]
    of_gains = np.zeros(len(sample), dtype=np.int64)
    if is_graded:
        starts, _, gain, number = sample.levels
        levels = zip(np.split(gain, starts[1:]), np.split(number, starts[1:]), strict=True)
        found: dict[bytes, int] = {}
        of_gains = np.array(
            [found.setdefault(np.repeat(*own).tobytes(), len(found)) for own in levels]
        )
        gains = [None if (one == 1).all() else one for one in map(np.frombuffer, found)]
    columns = (sample.known_candidates, sample.num_answers, of_gains, in_range(sample.weight))
    (*shape, weight), count = distinct_rows(columns, sample.count)
    first = changes(*shape)
    shapes = [
        (N, m, gains[i])
        for N, m, i in zip(*(column[first].tolist() for column in shape), strict=True)
    ]
    return Terms(shapes, np.cumsum(first) - 1, weight, count)


def _distributions(kind: QueryKind, terms: Terms) -> list[Atoms] | None:
    """Distributions of the shapes; None if one is not known, or they are too many."""
    if len(terms.of) > _MOST_PAIRS:
        return None
    few = min(_MOST_ATOMS // len(terms.of), _MOST_VALUES // len(np.unique(terms.weight)))
    most = min(max(few, _ATOMS[0]), _ATOMS[1])
    found = []
    for N, m, gain in terms.shapes:
        if (atoms := kind.distribution(N, m, most, gain)) is None:
            return None
        found.append(atoms)
    return found


def _sum(terms: Terms, atoms: list[Atoms]) -> Summands:
    return listed_summands(atoms, terms.of, np.abs(terms.weight), terms.number.astype(np.float64))


def simulated_tail(kind: QueryKind, terms: Terms, least: float, samples: int) -> tuple[int, int]:
    """Simulate outcomes of the sum: how many are at least ``least``, and how many, at most ``samples``, were drawn."""
    random = np.random.default_rng(0)
    ranks_of_one = sum(
        terms.shapes[i][1] * number
        for i, number in zip(terms.of, terms.number.tolist(), strict=True)
    )
    totals = np.zeros(min(samples, max(_FEWEST, _BUDGET // ranks_of_one)))
    for shape, (N, m, gain) in enumerate(terms.shapes):
        weights = np.repeat(terms.weight[terms.of == shape], terms.number[terms.of == shape])
        rows = max(1, _BLOCK // (m * len(weights)))
        for part in np.split(totals, range(rows, len(totals), rows)):  # views
            for block in range(0, len(weights), _BLOCK):
                some = weights[block : block + _BLOCK]
                ranks = random_subsets(random, N, m, len(part) * len(some))
                gains = (
                    None
                    if gain is None
                    else random.permuted(np.tile(gain, (len(ranks), 1)), axis=1)
                )
                values = kind.values(QuerySample.ranked(ranks, N, gains))
                part += (values.reshape(len(part), len(some)) * some).sum(1)
    return int((totals >= least).sum()), len(totals)


def tilted_tail(kind: QueryKind, terms: Terms, least: float) -> tuple[float, float]:
    """Log P(sum of c v X >= least) by importance sampling toward the top, and the standard error of this logarithm."""
    # Samples of each X, with some relevant items among the first places and large gains before
    # small ones, are with their weights the distributions of the summands: of their sum the tail is
    # computed as usual.
    random = np.random.default_rng(0)
    m = np.array([m for _, m, _ in terms.shapes])
    cost = m * np.bincount(terms.of, terms.number)
    draws = np.clip(_BUDGET / 8 * cost / cost.sum() / m, *_DRAWS).astype(int)
    lists = []
    for (N, m_of_one, gain), size in zip(terms.shapes, draws.tolist(), strict=True):
        ranks, weight = _near_the_top(random, N, m_of_one, size, len(terms.shapes) > _FEW_PAIRS)
        if gain is not None:
            gain, ratio = _large_first(random, gain, len(ranks))
            weight = weight * ratio
        values = np.sign(terms.weight[0]) * kind.values(QuerySample.ranked(ranks, N, gain))
        order = np.argsort(values, kind="stable")
        lists.append((values[order], weight[order]))
    sums = _sum(terms, lists)
    log_p = log_upper_tail(sums, least, 0.0)[1]
    # log p moves by K(t) at the saddlepoint
    (t, _), errors = sums.transform.saddlepoint(least, sums.bottom), 0.0
    for shape, (x, w) in enumerate(lists):
        moved, here = np.zeros(len(x)), terms.of == shape
        for v, c in zip(terms.weight[here].tolist(), terms.number[here].tolist(), strict=True):
            tilted = np.exp(t * abs(v) * (x - x[-1]))
            moved += c * w * (tilted / np.average(tilted, weights=w) - 1)
        errors += (moved**2).mean() / len(moved) / w.mean() ** 2
    return min(log_p, 0.0), math.sqrt(errors)


def _near_the_top(
    random: np.random.Generator, N: int, m: int, size: int, coarse: bool
) -> tuple[IntArray, FloatArray]:
    """Draw m-subsets of 1..N, many near the top, and the ratio of their uniform to their proposal probability."""
    # m - j items of the first T places and j of the rest, for a few values of T and j in equal
    # parts
    depths = np.unique(
        np.rint(np.geomspace(m, N, _LEVELS // 2 if coarse else _LEVELS)).astype(np.int64)
    ).tolist()
    rest = np.unique(
        np.rint(np.linspace(0, m, 3 if coarse else _SHARES + 1)).astype(np.int64)
    ).tolist()
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
        _log_choices((ranks <= depth).sum(axis=1), m - j)
        - _log_choices(depth, m - j)
        - _log_choices(N - m + j, j)
        for depth, j in mixture
    ]
    density = np.logaddexp.reduce(np.array(logs), axis=0) - math.log(len(mixture))
    return ranks, np.exp(-_log_choices(N, m) - density)


def _large_first(
    random: np.random.Generator, gain: FloatArray, size: int
) -> tuple[FloatArray, FloatArray]:
    """Draw orders of gains (size, m), many with large ones first, and the ratio of their probabilities."""
    # Plackett 1975 (doi:10.2307/2346567), log-weights in proportion to the gains; the last proposal
    # sorts the gains
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
