"""Rows of one query as places of its relevant items in one list of candidates."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from torchrankmetrics.definitions.candidates import FloatArray, changes
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.columns import (
    ABSENT,
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
from torchrankmetrics.validation import TaskSide


def of_side(queries: QuerySample, side: Literal["both"] | TaskSide) -> npt.NDArray[np.bool_]:
    """Which queries are of a side, (q,)."""
    code = queries.side if side == "both" else SIDE_CODES[side]
    of_it: npt.NDArray[np.bool_] = queries.side == code
    return of_it


def merged(queries: QuerySample) -> QuerySample:
    """Equal queries as one entry, in an order of their content: neither names nor the order of rows matter."""
    blocks = [queries.optimistic, queries.pessimistic, queries.answers]
    if queries.gain is not None:
        blocks.append(queries.gain.view(np.int64))
    content = queries.sums(combined(*blocks))
    facts = (
        queries.side,
        queries.group,
        queries.weight.view(np.int64),
        queries.num_candidates,
        np.diff(queries.starts),
    )
    order = np.lexsort((content, combined(content, *facts)))
    first = changes(*(fact[order] for fact in (content, *facts)))
    distinct = queries.take(order[first])
    if len(queries):
        distinct.count[:] = np.add.reduceat(queries.count[order], np.flatnonzero(first))
    return distinct


def queries_of(rows: Rows, partition: Rows | None = None) -> QuerySample:
    """Find the queries of rows (n, 10), by side and query or by ``partition`` (n,), and the places of their answers.

    Ranks that leave other answers out become places by putting them back: answers are sorted by the number of
    candidates above them that no rank leaves out. Answers between the same two of these candidates are next to each
    other, so that a metric of sets of places does not depend on their order.
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
        several = _several(rows.T.take(index, axis=1).T, index, None if partition is None else partition[index])
        starts = np.append(starts, starts[-1] + several.starts[1:])
        names = [field.name for field in fields(QuerySample)[1:]]
        found = QuerySample(starts, *(np.concatenate([getattr(found, name), getattr(several, name)]) for name in names))
    return replace(found, gain=None) if np.all(found.gain == 1) else found


def check_queries(block: Tensor) -> None:
    """Check the rows of an update as ``queries_of`` does, on the CPU; for an accelerator ``compute`` checks them."""
    columns = Columns(block)
    if block.is_cpu and (columns.query != ABSENT).any() and not has_unknown(columns.num_candidates):
        rows = block[columns.weight_bits != 0].numpy()
        if (columns.sample_id != ABSENT).any():  # repeats
            rows = canonical_rows(rows)[0]
        queries_of(rows)


def _several(rows: Rows, index: Rows, partition: Rows | None) -> QuerySample:
    rows, index, first = _side_by_side(rows, index, partition)
    columns = Columns(rows)
    filtered = (columns.flags & fault.FILTERED > 0).astype(np.int64)
    last = columns.pessimistic - filtered  # among the candidates that no rank leaves out
    starts, of = np.flatnonzero(first), np.cumsum(first) - 1
    check = partial(_require_none, rows, index, starts)
    copies = np.ones(len(starts), dtype=np.int64)
    unnamed = columns.query[starts] < 0
    if unnamed.any():
        inside = unnamed[of]
        copies[unnamed] = num_copies(rows[inside], np.flatnonzero(first[inside]))
        check(
            copies == 0,
            "lack answers that came in the same update, or have answers that differ in weight or group: pass one "
            "weight and group for all answers of a query, and query= if its answers are spread over several updates",
        )
    count = columns.count // copies[of]
    left_in = np.where(columns.num_candidates < 0, fault.UNKNOWN, columns.num_candidates - filtered)
    for what, values in (
        ("weight", columns.weight_bits),
        ("group", columns.group),
        ("num_candidates without its own answers", left_in),
    ):
        differ = np.logical_or.reduceat(values != values[starts][of], starts)
        check(differ, f"have answers that differ in {what}")
    number = np.add.reduceat(count, starts)
    unsaid = columns.flags & (fault.FILTERED | fault.RAW) == 0
    check(
        (number > 1) & np.logical_or.reduceat(unsaid, starts),
        "have several answers, and it is unknown whether the ranks of each leave the others out: pass scores, or "
        "Ranks(..., filtered=True) or (..., filtered=False)",
    )
    low, high, answers, gain, blocks, N = _blocks(columns, starts, of, count, filtered, last, check)
    facts = (N, weights(rows)[starts], copies, columns.side[starts], columns.group[starts], index[starts])
    return QuerySample(np.append(0, np.cumsum(blocks)), low, high, answers, *facts, gain)


