"""`ExpectationProvider`, the protocol of null moments; enumeration and simulation."""

from __future__ import annotations  # help() shows the names of types

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import (
    CandidateCounts,
    FloatArray,
    Moments,
    Sample,
    in_range,
)
from torchrankmetrics.definitions.tasks import RankDefinition, aggregate
from torchrankmetrics.definitions.transforms import apply_transform, as_transform
from torchrankmetrics.errors import RankMetricError
from torchrankmetrics.validation import check_int, shorten

LIMIT = 2_000_000  # rank vectors to enumerate
_BLOCK = 1 << 20  # ranks in memory at a time


@runtime_checkable
class ExpectationProvider(Protocol):
    """Anything that computes the null mean and variance of a metric from a definition and counts.

    The null of ranking tasks: rank i is uniform on {1..N_i}, independently of the others. The null
    of queries: the m relevant items of a query are on any of its N places equally likely. A
    provider may also compute moments of another null.

    >>> from torchrankmetrics import RankMetric
    >>> from torchrankmetrics.null import MonteCarloExpectation
    >>> provider = MonteCarloExpectation(samples=1000, seed=0)
    >>> RankMetric("adjusted_mrr", expectation=provider).moments([3, 5])
    Moments(mean=0.5223833333333333, variance=0.04021225419864309)
    """

    def moments(
        self,
        definition: Definition,
        counts: npt.ArrayLike | CandidateCounts | Sample,
        weight: npt.ArrayLike | None = None,
    ) -> Moments:
        """Return the null mean and variance of the metric.

        The variance is exactly 0 if the metric cannot vary.

        Args:
            definition (RankDefinition or QueryDefinition): the metric. ``definition.of_tasks`` is
                None for a metric of queries.
            counts (array-like or CandidateCounts): (n,) integers N_i >= 1, or a compressed
                ``CandidateCounts``; for a metric of queries a ``QuerySample``. Metrics pass either
                of these classes, without weight. Both have int64 ``num_candidates`` and ``count``,
                float64 ``weight`` of one task or query, and ``at_random(generator)``, which returns
                an input of ``definition.value`` with random ranks. A ``QuerySample`` has int64
                ``num_relevant``, the number m of relevant items, too.
            weight (array-like, default None): (n,) weights w_i >= 0; None: equal.

        Raises:
            ExpectationUnavailableError: if this provider has no moments for the definition and
                counts.
            TypeError, ValueError: if counts or weights are invalid.
        """
        ...

    def supports(self, definition: Definition) -> bool:
        """Return whether ``moments`` serves this definition, for at least some counts."""
        ...


def check_provider(provider: Any) -> None:
    """Raise TypeError for an object that is not a provider."""
    calls = {"moments": "moments(definition, counts, weight)", "supports": "supports(definition)"}
    missing = [call for name, call in calls.items() if not callable(getattr(provider, name, None))]
    if missing or isinstance(provider, type):
        raise TypeError(
            f"expectation must be an instance with the methods {' and '.join(calls.values())}, got "
            f"{shorten(provider)}"
            + (f" without {' and '.join(missing)}" if missing else ", a class")
        )


class ExpectationUnavailableError(RankMetricError):
    """The null moments of a metric are not known; the message names an alternative."""


class CachedExpectation(ExpectationProvider):
    """Moments of ``_cached`` for the tasks on which a metric has a value.

    Copies of a metric share the results.
    """

    _cached: Callable[[Any, CandidateCounts], Moments]

    def _of_queries(self, definition: Any, queries: Any) -> Moments:
        raise NotImplementedError

    def moments(
        self,
        definition: Any,
        counts: npt.ArrayLike | CandidateCounts | Sample,
        weight: npt.ArrayLike | None = None,
    ) -> Moments:
        """Null mean and variance; arguments and errors as in ``ExpectationProvider.moments``."""
        if definition.of_tasks is None:
            return self._of_queries(definition, counts)
        counts = CandidateCounts.of(counts, weight)
        if not definition.has_null:
            raise unavailable(definition)
        counts = counts.at_least(definition.min_candidates)
        return self._cached(definition, counts) if counts.num_tasks else Moments(math.nan, 0.0)

    def supports(self, definition: Definition) -> bool:
        """Whether the null is defined: every such metric has moments for at least small counts."""
        return definition.has_null


def unavailable(
    definition: Definition,
    why: str = "has no exact expectation",
    instead: str = "pass expectation=MonteCarloExpectation(samples=10_000, seed=0) for an estimate",
) -> ExpectationUnavailableError:
    """Build the error that names the metric and an alternative."""
    if not definition.has_null:
        why = "has no null distribution given by candidate counts"
        instead = "use view='base'"
    return ExpectationUnavailableError(f"{shorten(definition.name)} {why}; {instead}")


