"""Rows of one query as places of its relevant items in one list of candidates."""

from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from torchrankmetrics.definitions.protocol import EmptyQueries, Side
from torchrankmetrics.definitions.sample import FloatArray, changes
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.blocks import has_repeats
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    SIDE_CODES,
    SIDES_BY_CODE,
    Columns,
    Rows,
    canonical_rows,
    combined,
    gains,
    has_entries,
    has_unknown,
    is_empty_query,
    num_copies,
    sorted_rows,
    weights,
)
from torchrankmetrics.table.entries import rank_entries


def of_side(queries: QuerySample, side: Side) -> npt.NDArray[np.bool_]:
    """Which queries are of a side, (q,)."""
    if side == "both":
        return np.ones(len(queries), dtype=bool)
    return np.asarray(queries.side == SIDE_CODES[side])


def used_queries(
    definition: Any, queries: QuerySample, side: Side, empty_queries: EmptyQueries | None
) -> npt.NDArray[np.bool_]:
    """Which queries are of a side and have a value of a metric, (q,)."""
    chosen: npt.NDArray[np.bool_] = definition.used(queries) & of_side(queries, side)
    return chosen if empty_queries == "zero" else chosen & (queries.num_relevant > 0)


def merged(queries: QuerySample) -> QuerySample:
    """Merge equal queries into one entry, in an order that depends on their content alone."""
    gain = () if queries.gain is None else (queries.gain.view(np.int64),)
    content = queries.sums(
        combined(queries.optimistic, queries.pessimistic, queries.answers, *gain)
    )
    about = (queries.side, queries.group, queries.weight.view(np.int64), queries.num_candidates)
    facts = (content, *about, np.diff(queries.starts))
    order = np.lexsort((content, combined(*facts)))
    first = changes(*(fact[order] for fact in facts))
    distinct = queries.take(order[first])
    distinct.count[:] = np.add.reduceat(queries.count[order], np.flatnonzero(first))
    return distinct


def queries_of(rows: Rows, partition: Rows | None = None) -> QuerySample:
    """Find the queries of rows (n, 10), by side and query or ``partition`` (n,), and their items.

    A filtered rank does not count the other relevant items. It becomes a place in the list of all
    candidates: items are sorted by the number of other candidates above them, and each adds the
    items before it. Items between the same two other candidates are next to each other, so a
    metric of sets of places does not depend on their order.
    """
    check_not_excluded(rows)
    alone = (Columns(rows).query == ABSENT) | is_empty_query(rows)
    found = _of_single_rows(rows[alone], np.flatnonzero(alone))
    if not alone.all():
        index = np.flatnonzero(~alone)
        rows = rows.T.take(index, axis=1).T if alone.any() else rows
        several = _several(rows, index, None if partition is None else partition[index])
        found = _joined(found, several)
    return replace(found, gain=None) if np.all(found.gain == 1) else found


def _of_single_rows(rows: Rows, index: Rows) -> QuerySample:
    """Queries of one row each, with ``index`` (n,) as their places."""
    columns = Columns(rows)
    return QuerySample(
        np.arange(len(rows) + 1),
        columns.optimistic,  # the rank of a single item is its place
        columns.pessimistic,
        1 - is_empty_query(rows).astype(np.int64),
        columns.num_candidates,
        weights(rows),
        columns.count,
        columns.side,
        columns.group,
        index,
        gain=gains(rows),
    )


def _joined(first: QuerySample, second: QuerySample) -> QuerySample:
    """Queries of two samples that have gains, one after the other."""
    starts = np.append(first.starts, first.starts[-1] + second.starts[1:])
    names = [field.name for field in fields(QuerySample)[1:]]
    values = [np.concatenate([getattr(first, name), getattr(second, name)]) for name in names]
    return QuerySample(starts, *values)


