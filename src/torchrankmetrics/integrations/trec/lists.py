"""`JudgedLists`: relevant documents of all queries and scores of their lists, as flat arrays."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.errors import warn
from torchrankmetrics.integrations.trec.sources import (
    Documents,
    Source,
    as_id,
    read_qrels,
    read_run,
)
from torchrankmetrics.ranking.flags import UNKNOWN
from torchrankmetrics.ranking.lists import ranks_from_places
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import empty_rows, far_below_random
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_int, shorten

NumCandidates = int | Mapping[Any, int]  # size of the collection, for all queries or by query


@dataclass(frozen=True, eq=False)
class JudgedLists:
    """Queries with a relevant document, in the order of their ids, and their lists."""

    names: list[str]  # ids of all queries of qrels, sorted
    number: IntArray  # (Q,) places in ``names`` of the queries with a relevant document
    length: IntArray  # (Q,) of the list
    scores: FloatArray  # (T,) of all lists, one after the other
    index: IntArray  # (P,) query of each relevant document, ascending
    own: FloatArray  # (P,) its score, NaN if it is not in the list
    gain: FloatArray  # (P,) its label
    first_id: int  # sample id of the first relevant document; other qrels have other ids

    @classmethod
    def read(cls, qrels: Source, run: Source, ignore_identical_ids: bool | None) -> "JudgedLists":
        """Read qrels and a run; warns of queries that are missing in one of them."""
        judged = read_qrels(qrels)
        lists = read_run(run)
        _check_common(judged, lists)
        lists = _without_identical(lists, ignore_identical_ids)
        relevant = {query: _relevant(judged[query]) for query in sorted(judged)}
        number = np.flatnonzero([len(labels) > 0 for labels in relevant.values()])
        relevant = {query: labels for query, labels in relevant.items() if labels}
        without = [query for query in relevant if not lists.get(query)]
        _warn(
            without,
            "have no list in run and count as queries where nothing was retrieved, as in trec_eval "
            "-c; to leave out queries that run lacks, as BEIR does, drop them from qrels",
        )
        listed = [lists.get(query, {}) for query in relevant]
        found = cls._of(sorted(judged), number, relevant, listed)
        found._warn_of_content(_first_id(judged), _first_id(lists))
        return found

    @classmethod
    def _of(
        cls,
        names: list[str],
        number: IntArray,
        relevant: Documents,
        lists: list[dict[str, float]],
    ) -> "JudgedLists":
        """Flatten dicts of relevant documents and of lists, of the same queries."""
        size = [len(labels) for labels in relevant.values()]
        length = np.array([len(scores) for scores in lists], dtype=np.int64)
        values = chain.from_iterable(scores.values() for scores in lists)
        gains = chain.from_iterable(labels.values() for labels in relevant.values())
        pairs = zip(relevant.values(), lists, strict=True)
        own = [scores.get(name, np.nan) for labels, scores in pairs for name in labels]
        return cls(
            names=names,
            number=number,
            length=length,
            scores=np.fromiter(values, np.float64, int(length.sum())),
            index=np.repeat(np.arange(len(size)), size),
            own=np.array(own, dtype=np.float64),
            gain=np.fromiter(gains, np.float64, sum(size)),
            first_id=_hash(relevant) << 32,
        )

    @property
    def queries(self) -> list[str]:
        """Ids of the queries with a relevant document, (Q,)."""
        return [self.names[number] for number in self.number.tolist()]

    @property
    def empty(self) -> IntArray:
        """Places in ``names`` of the queries without a relevant document."""
        return np.setdiff1d(np.arange(len(self.names)), self.number)

    def _warn_of_content(self, judged: str | None, listed: str | None) -> None:
        """Warn of ids that do not match, and of labels that look like scores."""
        if not len(self.own):
            warn(
                f"qrels have no relevant document in any of {len(self.names)} queries: labels "
                "above 0 are relevant"
            )
        elif len(self.own) and self.is_missed.all():
            warn(
                "no relevant document of qrels is in any list of run: are the ids the same text in "
                f"both? For example {shorten(judged)} in qrels and {shorten(listed)} in run"
            )
        has_fractions = (self.gain % 1 != 0).any()
        if (
            has_fractions
            and len(self.scores)
            and (self.scores % 1 == 0).all()
            and (self.scores >= 0).all()
        ):
            warn(
                "labels of qrels are fractions and scores of run are whole numbers: are the two "
                "arguments swapped? The first is qrels"
            )
        self._warn_of_reversal()

    def _warn_of_reversal(self) -> None:
        """Warn if most relevant documents, one of each query, are at the ends of their lists."""
        found = np.flatnonzero(~self.is_missed)
        query, first = np.unique(self.index[found], return_index=True)
        low, high = (places[found[first]] for places in self.places)
        table = RankTable.from_ranks(Ranks(low, high, self.length[query]))
        if text := far_below_random(table.rows.numpy()):
            warn(
                f"in the lists of run {text}: are they sorted worst first, or are the scores "
                "distances? Reverse the lists, or negate the scores"
            )

    @cached_property
    def is_missed(self) -> npt.NDArray[np.bool_]:
        """Whether a relevant document is not in its list, (P,)."""
        return np.isnan(self.own)

    @cached_property
    def missed_number(self) -> IntArray:
        """I for the i-th document of a query that is not in its list, (P,).

        The numbers of other documents have no meaning.
        """
        count = np.cumsum(self.is_missed)
        before: IntArray = count - self.is_missed
        first = np.searchsorted(self.index, self.index)
        return count - before[first]

    def ranks(self, num_candidates: NumCandidates | None) -> Ranks:
        """Rank the relevant documents; those that are not in a list are tied below it."""
        low, high = self.places
        size = None if num_candidates is None else self._sizes(num_candidates)
        return ranks_from_places(
            torch.from_numpy(low),
            torch.from_numpy(high),
            torch.from_numpy(self.index),
            torch.from_numpy(self.length),
            None if size is None else torch.from_numpy(size),
            None,
        )

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """First and last places of relevant documents in their lists, (P,) twice; 0: not there."""
        lists = np.split(self.scores, np.cumsum(self.length)[:-1])
        owned = np.split(self.own, np.flatnonzero(np.diff(self.index)) + 1)
        above = []
        not_below = []
        for scores, own in zip(lists, owned, strict=True):
            ascending = np.sort(scores)
            above.append(len(scores) - np.searchsorted(ascending, own, "right"))
            not_below.append(len(scores) - np.searchsorted(ascending, own, "left"))
        low = np.concatenate(above) + 1
        high = np.concatenate(not_below)
        return np.where(self.is_missed, 0, low), np.where(self.is_missed, 0, high)

    def _sizes(self, num_candidates: NumCandidates) -> IntArray:
        """Number of candidates of every query.

        They are the documents in its list, the relevant ones outside, and others.
        """
        by_query = self._size_by_query(num_candidates)
        lost = [query for query in self.queries if query not in by_query]
        if lost:
            raise ValueError(
                "num_candidates must be an int or contain all queries of qrels; "
                f"{shorten(lost[0])} is missing"
            )
        sizes = [check_int("num_candidates", by_query[query], 1) for query in self.queries]
        missed = np.bincount(self.index, self.is_missed, len(self.queries)).astype(np.int64)
        for query, size, length, outside in zip(
            self.queries, sizes, self.length, missed, strict=True
        ):
            if length + outside > size:
                raise ValueError(
                    f"num_candidates must count all documents: query {shorten(query)} has "
                    f"{length} in its list and {outside} relevant documents outside, got {size}"
                )
        return np.array(sizes, dtype=np.int64)

    def _size_by_query(self, num_candidates: NumCandidates) -> dict[str, int]:
        if isinstance(num_candidates, Mapping):
            return {as_id(query, "num_candidates"): size for query, size in num_candidates.items()}
        return dict.fromkeys(self.names, num_candidates)

    def rows_of_empty(self, num_candidates: NumCandidates | None) -> RankTable:
        """Rows without a rank of the queries without a relevant document."""
        if not len(self.empty):
            return RankTable(empty_rows())
        by_query = {} if num_candidates is None else self._size_by_query(num_candidates)
        sizes = [by_query.get(self.names[number], UNKNOWN) for number in self.empty.tolist()]
        return RankTable.from_numpy(
            {
                "optimistic": np.zeros_like(self.empty),
                "num_candidates": np.array(sizes, dtype=np.int64),
                "query": self.empty,
                "empty": True,
            }
        )


def _relevant(labels: Mapping[str, float]) -> dict[str, float]:
    """Return the relevant documents in the order of their ids, with their labels."""
    return {name: labels[name] for name in sorted(labels) if labels[name] > 0}


def _check_common(judged: Documents, lists: Documents) -> None:
    if judged and not judged.keys() & lists.keys():
        one, other = (shorten(next(iter(queries), None)) for queries in (judged, lists))
        raise ValueError(
            f"qrels and run have no query in common: {one} is in qrels, {other} in run"
        )


def _without_identical(lists: Documents, ignore: bool | None) -> Documents:
    """Leave out documents whose id is the query's, or warn of them if there is no choice."""
    found = [query for query, scores in lists.items() if query in scores]
    if ignore is None:
        _warn(
            found,
            "have a document with their own id in their list, which counts as any other. If it is "
            "the query itself, pass ignore_identical_ids=True, as BEIR does by default; False "
            "keeps it without this warning",
        )
    if not ignore:
        return lists
    without = dict(lists)
    for query in found:
        without[query] = {name: x for name, x in lists[query].items() if name != query}
    return without


def _first_id(documents: Documents) -> str | None:
    return next((name for inner in documents.values() for name in inner), None)


def _hash(relevant: Documents) -> int:
    """A number of 21 bits of the relevant documents; with 32 more it fits into a float64."""
    lines = ["\t".join([query, *labels]) for query, labels in relevant.items()]
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    return int.from_bytes(digest[:3]) >> 3


def _warn(queries: list[str], text: str) -> None:
    if queries:
        warn(f"{len(queries)} queries {text}; the first is {shorten(queries[0])}")
