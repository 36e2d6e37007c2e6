"""Rows of one query as places of its relevant items in one list of candidates."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.protocol import Side
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
    has_unknown,
    num_copies,
    sorted_rows,
    weights,
)


def used_queries(definition: Any, queries: QuerySample, side: Side) -> npt.NDArray[np.bool_]:
    """Which queries are of a side and have a value of a metric, (q,)."""
    chosen: npt.NDArray[np.bool_] = definition.used(queries)
    return chosen if side == "both" else chosen & (queries.side == SIDE_CODES[side])


def merged(queries: QuerySample) -> QuerySample:
    """Equal queries as one entry, in an order of their content: neither names nor the order of rows matter."""
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
    """Find the queries of rows (n, 10), by side and query or by ``partition`` (n,), and the places of their answers.

    Ranks that leave other answers out become places by putting them back: answers are sorted by the
    number of candidates above them that no rank leaves out. Answers between the same two of these
    candidates are next to each other, so that a metric of sets of places does not depend on their
    order.
    """
    columns = Columns(rows)
    alone = columns.query == ABSENT
    index, own = np.flatnonzero(alone), Columns(rows[alone])
    ones = np.ones(len(index), dtype=np.int64)
    facts = (own.num_candidates, weights(own.rows), own.count, own.side, own.group, index)
    # the rank of a single answer is its place
    starts = np.arange(len(index) + 1)
    found = QuerySample(starts, own.optimistic, own.pessimistic, ones, *facts, gains(own.rows))
    if not alone.all():
        index = np.flatnonzero(~alone)
        rows = rows.T.take(index, axis=1).T if alone.any() else rows
        several = _several(rows, index, None if partition is None else partition[index])
        starts = np.append(starts, starts[-1] + several.starts[1:])
        names = [field.name for field in fields(QuerySample)[1:]]
        found = QuerySample(
            starts,
            *(np.concatenate([getattr(found, name), getattr(several, name)]) for name in names),
        )
    return replace(found, gain=None) if np.all(found.gain == 1) else found


def check_queries(rows: Rows, of_scores: bool) -> None:
    """Check the rows of an update as ``queries_of`` does.

    Tasks ``of_scores`` alone, each row a query, without weights or other facts, fit together unless
    one is repeated.
    """
    columns = Columns(rows)
    if (columns.query == ABSENT).all() or has_unknown(columns.num_candidates):
        return
    places = combined(columns.query, columns.optimistic)[columns.flags & fault.RAW > 0]
    if of_scores and (columns.gain_bits == ONE).all() and not has_repeats(places):
        return
    weighed = columns.weight_bits != 0
    rows = rows if weighed.all() else rows[weighed]
    # without repeats
    queries_of(canonical_rows(rows)[0] if (columns.sample_id != ABSENT).any() else rows)


def _several(rows: Rows, index: Rows, partition: Rows | None) -> QuerySample:
    rows, index, first = _side_by_side(rows, index, partition)
    columns, starts, of = Columns(rows), np.flatnonzero(first), np.cumsum(first) - 1
    check = partial(_require_none, rows, index, starts)
    filtered = (columns.flags & fault.FILTERED > 0).astype(np.int64)
    copies, count = _counts(columns, starts, of, filtered, check)
    # put the filtered answers back among the candidates
    last = columns.pessimistic - filtered  # among the candidates that no rank leaves out
    N = (columns.num_candidates - filtered)[starts] + np.add.reduceat(count * filtered, starts)
    N[columns.num_candidates[starts] < 0] = fault.UNKNOWN
    begins = changes(of, columns.optimistic, last)
    block = np.flatnonzero(begins)
    owner, answers, put_back = (
        of[block],
        np.add.reduceat(count, block),
        np.add.reduceat(count * filtered, block),
    )
    before, heads = np.cumsum(put_back) - put_back, np.flatnonzero(changes(owner))
    before -= before[heads][owner]
    optimistic = columns.optimistic[block] + before
    pessimistic = last[block] + before + put_back
    wrong = answers > pessimistic - optimistic + 1
    wrong[1:] |= (owner[1:] == owner[:-1]) & (optimistic[1:] <= pessimistic[:-1])
    broken = np.logical_or.reduceat(wrong, heads)
    if broken.any():
        nan = np.logical_or.reduceat(columns.flags & fault.NAN > 0, starts)
        check(
            (broken & ~(nan & ((np.add.reduceat(count, starts) <= N) | (N < 0))))[of],
            "have answers whose ranks are not of one list of candidates (more answers than "
            "places, or tied with each other in part)",
        )
    part = np.flatnonzero(begins | changes(columns.gain_bits))
    block_of = np.cumsum(begins) - 1
    inside, heads = block_of[part], np.flatnonzero(changes(of[part]))
    check(
        ((put_back > 0) & (np.bincount(inside) > 1))[block_of],
        "have relevant items with different labels that are excluded from each other's "
        "candidates, so that their order is unknown: exclude must not list the relevant items of "
        "a query",
    )
    blocks = [
        optimistic[inside],
        pessimistic[inside],
        np.add.reduceat(count, part),
        gains(rows)[part],
    ]
    sizes = np.diff(np.append(heads, len(part)))
    if broken.any():
        queries = list(zip(*(np.split(column, heads[1:]) for column in blocks), strict=True))
        for i in np.flatnonzero(broken):
            queries[i] = _from_the_last(*queries[i][1:])
        blocks = [np.concatenate(column) for column in zip(*queries, strict=True)]
        sizes = np.array([len(places) for places, *_ in queries])
    low, high, answers, gain = blocks
    facts = (
        N,
        weights(rows)[starts],
        copies,
        columns.side[starts],
        columns.group[starts],
        index[starts],
    )
    return QuerySample(np.append(0, np.cumsum(sizes)), low, high, answers, *facts, gain)


def _counts(
    columns: Columns[Rows], starts: Rows, of: Rows, filtered: Rows, check: Callable[..., None]
) -> tuple[Rows, Rows]:
    """Number of equal queries of each name, and of the answers of each row; rows of a query must agree."""
    copies, unnamed = np.ones(len(starts), dtype=np.int64), columns.query[starts] < 0
    if unnamed.any():
        inside = slice(None) if unnamed.all() else unnamed[of]
        copies[unnamed] = num_copies(columns.rows[inside], np.flatnonzero(changes(of[inside])))
        check(
            (copies == 0)[of],
            "lack answers that came in the same update, or have answers that differ in weight or "
            "group: pass one weight and group for all answers of a query, and query= if its "
            "answers are spread over several updates",
        )
    count = columns.count // copies[of]
    left_in = np.where(columns.num_candidates < 0, fault.UNKNOWN, columns.num_candidates - filtered)
    for what, values in (
        ("weight", columns.weight_bits),
        ("group", columns.group),
        ("num_candidates without its own answers", left_in),
    ):
        check(values != values[starts][of], f"have answers that differ in {what}")
    unsaid = columns.flags & (fault.FILTERED | fault.RAW) == 0
    check(
        unsaid & (np.add.reduceat(count, starts) > 1)[of],
        "have several answers, and it is unknown whether the ranks of each leave the others out: "
        "pass scores, or Ranks(..., filtered=True) or (..., filtered=False)",
    )
    return copies, count


def _side_by_side(
    rows: Rows, index: Rows, partition: Rows | None
) -> tuple[Rows, Rows, npt.NDArray[np.bool_]]:
    """Sort rows by query, then by place, add up equal ones, and mark the first row of each query."""
    columns = Columns(rows)
    if partition is None:
        nameless = columns.query < 0
        extra_keys = (
            np.where(nameless, column, 0) for column in (columns.group, columns.weight_bits)
        )
        keys = [columns.side, columns.query, *extra_keys]
    else:
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
    """Return single places for answers with NaN scores, each of which ranks last: the worst places that are free."""
    places, gain = np.repeat(places, answers), np.repeat(gain, answers)
    order = np.lexsort((gain, places))
    down = np.arange(len(places))[::-1]
    places = places[order]
    places = np.maximum(
        np.minimum.accumulate((places + down)[::-1])[::-1] - down, np.arange(len(places)) + 1
    )
    return places, places, np.ones_like(places), gain[order]


def _require_none(
    rows: Rows, index: Rows, starts: Rows, wrong: npt.NDArray[np.bool_], text: str
) -> None:
    if wrong.any():  # some rows of some queries
        wrong = np.logical_or.reduceat(wrong, starts)
        first = min(starts[wrong], key=index.__getitem__)
        columns = Columns(rows[first][None])
        name, sample, side = (
            int(columns.query[0]),
            int(columns.sample_id[0]),
            SIDES_BY_CODE[int(columns.side[0])],
        )
        task = f"ranking task {int(index[first])}" if sample == ABSENT else f"sample id {sample}"
        called = f"query {name}" if name >= 0 else f"that of {task}"
        where = "" if side is None else f" of side {side!r}"
        raise ValueError(f"{int(wrong.sum())} queries {text}; the first is {called}{where}")
