"""`rank_long_table`: scores as tables with one row per query and candidate."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.kg.scorers import as_scores
from torchrankmetrics.ranking.arrays import as_ids
from torchrankmetrics.ranking.ranks import rank_listed, trusted
from torchrankmetrics.table.arrays import of_text
from torchrankmetrics.table.columns import SIDE_CODES, Columns, check_side_codes
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import TaskSide, check_choice, check_int

_NEEDED = ("query", "candidate", "score", "true")
_PER_TASK = ("group", "weight", "sample_id")
_COLUMNS = (*_NEEDED, "excluded", "side", *_PER_TASK)
Arrays = dict[str, npt.NDArray[Any]]


LongTable = Mapping[str, npt.ArrayLike] | Any
"""Columns of one length by name: a dict, or a table of pandas, pyarrow or Polars."""


@suggest_keywords
def rank_long_table(
    table: LongTable,
    *,
    side: TaskSide | None = None,
    num_rows: int | None = None,
    higher_is_better: bool = True,
    with_queries: bool = True,
) -> RankTable:
    """Rank the targets of a table with one row per query and candidate; each query must be whole.

    There is one task per true row, in their order, with ties and NaN as in ``rank_scores``. True
    rows that are excluded are not candidates of the other true rows of their query, which is the
    filtered setting.

    Args:
        table (DataFrame or mapping): pandas, pyarrow, Polars, or arrays by name, (T,) each, in any
            order of rows. Needed are query and candidate, integers of at least 0 or text; score;
            and booleans true. Optional are booleans excluded, for rows that are not candidates;
            side (0 to 3, or words); and of true rows group, weight and sample_id as in
            ``RankTable.from_numpy``.
        side (str, default None): of all rows, if the table has no column side.
        num_rows (int, default None): number of rows of every query, if known; it detects queries
            that are cut.
        higher_is_better (bool, default True): False for distances.
        with_queries (bool, default True): False drops the column query, so that rows of equal ranks
            can merge.

    Returns:
        The table, with one row per relevant row. A query of text is a number that depends on the
        text alone (63 bits of its BLAKE2b hash), so it is the same in every partition and process.

    Raises:
        TypeError: if a column has another kind of dtype.
        ValueError: if columns are missing, unknown or have nulls, or a query is cut or repeats a
            candidate.

    >>> from torchrankmetrics.kg import rank_long_table
    >>> scores = {"query": [7, 7, 7], "candidate": [0, 1, 2], "score": [0.1, 0.9, 0.5]}
    >>> scores["true"] = [False, False, True]
    >>> rank_long_table(scores).ranks
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """
    return _rank(_read(table, side), num_rows, higher_is_better, with_queries)


def rank_long_tables(
    tables: Iterable[LongTable],
    *,
    continued: bool = False,
    side: TaskSide | None = None,
    num_rows: int | None = None,
    higher_is_better: bool = True,
    with_queries: bool = True,
) -> Iterator[RankTable]:
    """Yield the ranks of a table, one ``RankTable`` for each partition that has rows.

    Args:
        tables (iterable of tables): partitions, as ``rank_long_table`` takes them.
        continued (bool, default False): True for batches of one table that is sorted by query (and
            side), whose last query may continue in the next batch.
        side (str, default None): of all rows, if the tables have no column side.
        num_rows (int, default None): number of rows of every query, if known; it detects queries
            that are cut.
        higher_is_better (bool, default True): False for distances.
        with_queries (bool, default True): False drops the column query, so that rows of equal ranks
            can merge.

    Raises:
        TypeError, ValueError: as ``rank_long_table``; ValueError if a query is in two partitions.

    >>> from torchrankmetrics.kg import rank_long_tables
    >>> columns = {"candidate": [0, 1], "score": [0.1, 0.9], "true": [True, False]}
    >>> parts = [{"query": [q, q], **columns} for q in (0, 1)]
    >>> [len(table.ranks) for table in rank_long_tables(parts)]
    [1, 1]
    """
    seen: dict[int, npt.NDArray[np.int64]] = {}  # queries of earlier partitions, by side
    rest: Arrays = {}  # rows of the last query, if it may continue
    number = 0
    for number, table in enumerate(tables):
        columns = _read(table, side)
        if rest and len(columns["query"]):
            columns = _continued(rest, columns, number)
        if continued and len(columns["query"]):
            last = (columns["query"] == columns["query"][-1]) & (
                columns["side"] == columns["side"][-1]
            )
            rest = {name: values[last] for name, values in columns.items()}
            columns = {name: values[~last] for name, values in columns.items()}
        if len(columns["query"]):
            _check_new(columns, number, seen)
            yield _rank(columns, num_rows, higher_is_better, with_queries)
    if rest:
        _check_new(rest, number, seen)
        yield _rank(rest, num_rows, higher_is_better, with_queries)


def _continued(rest: Arrays, columns: Arrays, number: int) -> Arrays:
    """Rows of a query of the previous partition, then the rows of partition ``number``."""
    if rest.keys() != columns.keys():
        raise ValueError(
            f"partition {number} has other columns than the previous one: {', '.join(columns)}"
        )
    return {name: np.concatenate([rest[name], values]) for name, values in columns.items()}


def _check_new(columns: Arrays, number: int, seen: dict[int, npt.NDArray[np.int64]]) -> None:
    """Check that no query of partition ``number`` was in an earlier one."""
    for code in np.unique(columns["side"]).tolist():
        queries = np.unique(columns["query"][columns["side"] == code])
        before = seen.get(code, queries[:0])
        if len(again := np.intersect1d(queries, before, assume_unique=True)):
            raise ValueError(
                f"partition {number} has query {again[0]} of an earlier one: partition or sort by "
                "query"
            )
        seen[code] = np.concatenate([before, queries])


def _read(table: LongTable, side: TaskSide | None) -> Arrays:
    """Columns of a table as arrays, checked, with a column of sides and one of excluded rows."""
    found = _arrays(table)
    found["query"] = _read_queries(found["query"])
    found.setdefault("excluded", np.zeros_like(found["true"], dtype=bool))
    for name in ("true", "excluded"):
        found[name] = _read_booleans(found[name], name)
    if side is not None and "side" in found:
        raise ValueError("side is a column of the table already")
    code = SIDE_CODES[check_choice("side", side, SIDE_CODES)]
    if "side" in found:
        found["side"] = of_text(found["side"], "side")
    else:
        found["side"] = np.full(len(found["query"]), code)
    check_side_codes(found["side"])
    return found


def _arrays(table: LongTable) -> Arrays:
    """Columns of a table without nulls, (T,) each."""
    found = {}
    for name in _column_names(table):
        values = table[name]
        nulls = getattr(values, "null_count", 0)
        number = nulls() if callable(nulls) else nulls
        if number:
            raise ValueError(f"{name} has {number} nulls: every row needs a value")
        found[name] = np.asarray(values)
    if {array.shape for array in found.values()} != {(found["query"].size,)}:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        raise ValueError(f"columns must be (T,), all of one length; got {shapes}")
    return found


def _column_names(table: LongTable) -> list[str]:
    """Names of the columns of a table, checked."""
    listed = table
    if not isinstance(table, Mapping):
        listed = getattr(table, "column_names", getattr(table, "columns", None))
    if listed is None:
        raise TypeError(
            "table must have named columns (pandas, pyarrow, Polars, a dict), got "
            f"{type(table).__name__}"
        )
    names = list(listed)
    if not set(_NEEDED) <= set(names) <= set(_COLUMNS):
        raise ValueError(
            f"columns must be among {', '.join(_COLUMNS)}, with the first four; got "
            f"{', '.join(names)}"
        )
    return names


def _read_booleans(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.bool_]:
    """Read booleans, or integers 0 and 1; an empty column may have any dtype."""
    is_binary = array.dtype.kind in "iu" and np.isin(array, (0, 1)).all()
    if len(array) and array.dtype != bool and not is_binary:
        raise TypeError(f"{name} must contain booleans, or 0 and 1; got {array.dtype}")
    return array.astype(bool)


def _read_queries(query: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Read ids of queries: int64 of at least 0, or text."""
    if query.dtype.kind in "OUT" and all(isinstance(name, str) for name in query.tolist()):
        return query.astype(str)
    ids = as_ids(query, "query").numpy()
    if len(ids) and ids.min() < 0:
        raise ValueError(f"query must contain ids of at least 0, got {ids.min()}")
    return ids