def check_queries(rows: Rows, is_plain_scores: bool, forbids_empty: bool) -> None:
    """Check the rows of an update as ``queries_of`` does.

    Tasks of scores alone (``is_plain_scores``), each row a query, without weights or other facts,
    fit together unless one is repeated. ``forbids_empty``: a query without a name must have a
    relevant item.
    """
    columns = Columns(rows)
    weighed = columns.weight_bits != 0
    rows = rows if weighed.all() else rows[weighed]
    if is_plain_scores and has_entries(torch.from_numpy(rows)):
        return
    rows, _ = rank_entries(rows)
    columns = Columns(rows)
    check_not_excluded(rows)
    is_empty = is_empty_query(rows) & (columns.query == ABSENT)
    if forbids_empty and is_empty.any():
        raise ValueError(empty_queries_error(int(is_empty.sum())))
    if (columns.query == ABSENT).all() or has_unknown(columns.num_candidates):
        return
    places = combined(columns.query, columns.optimistic)[columns.flags & fault.RAW > 0]
    if is_plain_scores and (columns.gain_bits == ONE).all() and not has_repeats(places):
        return
    # without repeats
    queries_of(canonical_rows(rows)[0] if (columns.sample_id != ABSENT).any() else rows)


def empty_queries_error(number: int, lacking: str = "relevant item") -> str:
    """Text of the error of ``empty_queries="error"``."""
    return (
        f"target must have a {lacking} for every query, got {number} without any; "
        "empty_queries='zero' counts them as 0, as trec_eval and torchmetrics do, and 'skip' "
        "leaves them out"
    )


def check_not_excluded(rows: Rows) -> None:
    """Raise ValueError if relevant items were in an ``exclude`` that is not a look-up."""
    columns = Columns(rows)
    is_wrong = (columns.flags & fault.EXCLUDED > 0) & (columns.weight_bits != 0)
    if is_wrong.any():
        number = int(columns.count[is_wrong].sum())
        raise ValueError(
            "exclude must not contain relevant items for metrics of queries (look-ups of "
            f"KnownTriples and KnownPositives may), but {number} of {int(columns.count.sum())} are "
            "in it. Remove them from exclude (they stay candidates), remove them from target (they "
            "are not relevant), or pass scores of -inf instead of exclude (they count as missed); "
            "for bool seen and target: exclude=seen & ~target, target=target & ~seen, "
            "scores.masked_fill(seen, -torch.inf). To remove them from lists pass exclude=[[i for "
            "i in s if i not in t] for s, t in zip(seen, target)]; if target is (B,), set "
            "seen[torch.arange(B), target] = False"
        )


class _Lists:
    """Rows of queries side by side: sorted by query, then by place, equal rows added up."""

    def __init__(self, rows: Rows, index: Rows, partition: Rows | None) -> None:
        self.rows, self.index, is_first = _side_by_side(rows, index, partition)
        self.columns = Columns(self.rows)
        self.starts = np.flatnonzero(is_first)  # first row of every query
        self.query = np.cumsum(is_first) - 1  # of every row
        # 1 where the relevant item is excluded from the other tasks of its query
        self.filtered = (self.columns.flags & fault.FILTERED > 0).astype(np.int64)
        self.copies = self._num_copies()  # equal queries of every name
        self.count = self.columns.count // self.copies[self.query]  # relevant items of every row

    def _num_copies(self) -> Rows:
        copies = np.ones(len(self.starts), dtype=np.int64)
        unnamed = self.columns.query[self.starts] < 0
        if not unnamed.any():
            return copies
        inside = unnamed[self.query]
        first = np.flatnonzero(changes(self.query[inside]))
        copies[unnamed] = num_copies(self.rows[inside], first)
        self.require_none(
            (copies == 0)[self.query],
            "lack relevant items of the same update, or have relevant items that differ in weight "
            "or group: pass one weight and group for all relevant items of a query, and query= if "
            "its relevant items are spread over several updates",
        )
        return copies

    def sums(self, values: Rows) -> Rows:
        """Sum the values of rows for every query."""
        return np.asarray(np.add.reduceat(values, self.starts))

    def check_facts(self) -> None:
        """Check that the rows of every query agree, and that they can be put together."""
        columns = self.columns
        not_filtered = columns.num_candidates - self.filtered
        facts = {
            "weight": columns.weight_bits,
            "group": columns.group,
            "num_candidates without its own relevant items": np.where(
                columns.num_candidates < 0, fault.UNKNOWN, not_filtered
            ),
        }
        for name, values in facts.items():
            is_other = values != values[self.starts][self.query]
            self.require_none(is_other, f"have relevant items that differ in {name}")
        is_unknown = columns.flags & (fault.FILTERED | fault.RAW) == 0
        has_several = self.sums(self.count) > 1
        self.require_none(
            is_unknown & has_several[self.query],
            "have several relevant items, and it is unknown whether the ranks of each leave the "
            "others out: pass scores, or Ranks(..., filtered=True) if they do, else filtered=False",
        )

    def num_candidates(self) -> Rows:
        """Number of candidates of every query, all relevant items included; -1: unknown."""
        first = self.columns.num_candidates[self.starts]
        N = first - self.filtered[self.starts] + self.sums(self.count * self.filtered)
        return np.where(first < 0, fault.UNKNOWN, N)

    def require_none(self, is_wrong: npt.NDArray[np.bool_], text: str) -> None:
        """Raise ValueError for the queries of rows that are wrong."""
        if not is_wrong.any():
            return
        wrong = np.logical_or.reduceat(is_wrong, self.starts)
        first = min(self.starts[wrong], key=self.index.__getitem__)
        columns = Columns(self.rows[first][None])
        name = int(columns.query[0])
        sample = int(columns.sample_id[0])
        side = SIDES_BY_CODE[int(columns.side[0])]
        task = f"sample id {sample}"
        if sample == ABSENT:
            task = f"ranking task {int(self.index[first])}"
        called = f"query {name}" if name >= 0 else f"that of {task}"
        where = "" if side is None else f" of side {side!r}"
        raise ValueError(f"{int(wrong.sum())} queries {text}; the first is {called}{where}")


