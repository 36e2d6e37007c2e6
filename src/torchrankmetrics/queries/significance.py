"""p-values of query metrics, exact or simulated."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchrankmetrics.definitions.sample import (
    FloatArray,
    IntArray,
    Moments,
    changes,
    distinct_rows,
    in_range,
)
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import EQUAL
from torchrankmetrics.null.tails.lists import Atoms, ListedValues
from torchrankmetrics.null.tails.upper import log_upper_tail
from torchrankmetrics.queries.kind import QueryKind
from torchrankmetrics.queries.sample import QuerySample, random_subsets
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition

_BUDGET = 1 << 25  # ranks drawn in all
_FEWEST = 99  # outcomes, however many ranks they take
_BLOCK = 1 << 20  # ranks in memory at a time
# groups of queries with equal N, m, gains and weight, whose distributions are listed
_MOST_GROUPS = 1 << 14
_MOST_ATOMS = 1 << 19  # of all distributions together
_ATOMS = 128, 2048  # of one distribution, at least and at most


class Terms(NamedTuple):
    """A sum of c v X; queries with equal N, m and gains of relevant items have the same X."""

    shapes: list[tuple[int, int, FloatArray | None]]  # N, m and gains (None: all are 1)
    of: IntArray  # (u,) index of the shape
    weight: FloatArray  # (u,) v; below 0 if lower values are better
    number: IntArray  # (u,) c


def query_p_value(
    definition: "QueryDefinition", sample: QuerySample, samples: int = 10_000
) -> tuple[float, float]:
    """Log p of a mean at least as good as the sample's, and the error of p.

    Each relevant item is last in its tie block: P(p <= a) <= a for every tie structure, if moving a
    relevant item up never makes the metric worse. The null distributions of the queries are listed
    if the kind of metric knows them all, or if they have few outcomes. Else B outcomes are
    simulated: p is (1 + number at least as good) / (1 + B). The best value has the exact
    probability of the best orders, if the kind of metric counts them.
    """
    sample = sample.take(definition.used(sample))
    value = definition.value(sample, "pessimistic")
    moments = definition.null_moments(sample)
    if math.isnan(value):
        raise ValueError(
            f"{shorten(definition.name)} needs a query that has a value to have a p-value"
        )
    if moments.variance == 0:
        return 0.0, 0.0
    kind = definition.kind
    terms = _terms(sample, kind.is_graded)
    task = _as_task(definition, terms)
    if task is not None:
        return task.log_p_value(sample.first_ranks)

    slack = EQUAL[0] * abs(value - moments.mean) + EQUAL[1] * abs(value)
    better = 1 if definition.higher_is_better else -1
    terms = _shares(terms, better)
    lists = _distributions(kind, terms)
    if lists is not None:
        return _tail_of_lists(lists, terms, better, value, slack)
    if _is_best(better, value, slack, moments):
        log_p = _log_best(kind, terms)
        if log_p is not None:
            return log_p, 0.0
    return _simulated_p(kind, terms, better * value - slack, samples)


def _as_task(definition: "QueryDefinition", terms: Terms) -> RankDefinition | None:
    """The same metric of ranking tasks; None if it is unknown.

    Every query must have one relevant item.
    """
    if not all(m == 1 and gain is None for _, m, gain in terms.shapes):
        return None
    task = definition.kind.as_task()
    if task is None:
        return None
    return replace(task, higher_is_better=definition.higher_is_better)


def _shares(terms: Terms, better: int) -> Terms:
    """Weights that sum to 1, or to -1 if lower values are better."""
    total = float((terms.weight * terms.number).sum())
    return terms._replace(weight=better * (terms.weight / total))


def _is_best(better: int, value: float, slack: float, moments: Moments) -> bool:
    """Whether a value is the best one, which is better than the mean."""
    best = moments.optimum
    if best is None:
        return False
    return better * value >= better * best - slack > better * moments.mean


def _simulated_p(kind: QueryKind, terms: Terms, least: float, samples: int) -> tuple[float, float]:
    """Log of (1 + number at least as good) / (1 + simulations), and its standard error."""
    reached, drawn = simulated_tail(kind, terms, least, samples)
    p = (1 + reached) / (1 + drawn)
    return math.log(p), math.sqrt(p * (1 - p) / drawn)


def _tail_of_lists(
    lists: list[Atoms], terms: Terms, better: int, value: float, slack: float
) -> tuple[float, float]:
    """Logarithm of the p-value from known distributions, and its error."""
    if better < 0:
        lists = [(-values[::-1], probability[::-1]) for values, probability in lists]
    number = terms.number.astype(np.float64)
    weight = np.abs(terms.weight)
    values = ListedValues(lists)
    tail = log_upper_tail(values, terms.of, weight, number, better * value, slack)
    return tail.log_p, math.exp(tail.log_p) * tail.error


def _terms(sample: QuerySample, is_graded: bool) -> Terms:
    """Distinct shapes of queries, their distinct weights, and how many have each."""
    gains: list[FloatArray | None] = [None]
    of_gains = np.zeros(len(sample), dtype=np.int64)
    if is_graded:
        gains, of_gains = _distinct_gains(sample)
    columns = (sample.known_candidates, sample.num_relevant, of_gains, in_range(sample.weight))
    (*shape, weight), count = distinct_rows(columns, sample.count)
    first = changes(*shape)
    distinct = zip(*np.stack(shape)[:, first].tolist(), strict=True)
    shapes = [(N, m, gains[i]) for N, m, i in distinct]
    return Terms(shapes, np.cumsum(first) - 1, weight, count)


def _distinct_gains(sample: QuerySample) -> tuple[list[FloatArray | None], IntArray]:
    """Distinct gains of the relevant items of queries, and which of them each query has.

    None instead of gains that are all 1.
    """
    starts, _, gain, number = sample.levels
    levels = zip(np.split(gain, starts[1:]), np.split(number, starts[1:]), strict=True)
    found: dict[bytes, int] = {}
    index = [found.setdefault(np.repeat(*own).tobytes(), len(found)) for own in levels]
    gains = [_unless_binary(np.frombuffer(one)) for one in found]
    return gains, np.array(index)


def _unless_binary(gain: FloatArray) -> FloatArray | None:
    return None if (gain == 1).all() else gain


def _distributions(kind: QueryKind, terms: Terms) -> list[Atoms] | None:
    """Distributions of the shapes; None if one is not known, or they are too many."""
    if len(terms.of) > _MOST_GROUPS:
        return None
    most = min(max(_MOST_ATOMS // len(terms.of), _ATOMS[0]), _ATOMS[1])
    found = []
    for N, m, gain in terms.shapes:
        atoms = kind.distribution(N, m, most, gain)
        if atoms is None:
            return None
        found.append(atoms)
    return found


def _log_best(kind: QueryKind, terms: Terms) -> float | None:
    """Log of the probability that all queries have their best value; None if it is unknown."""
    total = 0.0
    number = np.bincount(terms.of, terms.number)
    for (N, m, gain), times in zip(terms.shapes, number.tolist(), strict=True):
        log_p = kind.log_best(N, m, gain)
        if log_p is None:
            return None
        total += times * log_p
    return total


def simulated_tail(kind: QueryKind, terms: Terms, least: float, samples: int) -> tuple[int, int]:
    """Number of simulated sums of at least ``least``, and number of simulations (<= samples)."""
    random = np.random.default_rng(0)
    totals = np.zeros(min(samples, max(_FEWEST, _BUDGET // _num_ranks(terms))))
    for i, shape in enumerate(terms.shapes):
        is_own = terms.of == i
        weights = np.repeat(terms.weight[is_own], terms.number[is_own])
        rows = max(1, _BLOCK // (shape[1] * len(weights)))
        for part in np.split(totals, range(rows, len(totals), rows)):  # views
            for block in range(0, len(weights), _BLOCK):
                some = weights[block : block + _BLOCK]
                values = _draw(random, kind, shape, len(part) * len(some))
                part += (values.reshape(len(part), len(some)) * some).sum(1)
    return int((totals >= least).sum()), len(totals)


def _num_ranks(terms: Terms) -> int:
    """Number of ranks of one simulation: of all relevant items."""
    m = np.array([m for _, m, _ in terms.shapes])
    return int((m[terms.of] * terms.number).sum())


def _draw(
    random: np.random.Generator,
    kind: QueryKind,
    shape: tuple[int, int, FloatArray | None],
    number: int,
) -> FloatArray:
    """Values of randomly ranked queries of one shape, (number,)."""
    N, m, gain = shape
    ranks = random_subsets(random, N, m, number)
    gains = None
    if gain is not None:
        gains = random.permuted(np.tile(gain, (number, 1)), axis=1)
    return kind.values(QuerySample.ranked(ranks, N, gains))
