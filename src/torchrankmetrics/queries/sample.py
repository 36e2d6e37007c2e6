"""Ranks of the relevant items of queries, as blocks of tied candidates."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.sample import (
    NEVER,
    FloatArray,
    IntArray,
    RankSample,
    Sample,
    UnknownCandidatesError,
    changes,
    weights_of,
)
from torchrankmetrics.validation import MOST_CANDIDATES, check_choice

QueryRankType = Literal["expected", "optimistic", "pessimistic"]
_OF_QUERIES = ("num_candidates", "weight", "count", "side", "group", "row")


@dataclass(frozen=True, eq=False)
class QuerySample(Sample):
    """Queries as blocks of tied candidates that contain relevant items.

    The relevant items of a block are on any of its places equally likely.

    Ranks are raw: the other relevant items of a query stay among its candidates. Every query has a
    block, and relevant items of one block with different gains are one block for each gain, the
    largest first.
    """

    starts: IntArray  # (Q + 1,) the blocks of query q are starts[q]:starts[q + 1], ascending
    optimistic: IntArray  # (blocks,) first place of a block
    pessimistic: IntArray  # (blocks,) last place
    # (blocks,) number of relevant items in the block; 0 in the one block of a query without any
    answers: IntArray
    num_candidates: IntArray  # (Q,) N, all relevant items included; -1 if it is unknown
    weight: FloatArray  # (Q,) of ONE query, >= 0
    count: IntArray  # (Q,) number of equal queries of the entry, > 0
    # (Q,) as the column of rows; empty if unknown
    side: IntArray = field(default_factory=lambda: np.arange(0))
    group: IntArray = field(default_factory=lambda: np.arange(0))
    # (Q,) one of those that it was read from
    row: IntArray = field(default_factory=lambda: np.arange(0))
    # (blocks,) relevance label of the relevant items, > 0; None: all are 1
    gain: FloatArray | None = None

    @classmethod
    def tied(
        cls, places: IntArray, num_relevant: IntArray, num_candidates: IntArray
    ) -> "QuerySample":
        """Queries whose relevant items are anywhere among the first places.

        This is the sample of a constant scorer, or of the perfect one.
        """
        size = len(places)
        ones = np.ones(len(places), dtype=np.int64)
        return cls(
            np.arange(size + 1), ones, places, num_relevant, num_candidates, np.ones(size), ones
        )

    @classmethod
    def of_counts(
        cls,
        num_candidates: npt.ArrayLike,
        num_relevant: npt.ArrayLike,
        weight: npt.ArrayLike | None = None,
    ) -> "QuerySample":
        """Queries of which only N, m and the weight are known, (Q,) each: input of null moments."""
        N, m = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(x, np.int64)) for x in (num_candidates, num_relevant))
        )
        if (bad := (m < 1) | (m > N) | (N > MOST_CANDIDATES)).any():
            raise ValueError(
                f"num_relevant must be in 1..num_candidates < 2^62; got {m[bad][0]} of {N[bad][0]}"
            )
        weights = np.broadcast_to(weights_of(1.0 if weight is None else weight), N.shape)
        return replace(cls.tied(N, m, N), weight=weights)

    @classmethod
    def ranked(
        cls, ranks: IntArray, num_candidates: int, gain: FloatArray | None = None
    ) -> "QuerySample":
        """Queries with equal m and N, from ranks (Q, m) without ties.

        Ranks ascend unless they have gains (Q, m).
        """
        (size, m) = ranks.shape
        flat = ranks.ravel()
        one = np.ones(size, dtype=np.int64)
        gain = None if gain is None else gain.ravel()
        starts = np.arange(size + 1) * m
        ones = np.ones_like(flat)
        return cls(starts, flat, flat, ones, one * num_candidates, np.ones(size), one, gain=gain)

    def placed(self, rank_type: QueryRankType) -> "QuerySample":
        """The queries with their relevant items at one end of every block, or anywhere in it.

        Optimistic: first; pessimistic: last, by gain; expected: anywhere.
        """
        if (
            check_choice("rank_type of a metric of queries", rank_type, get_args(QueryRankType))
            == "expected"
        ):
            return self
        above: IntArray | int = 0  # relevant items at the same places with a larger gain
        if self.gain is not None:
            passed = np.cumsum(self.answers) - self.answers
            first = np.maximum.accumulate(
                np.where(changes(self.query, self.optimistic), np.arange(len(passed)), 0)
            )
            above = passed - passed[first]
        low = self.optimistic + above
        high = self.pessimistic - above
        low = low if rank_type == "optimistic" else high - self.answers + 1
        return replace(self, optimistic=low, pessimistic=low + self.answers - 1)

    def at_random(self, random: np.random.Generator) -> "QuerySample":
        """Return the queries with relevant items on random places, one entry for each query."""
        each = self.take(np.repeat(np.arange(len(self)), self.count))
        _, query, gain, number = each.levels
        items = np.maximum(number, 1)  # a query without relevant items has a block, too
        query = np.repeat(query, items)
        of_query = np.bincount(query, minlength=len(each))
        places = _random_places(random, of_query, each.num_candidates)
        order = np.lexsort((places, query))
        ranks = places[order]
        return replace(
            each,
            starts=np.append(0, np.cumsum(of_query)),
            optimistic=ranks,
            pessimistic=ranks,
            answers=np.repeat(np.minimum(number, 1), items),
            count=np.ones_like(each.count),
            gain=None if self.gain is None else np.repeat(gain, items)[order],
        )

    def unranked(self) -> tuple["QuerySample", bytes]:
        """Return one entry for each query, and a digest without ranks.

        The order of the entries does not depend on ranks.
        """
        each = self.take(np.repeat(np.arange(len(self)), self.count))
        keys = each._keys()
        order = sorted(range(len(keys)), key=keys.__getitem__)
        queries = replace(each.take(np.array(order)), count=np.ones_like(each.count))
        return queries, hashlib.sha256(repr(sorted(keys)).encode()).digest()

    def _keys(self) -> list[tuple[Any, ...]]:
        """N, m, weight, gains and their numbers of every query."""
        starts, _, gain, number = self.levels
        labels = [one.tobytes() for one in np.split(gain, starts[1:])]
        numbers = [one.tobytes() for one in np.split(number, starts[1:])]
        columns = [x.tolist() for x in (self.num_candidates, self.num_relevant, self.weight)]
        return list(zip(*columns, labels, numbers, strict=True))

    def relevant(self, threshold: float) -> "QuerySample":
        """The queries with only the items of at least this gain as relevant, with gains of 1."""
        if self.gain is None and threshold <= 1:
            return self
        gain = np.ones(len(self.answers)) if self.gain is None else self.gain
        is_relevant = gain >= threshold
        answers = np.where(is_relevant, self.answers, 0)

        # a query without such an item keeps its first block
        starts = self.starts[:-1]
        has_item = np.logical_or.reduceat(is_relevant, starts)
        is_relevant[starts[~has_item]] = True

        keep = np.flatnonzero(is_relevant)
        query = self.query[keep]
        low = self.optimistic[keep]
        first = np.flatnonzero(changes(query, low))
        return replace(
            self,
            starts=np.append(0, np.cumsum(np.bincount(query[first], minlength=len(self)))),
            optimistic=low[first],
            pessimistic=self.pessimistic[keep][first],
            answers=np.add.reduceat(answers[keep], first),
            gain=None,
        )

    @cached_property
    def levels(self) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
        """Relevant items of equal gain: starts of queries, query, gain and number of each level.

        Gains descend within a query.
        """
        if self.gain is None:
            every = np.arange(len(self))
            return every, every, np.ones(len(self)), self.num_relevant
        order = np.lexsort((-self.gain, self.query))
        query = self.query[order]
        gain = self.gain[order]
        first = np.flatnonzero(changes(query, gain))
        query = query[first]
        number = np.add.reduceat(self.answers[order], first)
        return np.flatnonzero(changes(query)), query, gain[first], number

    def take(self, index: npt.NDArray[Any]) -> "QuerySample":
        """The queries of an index or a mask, in its order."""
        index = np.flatnonzero(index) if index.dtype == bool else index
        blocks = np.diff(self.starts)[index]
        starts = np.append(0, np.cumsum(blocks))
        inside = np.repeat(self.starts[index] - starts[:-1], blocks) + np.arange(starts[-1])
        low, high, answers = (
            column[inside] for column in (self.optimistic, self.pessimistic, self.answers)
        )
        gain = None if self.gain is None else self.gain[inside]
        return QuerySample(starts, low, high, answers, **self._of_queries(index), gain=gain)

    def _of_queries(self, index: npt.NDArray[Any]) -> dict[str, Any]:
        """The columns of queries at an index."""
        columns = {name: getattr(self, name) for name in _OF_QUERIES}
        known = {name: column[index] for name, column in columns.items() if len(column)}
        return columns | known

    @cached_property
    def first_ranks(self) -> RankSample:
        """Rank of the first relevant item of every query, with its ties: entries are queries."""
        first = self.starts[:-1]
        last = self.pessimistic[first] - self.answers[first] + 1
        known = None if (self.num_candidates < 0).any() else self.num_candidates
        return RankSample(self.optimistic[first], last, known, self.weight, self.count)

    @cached_property
    def elsewhere(self) -> "QuerySample | None":
        """The queries with other ranks of items that were not retrieved.

        None if every number of candidates is known, or if every item was retrieved.
        """
        if not ((self.num_candidates < 0).any() and (far := self.optimistic > NEVER).any()):
            return None
        return replace(
            self, optimistic=self.optimistic * (1 + far), pessimistic=self.pessimistic * (1 + far)
        )

    def __len__(self) -> int:
        return len(self.num_candidates)

    @property
    def known_candidates(self) -> IntArray:
        """Number N of candidates of every query; UnknownCandidatesError if one is unknown."""
        if (self.num_candidates < 0).any():
            raise UnknownCandidatesError
        return self.num_candidates

    @cached_property
    def num_relevant(self) -> IntArray:
        """Number m of relevant items of every query, (Q,) int64."""
        return self.sums(self.answers)

    @cached_property
    def size(self) -> IntArray:
        """Number b of places of every block, (blocks,) int64."""
        return self.pessimistic - self.optimistic + 1

    @cached_property
    def query(self) -> IntArray:
        """Index of the query of every block, (blocks,) int64."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def before(self) -> IntArray:
        """Number of relevant items in the earlier blocks of the query, (blocks,) int64."""
        passed = np.cumsum(self.answers) - self.answers
        return passed - passed[self.starts[:-1]][self.query]

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum values of blocks, (blocks,), for every query, (Q,)."""
        return np.asarray(np.add.reduceat(values, self.starts[:-1]))


def _random_places(random: np.random.Generator, number: IntArray, N: IntArray) -> IntArray:
    """Draw ``number`` different places in 1..N for each query, in random order."""
    starts = np.cumsum(number) - number
    places = np.empty(number.sum(), dtype=np.int64)
    order = np.lexsort((number, N))
    ends = np.flatnonzero(changes(N[order], number[order]))[1:]
    for rows in np.split(order, ends):
        items = int(number[rows[0]])
        subsets = random_subsets(random, int(N[rows[0]]), items, len(rows))
        index = starts[rows][:, None] + np.arange(items)
        places[index] = random.permuted(subsets, axis=1)
    return places


def random_subsets(random: np.random.Generator, N: int, m: int, rows: int) -> IntArray:
    """Uniform m-subsets of 1..N, ascending, (rows, m) int64."""
    if 2 * m > N:  # what is left out
        chosen = np.ones((rows, N), dtype=bool)
        np.put_along_axis(chosen, random_subsets(random, N, N - m, rows) - 1, False, axis=1)
        return (np.nonzero(chosen)[1] + 1).reshape(rows, m)
    if m * m > 4 * N:  # draws with replacement would rarely be distinct
        return np.sort(np.argpartition(random.random((rows, N)), m, axis=1)[:, :m], axis=1) + 1
    ranks = np.empty((rows, m), dtype=np.int64)
    repeated = np.arange(rows)
    while len(repeated):
        ranks[repeated] = np.sort(random.integers(1, N, (len(repeated), m), endpoint=True), axis=1)
        repeated = repeated[(np.diff(ranks[repeated], axis=1) == 0).any(1)]
    return ranks