class _Blocks(NamedTuple):
    """Relevant items between the same two other candidates, (blocks,) each."""

    is_first: npt.NDArray[np.bool_]  # (rows,) whether a row is the first of a block
    query: Rows
    optimistic: Rows  # first place
    pessimistic: Rows  # last place
    answers: Rows  # number of relevant items
    put_back: Rows  # number of those that were excluded from each other's candidates

    def is_impossible(self) -> npt.NDArray[np.bool_]:
        """Which queries have blocks that are not of one list, (Q,)."""
        is_wrong = self.answers > self.pessimistic - self.optimistic + 1
        overlaps = self.optimistic[1:] <= self.pessimistic[:-1]
        is_wrong[1:] |= overlaps & (self.query[1:] == self.query[:-1])
        return np.asarray(np.logical_or.reduceat(is_wrong, np.flatnonzero(changes(self.query))))


class _Levels(NamedTuple):
    """Relevant items of one gain in a block, (levels,) each."""

    sizes: Rows  # (Q,) number of levels of every query
    optimistic: Rows
    pessimistic: Rows
    answers: Rows
    gain: FloatArray

    def with_last_places(self, chosen: npt.NDArray[np.bool_]) -> "_Levels":
        """Give the relevant items of chosen queries (Q,) single places, the last free ones."""
        borders = np.cumsum(self.sizes)[:-1]
        columns = (np.split(column, borders) for column in self[1:])
        queries = list(zip(*columns, strict=True))
        for i in np.flatnonzero(chosen):
            queries[i] = _from_the_last(*queries[i][1:])
        sizes = np.array([len(places) for places, *_ in queries])
        return _Levels(sizes, *map(np.concatenate, zip(*queries, strict=True)))


def _several(rows: Rows, index: Rows, partition: Rows | None) -> QuerySample:
    """Queries of rows that may be several for one query, with ``index`` (n,) as their places."""
    lists = _Lists(rows, index, partition)
    lists.check_facts()
    N = lists.num_candidates()
    blocks = _blocks_of(lists)
    is_broken = blocks.is_impossible()
    if is_broken.any():
        has_nan = np.logical_or.reduceat(lists.columns.flags & fault.NAN > 0, lists.starts)
        fits = (lists.sums(lists.count) <= N) | (N < 0)
        lists.require_none(
            (is_broken & ~(has_nan & fits))[lists.query],
            "have relevant items whose ranks are not of one list of candidates (more of them than "
            "places, or tied with each other in part)",
        )
    levels = _levels_of(lists, blocks)
    if is_broken.any():  # relevant items with NaN scores all rank last
        levels = levels.with_last_places(is_broken)
    first = Columns(lists.rows[lists.starts])
    facts = (first.side, first.group, lists.index[lists.starts])
    return QuerySample(
        np.append(0, np.cumsum(levels.sizes)),
        levels.optimistic,
        levels.pessimistic,
        levels.answers,
        N,
        weights(first.rows),
        lists.copies,
        *facts,
        gain=levels.gain,
    )