def _side_by_side(rows: Rows, index: Rows, partition: Rows | None) -> tuple[Rows, Rows, npt.NDArray[np.bool_]]:
    """Sort rows by query, then by place, add up equal ones, and mark the first row of each query."""
    columns = Columns(rows)
    if partition is None:
        nameless = columns.query < 0
        extra_keys = (np.where(nameless, column, 0) for column in (columns.group, columns.weight_bits))
        keys = [columns.side, columns.query, *extra_keys]
    else:
        keys = [partition]
    marks = columns.flags & (fault.FILTERED | fault.RAW)
    # bits of positive numbers are in the order of the numbers
    places = (columns.optimistic, columns.pessimistic - (marks & fault.FILTERED > 0), -columns.gain_bits)
    facts = (columns.num_candidates, marks, columns.group, columns.weight_bits, columns.sample_id)
    order, firsts = sorted_rows([*keys, *places, *facts])
    chosen = order[firsts]
    merged = rows.T.take(chosen, axis=1).T
    Columns(merged).count = np.add.reduceat(columns.count[order], firsts)
    Columns(merged).side_and_flags = np.bitwise_or.reduceat(columns.side_and_flags[order], firsts)
    varying = [key for key in keys if (key != key[0]).any()] or keys[:1]
    return merged, index[chosen], changes(*(key[chosen] for key in varying))


def _blocks(
    columns: Columns[Rows], starts: Rows, of: Rows, count: Rows, filtered: Rows, last: Rows, check: Callable[..., None]
) -> tuple[Rows, Rows, Rows, FloatArray, Rows, Rows]:
    """Put the filtered answers back among the candidates: blocks of one gain, their number in each query, and N."""
    begins = np.zeros(len(last), dtype=bool)
    begins[starts] = True
    begins[1:] |= (np.diff(columns.optimistic) != 0) | (np.diff(last) != 0)
    block = np.flatnonzero(begins)
    answers, put_back = np.add.reduceat(count, block), np.add.reduceat(count * filtered, block)
    owner = of[block]
    before = np.cumsum(put_back) - put_back
    heads = np.searchsorted(owner, np.arange(len(starts)))
    before -= before[heads][owner]
    optimistic = columns.optimistic[block] + before
    pessimistic = last[block] + before + put_back
    N = (columns.num_candidates - filtered)[starts] + np.add.reduceat(put_back, heads)
    N[columns.num_candidates[starts] < 0] = fault.UNKNOWN
    wrong = answers > pessimistic - optimistic + 1
    wrong[1:] |= (owner[1:] == owner[:-1]) & (optimistic[1:] <= pessimistic[:-1])
    broken = np.logical_or.reduceat(wrong, heads)
    if broken.any():
        nan = np.logical_or.reduceat(columns.flags & fault.NAN > 0, starts)
        check(
            broken & ~(nan & ((np.add.reduceat(count, starts) <= N) | (N < 0))),
            "have answers whose ranks are not of one list of candidates (more answers than places, or tied with each "
            "other in part)",
        )
    inside = np.cumsum(begins) - 1
    begins[1:] |= np.diff(columns.gain_bits) != 0
    part = np.flatnonzero(begins)
    inside, answers, gain = inside[part], np.add.reduceat(count, part), gains(columns.rows)[part]
    heads = np.searchsorted(of[part], np.arange(len(starts)))
    check(
        np.logical_or.reduceat((put_back > 0)[inside] & (np.bincount(inside)[inside] > 1), heads),
        "have relevant items with different labels that are excluded from each other's candidates, so that their order "
        "is unknown: exclude must not list the relevant items of a query",
    )
    optimistic, pessimistic, sizes = optimistic[inside], pessimistic[inside], np.diff(np.append(heads, len(part)))
    if broken.any():
        pieces = np.split(np.arange(len(part)), heads[1:])
        parts = [(optimistic[i], pessimistic[i], answers[i], gain[i]) for i in pieces]
        for i in np.flatnonzero(broken):
            own = pieces[i]
            parts[i] = _from_the_last(pessimistic[own], answers[own], gain[own])
        optimistic, pessimistic, answers, gain = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        sizes = np.array([len(part[0]) for part in parts])
    return optimistic, pessimistic, answers, gain, sizes, N


def _from_the_last(places: Rows, answers: Rows, gain: FloatArray) -> tuple[Rows, Rows, Rows, FloatArray]:
    """Return single places for answers with NaN scores, each of which ranks last: the worst places that are free."""
    places, gain = np.repeat(places, answers), np.repeat(gain, answers)
    order = np.lexsort((gain, places))
    down = np.arange(len(places))[::-1]
    places = places[order]
    places = np.maximum(np.minimum.accumulate((places + down)[::-1])[::-1] - down, np.arange(len(places)) + 1)
    return places, places, np.ones_like(places), gain[order]


def _require_none(rows: Rows, index: Rows, starts: Rows, wrong: npt.NDArray[np.bool_], text: str) -> None:
    if wrong.any():
        first = min(starts[wrong], key=index.__getitem__)
        columns = Columns(rows[first][None])
        name, sample, side = int(columns.query[0]), int(columns.sample_id[0]), SIDES_BY_CODE[int(columns.side[0])]
        task = f"ranking task {int(index[first])}" if sample == ABSENT else f"sample id {sample}"
        called = f"query {name}" if name >= 0 else f"that of {task}"
        where = "" if side is None else f" of side {side!r}"
        raise ValueError(f"{int(wrong.sum())} queries {text}; the first is {called}{where}")