def _query_numbers(query: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return int64 numbers of queries; of text 63 bits of a hash."""
    if query.dtype.kind != "U":
        return query
    names, index = np.unique(query, return_inverse=True)
    digests = [blake2b(name.encode(), digest_size=8).digest() for name in names.tolist()]
    numbers = [int.from_bytes(digest, "big") >> 1 for digest in digests]
    return np.array(numbers, dtype=np.int64)[index]


def _rank(
    columns: Arrays, num_rows: int | None, higher_is_better: bool, with_queries: bool
) -> RankTable:
    side = columns["side"].astype(np.int64)
    scores = as_scores(columns["score"], torch.device("cpu"), higher_is_better)
    if scores.is_complex() or scores.dtype == torch.bool:
        raise TypeError(f"score must contain real numbers, got {columns['score'].dtype}")
    owner = np.unique(columns["query"], return_inverse=True)[1].reshape(-1)
    if (side != side[:1]).any():
        owner = np.unique(owner * 4 + side, return_inverse=True)[1].reshape(-1)
    _check_whole(columns, owner, num_rows)
    true = torch.from_numpy(columns["true"])
    excluded = torch.from_numpy(columns["excluded"])
    ranks, place = rank_listed(scores, true, torch.from_numpy(owner), excluded)
    at = place.numpy()
    names = (*_PER_TASK, "query") if with_queries else _PER_TASK
    facts: dict[str, Any] = {name: columns[name][at] for name in names if name in columns}
    if with_queries:
        facts["query"] = _query_numbers(facts["query"])
    rows = RankTable.from_ranks(trusted(ranks.columns, ranks.flags), **facts).rows
    Columns(rows).side_and_flags |= torch.from_numpy(side[at])
    return RankTable(rows)


def _check_whole(columns: Arrays, owner: npt.NDArray[np.int64], num_rows: int | None) -> None:
    """Check that no query is split, cut or duplicated."""
    number = np.bincount(owner)
    candidate = np.unique(columns["candidate"], return_inverse=True)[1].reshape(-1)
    order = np.lexsort((candidate, owner))
    same = (owner[order][1:] == owner[order][:-1]) & (candidate[order][1:] == candidate[order][:-1])
    if same.any():
        row = order[1 + int(same.argmax())]
        raise ValueError(
            f"candidate {columns['candidate'][row]} comes twice in query {columns['query'][row]}"
        )
    true = np.bincount(owner[columns["true"]], minlength=len(number))
    wrong = true == 0
    if num_rows is not None:
        wrong |= number != check_int("num_rows", num_rows, 1)
    if wrong.any():
        first = int(wrong.argmax())
        query = columns["query"][owner == first][0]
        rows = "" if num_rows is None else f" and {num_rows} rows"
        raise ValueError(
            f"query {query} has {number[first]} rows here, {true[first]} of them true; it "
            f"must be whole in one partition, with a relevant item{rows}: partition the table by "
            "query"
        )