def _blocks_of(lists: _Lists) -> _Blocks:
    """Put relevant items that were excluded from each other's candidates back among them."""
    columns = lists.columns
    last = columns.pessimistic - lists.filtered  # among the candidates that no rank leaves out
    is_first = changes(lists.query, columns.optimistic, last)
    first = np.flatnonzero(is_first)
    query = lists.query[first]
    put_back = np.add.reduceat(lists.count * lists.filtered, first)

    # those of earlier blocks of the query move a block down, its own ones widen it
    passed = np.cumsum(put_back) - put_back
    before = passed - passed[np.flatnonzero(changes(query))][query]
    optimistic = columns.optimistic[first] + before
    pessimistic = last[first] + before + put_back
    answers = np.add.reduceat(lists.count, first)
    return _Blocks(is_first, query, optimistic, pessimistic, answers, put_back)


def _levels_of(lists: _Lists, blocks: _Blocks) -> _Levels:
    """Split blocks by gain; items that were excluded from each other must have equal gains."""
    first = np.flatnonzero(blocks.is_first | changes(lists.columns.gain_bits))
    block_of = np.cumsum(blocks.is_first) - 1  # of every row
    inside = block_of[first]
    has_several = np.bincount(inside) > 1
    lists.require_none(
        ((blocks.put_back > 0) & has_several)[block_of],
        "have relevant items with different labels that are excluded from each other's "
        "candidates, so that their order is unknown: exclude must not list the relevant items of "
        "a query",
    )
    return _Levels(
        np.bincount(blocks.query[inside]),
        blocks.optimistic[inside],
        blocks.pessimistic[inside],
        np.add.reduceat(lists.count, first),
        gains(lists.rows)[first],
    )


def _side_by_side(
    rows: Rows, index: Rows, partition: Rows | None
) -> tuple[Rows, Rows, npt.NDArray[np.bool_]]:
    """Sort rows by query, then by place, add up equal ones, and mark the first row of queries."""
    columns = Columns(rows)
    is_nameless = columns.query < 0
    group = np.where(is_nameless, columns.group, 0)
    keys = [columns.side, columns.query, group, np.where(is_nameless, columns.weight_bits, 0)]
    if partition is not None:
        keys = [partition]
    marks = columns.flags & (fault.FILTERED | fault.RAW)
    # bits of positive numbers are in the order of the numbers
    places = (
        columns.optimistic,
        columns.pessimistic - (marks & fault.FILTERED > 0),
        -columns.gain_bits,
    )
    facts = (columns.num_candidates, marks, columns.group, columns.weight_bits, columns.sample_id)
    order, firsts = sorted_rows([*keys, *places, *facts])
    chosen = order[firsts]
    merged = rows.T.take(chosen, axis=1).T
    Columns(merged).count = np.add.reduceat(columns.count[order], firsts)
    Columns(merged).side_and_flags = np.bitwise_or.reduceat(columns.side_and_flags[order], firsts)
    return merged, index[chosen], changes(*(key[chosen] for key in keys))


def _from_the_last(
    places: Rows, answers: Rows, gain: FloatArray
) -> tuple[Rows, Rows, Rows, FloatArray]:
    """Return single places of items with NaN scores, which rank last: the worst free places."""
    places = np.repeat(places, answers)
    gain = np.repeat(gain, answers)
    order = np.lexsort((gain, places))
    places = places[order]

    # from the end, each takes its place or the free one before the item behind it
    down = np.arange(len(places))[::-1]
    free = np.minimum.accumulate((places + down)[::-1])[::-1] - down
    places = np.maximum(free, np.arange(len(places)) + 1)
    return places, places, np.ones_like(places), gain[order]
