"""`rank_long_table`: scores as tables with one row per query and candidate."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from torchrankmetrics.ranking.arrays import as_ids, as_tensor
from torchrankmetrics.ranking.flags import FILTERED, NAN
from torchrankmetrics.ranking.scores import rank_listed
from torchrankmetrics.table.columns import SIDE_CODES, SIDE_WORDS, check_side_codes
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import TaskSide, check_choice, check_int

_NEEDED = ("query", "candidate", "score", "true")
_PER_TASK = ("group", "weight", "sample_id")
_COLUMNS = (*_NEEDED, "excluded", "side", *_PER_TASK)
Arrays = dict[str, npt.NDArray[Any]]


class Frame(Protocol):
    """Named columns of one length: a table of pandas, pyarrow or Polars."""

    def __getitem__(self, name: str, /) -> object:
        """Return a column."""


LongTable = Mapping[str, npt.ArrayLike] | Frame
"""Columns of one length by name: a dict, or a table of pandas, pyarrow or Polars."""


def rank_long_table(
    table: LongTable,
    *,
    side: TaskSide | None = None,
    num_rows: int | None = None,
    higher_is_better: bool = True,
    with_queries: bool = True,
) -> RankTable:
    """Rank the true candidates of a table with one row per query and candidate; each query must be whole.

    There is one task per true row, in their order, with ties and NaN as in ``rank_scores``. True rows that are excluded
    are not candidates of the other true rows of their query, which is the filtered setting.

    Args:
        table (DataFrame or mapping): pandas, pyarrow, Polars, or arrays by name, (T,) each: integers query, of at least
            0; candidate; score; booleans true and, if some rows are not candidates, excluded; side (0 to 3, or words).
            Read from true rows only: group, weight and sample_id as in ``RankTable.from_numpy``. Rows may have any
            order.
        side (str, default None): of all rows, if the table has no column side.
        num_rows (int, default None): number of rows of every query, excluded rows included, if known; it detects
            queries that are cut.
        higher_is_better (bool, default True): False for distances.
        with_queries (bool, default True): False drops the column query, so that rows of equal ranks can merge.

    Returns:
        The table, with one row per relevant row.

    Raises:
        TypeError: if a column has another kind of dtype.
        ValueError: if columns are missing, unknown or have nulls (of pyarrow and Polars), a candidate comes twice in a
            query, or a query has no true candidate or not ``num_rows`` rows.

    >>> scores = {"query": [7, 7, 7], "candidate": [0, 1, 2], "score": [0.1, 0.9, 0.5], "true": [False, False, True]}
    >>> rank_long_table(scores).ranks
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """
    columns = _read(table, side)
    return _rank(columns, side, num_rows, higher_is_better, with_queries)


def rank_long_tables(
    tables: Iterable[LongTable],
    *,
    continued: bool = False,
    side: TaskSide | None = None,
    num_rows: int | None = None,
    higher_is_better: bool = True,
    with_queries: bool = True,
) -> Iterator[RankTable]:
    """Yield the ranks of a table partition by partition, one ``RankTable`` per partition that has rows.

    Args:
        tables (iterable of tables): partitions, as ``rank_long_table`` takes them.
        continued (bool, default False): True for batches of one table that is sorted by query (and side): the last
            query of a batch may continue in the next batch, and is ranked there.
        side (str, default None): as in ``rank_long_table``.
        num_rows (int, default None): as in ``rank_long_table``.
        higher_is_better (bool, default True): as in ``rank_long_table``.
        with_queries (bool, default True): as in ``rank_long_table``.

    Raises:
        TypeError, ValueError: as ``rank_long_table``; ValueError if a query is in two partitions.

    >>> parts = [{"query": [q, q], "candidate": [0, 1], "score": [0.1, 0.9], "true": [True, False]} for q in (0, 1)]
    >>> [len(table.ranks) for table in rank_long_tables(parts)]
    [1, 1]
    """
    seen: dict[int, npt.NDArray[np.int64]] = {}
    rest: Arrays = {}
    options = (side, num_rows, higher_is_better, with_queries)
    for number, table in enumerate(tables):
        columns = _read(table, side)
        if rest and len(columns["query"]):
            if rest.keys() != columns.keys():
                raise ValueError(f"partition {number} has other columns than the previous one: {', '.join(columns)}")
            columns = {name: np.concatenate([rest[name], values]) for name, values in columns.items()}
            rest = {}
        if continued and len(columns["query"]):
            ends = columns["query"] == columns["query"][-1]
            if "side" in columns:
                ends &= columns["side"] == columns["side"][-1]
            rest = {name: values[ends] for name, values in columns.items()}
            columns = {name: values[~ends] for name, values in columns.items()}
        _check_new(columns, seen, number)
        if len(columns["query"]):
            yield _rank(columns, *options)
    if rest:
        _check_new(rest, seen, number)
        yield _rank(rest, *options)


def _check_new(columns: Arrays, seen: dict[int, npt.NDArray[np.int64]], number: int) -> None:
    """Check that no query was in an earlier partition, by side, and add these queries."""
    sides = columns.get("side", np.zeros(len(columns["query"]), dtype=np.int64))
    for side in np.unique(sides).tolist():
        queries = np.unique(columns["query"][sides == side])
        before = seen.get(side, np.empty(0, dtype=np.int64))
        again = np.intersect1d(queries, before, assume_unique=True)
        if len(again):
            raise ValueError(
                f"query {again[0]} of partition {number} was in an earlier partition: partition or sort by query"
            )
        seen[side] = np.concatenate([before, queries])


def _read(table: LongTable, side: TaskSide | None) -> Arrays:
    """Columns of a table as arrays, checked."""
    listed = table if isinstance(table, Mapping) else getattr(table, "column_names", getattr(table, "columns", None))
    if listed is None:
        raise TypeError(f"table must have named columns (pandas, pyarrow, Polars, a dict), got {type(table).__name__}")
    names = list(listed)
    if missing := [name for name in _NEEDED if name not in names]:
        raise ValueError(f"table must hold {', '.join(_NEEDED)}; it has no {' and no '.join(missing)}")
    if unknown := [name for name in names if name not in _COLUMNS]:
        raise ValueError(
            f"columns must be among {', '.join(_COLUMNS)}; got {', '.join(map(repr, unknown))}: leave it out"
        )
    found = {name: _array(table[name], name) for name in names}
    if len({array.shape for array in found.values()}) != 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        raise ValueError(f"columns must be (T,), all of one length; got {shapes}")
    found["query"] = as_ids(found["query"], "query").numpy()
    if len(found["query"]) and found["query"].min() < 0:
        raise ValueError(f"query must hold ids of at least 0, got {found['query'].min()}")
    for name in ("true", "excluded"):
        if name not in found:
            continue
        array = found[name]
        is_binary = array.dtype.kind in "iu" and bool(((array == 0) | (array == 1)).all())
        if len(array) and array.dtype != bool and not is_binary:
            raise TypeError(f"{name} must hold booleans, or 0 and 1; got {array.dtype}")
        found[name] = array.astype(bool)
    if "side" in found:
        found["side"] = _sides(found["side"])
        if side is not None:
            raise ValueError("side is a column of the table already")
    return found


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    nulls = getattr(values, "null_count", 0)
    if number := nulls() if callable(nulls) else nulls:
        raise ValueError(f"{name} has {number} nulls: every row needs a value")
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be (T,), got shape {array.shape}")
    return array


def _sides(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if array.dtype.kind in "iu":
        check_side_codes(array)
        return array.astype(np.int64)
    words = SIDE_WORDS | {None: SIDE_CODES[None]}
    return np.array([words[check_choice("side", word, words)] for word in array.tolist()], dtype=np.int64)


def _rank(
    columns: Arrays, side: TaskSide | None, num_rows: int | None, higher_is_better: bool, with_queries: bool
) -> RankTable:
    check_choice("side", side, SIDE_CODES)
    true = columns["true"]
    excluded = columns.get("excluded", np.zeros_like(true))
    scores = as_tensor(columns["score"], "score") if len(true) else torch.zeros(0, device="cpu")
    if scores.is_complex() or scores.dtype == torch.bool:
        raise TypeError(f"score must hold real numbers, got {scores.dtype}")
    _, owner = np.unique(columns["query"], return_inverse=True)
    if "side" in columns:
        _, owner = np.unique(owner * 4 + columns["side"], return_inverse=True)
    owner = owner.astype(np.int64).reshape(-1)
    _check_whole(columns, owner, num_rows)
    if not higher_is_better:
        scores = -(scores if scores.is_floating_point() else scores.double())
    relevant, query, gone = (torch.from_numpy(part) for part in (true, owner, excluded))
    ranks, place = rank_listed(scores, relevant, query, gone)
    at = place.numpy()
    names = ("optimistic", "pessimistic", "num_candidates")
    arrays: Arrays = dict(zip(names, ranks.columns.numpy(), strict=True))
    flags = np.zeros(len(at), dtype=np.int64) if ranks.flags is None else ranks.flags.numpy()
    arrays["nan"] = flags & NAN > 0
    arrays["side"] = columns["side"][at] if "side" in columns else np.full(len(at), SIDE_CODES[side])
    arrays |= {name: columns[name][at] for name in _PER_TASK if name in columns}
    if with_queries:
        filtered = flags & FILTERED > 0
        arrays |= {"query": columns["query"][at], "filtered": filtered, "raw": ~filtered}
    return RankTable.from_numpy(arrays)


def _check_whole(columns: Arrays, owner: npt.NDArray[np.int64], num_rows: int | None) -> None:
    """Check that no query is split, cut or duplicated."""
    number = np.bincount(owner)
    candidate = np.unique(columns["candidate"], return_inverse=True)[1].reshape(-1)
    order = np.lexsort((candidate, owner))
    same = (owner[order][1:] == owner[order][:-1]) & (candidate[order][1:] == candidate[order][:-1])
    if same.any():
        row = order[1 + int(same.argmax())]
        raise ValueError(f"candidate {columns['candidate'][row]} comes twice in query {columns['query'][row]}")
    faults = [(np.bincount(owner[columns["true"]], minlength=len(number)) == 0, "has no true candidate")]
    if num_rows is not None:
        num_rows = check_int("num_rows", num_rows, 1)
        faults.append((number != num_rows, f"has not {num_rows} rows, but {{}}"))
    for wrong, text in faults:
        if wrong.any():
            first = int(wrong.argmax())
            query = columns["query"][owner == first][0]
            raise ValueError(
                f"query {query} {text.format(number[first])} here: it must be whole in one partition, so partition the "
                "table by query, and leave out queries without a relevant item"
            )