def enumeration(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Moments over all rank vectors, of any metric.

    None if the product of the N_i exceeds ``LIMIT``.
    """
    free = counts.num_candidates > 1
    log_vectors = (counts.count[free] * np.log(counts.num_candidates[free])).sum()
    if log_vectors > math.log(LIMIT) + 1e-9:
        return None
    size = np.repeat(counts.num_candidates[free], counts.count[free])
    weight = np.repeat(counts.weight[free], counts.count[free])

    # tasks with one candidate have rank 1: one entry of their total weight is the same sample
    fixed = float((counts.weight[~free] * counts.count[~free]).sum())
    if fixed:
        size = np.append(size, 1)
        weight = np.append(weight, fixed)
    return _moments(_values_of_all(definition, size.tolist(), weight), ddof=0)


def _values_of_all(definition: RankDefinition, sizes: list[int], weight: FloatArray) -> FloatArray:
    """Values of the metric for all rank vectors of tasks with these numbers of candidates."""
    tables = {
        n: apply_transform(as_transform(definition.f).at(n), np.arange(1, n + 1, dtype=np.float64))
        for n in sizes
    }
    values = np.empty(math.prod(sizes))
    block = max(1, _BLOCK // len(sizes))
    for begin in range(0, len(values), block):
        end = min(begin + block, len(values))
        index = np.unravel_index(np.arange(begin, end), sizes)
        transformed = np.stack([tables[n][i] for n, i in zip(sizes, index, strict=True)])
        outcomes = aggregate(definition, transformed, weight)
        values[begin:end] = apply_transform(definition.g, outcomes, "g")
    return values


def _moments(values: FloatArray, ddof: int) -> Moments:
    """Mean and variance of outcomes (m,); the variance is exactly zero if all are equal."""
    if values.min() == values.max():
        return Moments(float(values[0]), 0.0)
    mean = values.mean()
    residual = values - mean
    # the second term corrects for the rounding of the mean
    variance = ((residual**2).sum() - residual.sum() ** 2 / len(values)) / (len(values) - ddof)
    return Moments(float(mean), float(variance))


@dataclass(frozen=True)
class _QuerySampleKey:
    """A metric and the queries that it is of, which are equal if their digests are."""

    definition: Any
    digest: bytes
    queries: Any = field(compare=False)


class MonteCarloExpectation(CachedExpectation):
    """Estimate null moments from random rankings.

    The same seed gives the same numbers in any order of calls.

    The mean has standard error sqrt(V / samples), the variance about V sqrt(2 / samples) for a
    nearly normal metric.

    Args:
        samples (int, default 10000): number of random rankings of all tasks or queries, at least 2.
        seed (int, default 0): seed of NumPy's default generator, >= 0.

    Raises:
        TypeError, ValueError: if ``samples`` or ``seed`` is not an integer, or below its least
            value.

    >>> from torchrankmetrics.null import MonteCarloExpectation
    >>> from torchrankmetrics.definitions.tasks import MEAN_RANK
    >>> moments = MonteCarloExpectation(samples=10_000).moments(MEAN_RANK, [3, 5])
    >>> round(moments.mean, 1)  # exact: 2.5
    2.5
    """

    def __init__(self, samples: int = 10_000, seed: int = 0) -> None:
        self.samples = check_int("samples", samples, 2)
        self.seed = check_int("seed", seed, 0)
        self._cached = functools.lru_cache(512)(self._simulate)
        self._cached_of_queries = functools.lru_cache(512)(self._simulate_queries)

    def __reduce__(self) -> tuple[Any, ...]:
        return MonteCarloExpectation, (self.samples, self.seed)  # without results

    def __repr__(self) -> str:
        return f"MonteCarloExpectation(samples={self.samples}, seed={self.seed})"

    def _of_queries(self, definition: Any, queries: Any) -> Moments:
        each, digest = queries.unranked()
        return self._cached_of_queries(_QuerySampleKey(definition, digest, each))

    def _simulate_queries(self, key: _QuerySampleKey) -> Moments:
        random = np.random.default_rng(self.seed)
        every = np.arange(len(key.queries))
        mass = in_range(key.queries.weight)
        block = max(1, _BLOCK // _random_numbers(key.queries))
        values = np.empty(self.samples)
        for begin in range(0, self.samples, block):
            copies = min(block, self.samples - begin)
            drawn = key.queries.take(np.tile(every, copies)).at_random(random)
            values[begin : begin + copies] = _values_of_copies(key.definition, drawn, mass)
        return _moments(values, ddof=1)

    def _simulate(self, definition: RankDefinition, counts: CandidateCounts) -> Moments:
        size = np.repeat(counts.num_candidates, counts.count)
        weight = np.repeat(counts.weight, counts.count)
        random = np.random.default_rng(self.seed)
        values = np.empty(self.samples)
        block = max(1, 4 * _BLOCK // len(size))
        for begin in range(0, self.samples, block):
            ranks = random.integers(
                1, size[:, None], (len(size), min(block, self.samples - begin)), endpoint=True
            )
            N = (
                np.broadcast_to(size[:, None], ranks.shape).ravel()
                if definition.uses_candidates
                else None
            )
            transformed = apply_transform(
                definition.f, ranks.ravel().astype(np.float64), num_candidates=N
            )
            outcomes = aggregate(definition, transformed.reshape(ranks.shape), weight)
            values[begin : begin + block] = apply_transform(definition.g, outcomes, "g")
        return _moments(values, ddof=1)


def _random_numbers(queries: Any) -> int:
    """Number of random numbers that one random ranking of all queries takes."""
    N = queries.num_candidates
    m = queries.num_relevant
    return int(np.where(m * m > 4 * N, N, m + 1).sum())


def _values_of_copies(definition: Any, drawn: Any, mass: FloatArray) -> FloatArray:
    """Values of the metric for copies of the queries with these weights, one copy after another."""
    if definition.is_mean_of_f:
        of_queries = definition.unit_values(drawn, "realistic").reshape(-1, len(mass))
        return np.asarray(of_queries @ mass / mass.sum())
    copies = np.arange(len(drawn)).reshape(-1, len(mass))
    return np.array([definition.value(drawn.take(copy)) for copy in copies])
