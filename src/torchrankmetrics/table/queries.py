"""Rows of one query as places of its relevant items in one list of candidates."""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.canonical import canonical_rows
from torchrankmetrics.table.columns import (
    ABSENT,
    SIDE_CODES,
    SIDES_BY_CODE,
    Columns,
    Rows,
    combined,
    num_copies,
    weights,
)
from torchrankmetrics.validation import TaskSide


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries with the tie blocks of their answers, best first; places count all candidates, other answers too.

    Attributes:
        optimistic: (b,) int64, first place of each block.
        pessimistic: (b,) int64, last place.
        answers: (b,) int64, how many answers are tied in the block.
        blocks: (q,) int64, number of blocks of each query.
        num_candidates: (q,) int64, answers included.
        weight: (q,) float64, of one query.
        count: (q,) int64, how many equal queries an entry stands for.
        side, group: (q,) int64, as the columns of rows.
        row: (q,) int64, index of the row of an answer among those that the queries were read from.
    """

    optimistic: Rows
    pessimistic: Rows
    answers: Rows
    blocks: Rows
    num_candidates: Rows
    weight: npt.NDArray[np.float64]
    count: Rows
    side: Rows
    group: Rows
    row: Rows

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def starts(self) -> Rows:
        """(q + 1,) where the blocks of each query begin, and where the last ends."""
        return np.append(0, np.cumsum(self.blocks))

    @property
    def num_answers(self) -> Rows:
        """(q,) int64."""
        return np.add.reduceat(self.answers, self.starts[:-1]) if len(self) else self.blocks

    def of_side(self, side: Literal["both"] | TaskSide) -> npt.NDArray[np.bool_]:
        """Which are of a side, (q,)."""
        code = self.side if side == "both" else SIDE_CODES[side]
        of_it: npt.NDArray[np.bool_] = self.side == code
        return of_it

    def take(self, index: Rows | npt.NDArray[np.bool_]) -> "Queries":
        """The queries of an index or a mask, in its order."""
        index = np.flatnonzero(index) if index.dtype == bool else index
        blocks = self.blocks[index]
        first = np.repeat(self.starts[:-1][index] - (np.cumsum(blocks) - blocks), blocks)
        inside = first + np.arange(len(first))
        names = [field.name for field in fields(self)]
        return Queries(*(getattr(self, name)[inside if i < 3 else index] for i, name in enumerate(names)))

    def merged(self) -> "Queries":
        """Equal ones as one entry, in an order of their content: neither names nor the order of rows matter."""
        starts = self.starts
        of_block = combined(self.optimistic, self.pessimistic, self.answers)
        content = np.add.reduceat(of_block, starts[:-1]) if len(self) else self.blocks
        facts = (self.side, self.group, self.weight.view(np.int64), self.num_candidates, self.blocks)
        order = np.lexsort((content, combined(content, *facts)))
        first = np.ones(len(self), dtype=bool)
        first[1:] = np.diff(content[order]) != 0
        for fact in facts:
            first[1:] |= np.diff(fact[order]) != 0
        kept = self.take(order[first])
        if len(self):
            kept.count[:] = np.add.reduceat(self.count[order], np.flatnonzero(first))
        return kept


def queries_of(rows: Rows, partition: Rows | None = None) -> Queries:
    """Find the queries of rows, and the places of their answers.

    Ranks that leave other answers out become places by putting them back: answers are better than those with more
    candidates above them that are left in by all, and what stands between the same two of these is next to each other,
    so that every metric of sets of places is the same whatever their order.

    Args:
        rows: (n, 10), repeats dropped.
        partition: (n,) which rows are answers of the same queries; None: as the rows say.

    Raises:
        ValueError: if answers of a query differ in weight, group or number of candidates, do not fit into one list, do
            not say whether their ranks are filtered, or some of them are missing.
    """
    columns = Columns(rows)
    alone = columns.query == ABSENT
    singles = _singles(rows[alone], np.flatnonzero(alone))
    if alone.all():
        return singles
    several = np.flatnonzero(~alone)
    return _joined(singles, _several(rows[several], several, None if partition is None else partition[several]))


def check_queries(block: Tensor) -> None:
    """Refuse rows of an update as ``queries_of`` does, on the CPU; on an accelerator ``compute`` refuses them."""
    if block.is_cpu and (Columns(block).query != ABSENT).any():
        queries_of(canonical_rows(block.numpy())[0])


def _singles(rows: Rows, index: Rows) -> Queries:
    """Queries of one answer: its rank is its place."""
    columns = Columns(rows)
    ones = np.ones(len(rows), dtype=np.int64)
    return Queries(
        *(columns.optimistic, columns.pessimistic, ones, ones, columns.num_candidates, weights(rows)),
        *(columns.count, columns.side, columns.group, index),
    )


def _joined(one: Queries, two: Queries) -> Queries:
    return Queries(*(np.concatenate([getattr(one, f.name), getattr(two, f.name)]) for f in fields(Queries)))


def _several(rows: Rows, index: Rows, partition: Rows | None) -> Queries:
    rows, index, first = _side_by_side(rows, index, partition)
    columns = Columns(rows)
    filtered, last = _in_common(columns)
    starts = np.flatnonzero(first)
    of = np.cumsum(first) - 1
    copies = np.ones(len(starts), dtype=np.int64)
    unnamed = columns.query[starts] < 0
    if unnamed.any():
        inside = unnamed[of]
        copies[unnamed] = num_copies(rows[inside], np.flatnonzero(first[inside]))
        _refuse(
            copies == 0,
            *(rows, starts),
            "lack answers that came in the same update, or have answers that differ in weight or group: say the same "
            "of all answers of a query, and name queries with query= whose answers come apart",
        )
    count = columns.count // copies[of]
    left_in = columns.num_candidates - filtered
    for what, values in (
        ("weight", columns.weight_bits),
        ("group", columns.group),
        ("num_candidates without its own answers", left_in),
    ):
        _refuse(_differ(values, starts, of), rows, starts, f"have answers that differ in {what}")
    number = np.add.reduceat(count, starts)
    unsaid = columns.flags & (fault.FILTERED | fault.RAW) == 0
    _refuse(
        (number > 1) & np.logical_or.reduceat(unsaid, starts),
        *(rows, starts),
        "have several answers of which nothing says whether the ranks of each leave the others out: pass scores, or "
        "Ranks(..., filtered=True) or (..., filtered=False)",
    )
    blocks = _blocks(rows, starts, of, count, filtered, last)
    own = (weights(rows)[starts], copies, columns.side[starts], columns.group[starts], index[starts])
    return Queries(*blocks, *own)


def _in_common(columns: Columns[Rows]) -> tuple[Rows, Rows]:
    """Which ranks are filtered, 0 or 1, and the last place among the candidates that no rank leaves out.

    There a filtered answer stands between two places, or in a block of others.
    """
    filtered = (columns.flags & fault.FILTERED > 0).astype(np.int64)
    return filtered, columns.pessimistic - filtered


def _side_by_side(rows: Rows, index: Rows, partition: Rows | None) -> tuple[Rows, Rows, npt.NDArray[np.bool_]]:
    """Sort rows by query, then by place, add up equal ones, and tell which begin a query."""
    columns = Columns(rows)
    nameless = columns.query < 0
    told_apart = (np.where(nameless, column, 0) for column in (columns.weight_bits, columns.group))
    keys = (*told_apart, columns.query, columns.side) if partition is None else (partition,)
    said = columns.flags & (fault.FILTERED | fault.RAW)
    facts = (columns.sample_id, columns.weight_bits, columns.group, said, columns.num_candidates)
    sorts = (*facts, _in_common(columns)[1], columns.optimistic, *keys)
    order = np.lexsort(sorts)
    new_query, new_row = (np.ones(len(order), dtype=bool) for _ in range(2))
    new_query[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    new_row[1:] = np.any([np.diff(key[order]) != 0 for key in sorts], axis=0)
    kept = np.flatnonzero(new_row)
    merged = rows[order[kept]]
    Columns(merged).count = np.add.reduceat(columns.count[order], kept)
    Columns(merged).side_and_flags = np.bitwise_or.reduceat(columns.side_and_flags[order], kept)
    return merged, index[order[kept]], new_query[kept]


def _blocks(
    rows: Rows, starts: Rows, of: Rows, count: Rows, filtered: Rows, last: Rows
) -> tuple[Rows, Rows, Rows, Rows, Rows]:
    """Put the filtered answers back among the candidates: the first five attributes of ``Queries``."""
    columns = Columns(rows)
    begins = np.zeros(len(rows), dtype=bool)
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
    wrong = answers > pessimistic - optimistic + 1
    wrong[1:] |= (owner[1:] == owner[:-1]) & (optimistic[1:] <= pessimistic[:-1])
    broken = np.logical_or.reduceat(wrong, heads)
    if broken.any():
        nan = np.logical_or.reduceat(columns.flags & fault.NAN > 0, starts)
        _refuse(
            broken & ~(nan & (np.add.reduceat(count, starts) <= N)),
            *(rows, starts),
            "have answers whose ranks are not of one list of candidates (more answers than places, or tied with each "
            "other in part)",
        )
        pieces = np.split(np.arange(len(block)), heads[1:])
        parts = [(optimistic[i], pessimistic[i], answers[i]) for i in pieces]
        for i in np.flatnonzero(broken):
            parts[i] = _from_the_last(pessimistic[pieces[i]], answers[pieces[i]])
        optimistic, pessimistic, answers = (np.concatenate(part) for part in zip(*parts, strict=True))
        blocks = np.array([len(part[0]) for part in parts])
    else:
        blocks = np.diff(np.append(heads, len(block)))
    return optimistic, pessimistic, answers, blocks, N


def _from_the_last(places: Rows, answers: Rows) -> tuple[Rows, Rows, Rows]:
    """Single places for answers with NaN scores, each of which ranks last: as bad as there is room."""
    places = np.sort(np.repeat(places, answers))
    down = np.arange(len(places))[::-1]
    places = np.maximum(np.minimum.accumulate((places + down)[::-1])[::-1] - down, np.arange(len(places)) + 1)
    return places, places, np.ones_like(places)


def _differ(values: Rows, starts: Rows, of: Rows) -> npt.NDArray[np.bool_]:
    differ: npt.NDArray[np.bool_] = np.logical_or.reduceat(values != values[starts][of], starts)
    return differ


def _refuse(wrong: npt.NDArray[np.bool_], rows: Rows, starts: Rows, text: str) -> None:
    if wrong.any():
        columns = Columns(rows[starts[wrong][:1]])
        name, side = int(columns.query[0]), SIDES_BY_CODE[int(columns.side[0])]
        called = f"query {name}" if name >= 0 else "a query without a name"
        where = "" if side is None else f" of side {side!r}"
        raise ValueError(f"{int(wrong.sum())} queries {text}; the first is {called}{where}")
