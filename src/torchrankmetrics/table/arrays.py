"""Rows as plain arrays by name, and from columns of text."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.errors import missing_extra, warn
from torchrankmetrics.parsing import is_plain, parse_number
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_array, as_ids
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    SIDE_BITS,
    SIDE_WORDS,
    WIDTH,
    Columns,
    check_side_codes,
    is_empty_query,
    raise_faults,
    refuse,
)
from torchrankmetrics.validation import MOST_CANDIDATES, shorten, truncate

if TYPE_CHECKING:
    import pandas

Array = npt.NDArray[Any]
VERSION_FIELD = "rank_table_version"
_VERSIONS = ("1", "2", "3", "4", "5", "6")
# the first version of a file that may have this array
_NEW_IN = {"query": 2, "partial": 3, "gain": 4, "excluded": 6, "empty": 6}
_UNKNOWN_IN = 5  # the first version of a file that may lack num_candidates
# arrays of numbers, with the stored number that an array is left out for
_STORED = {
    **{
        "optimistic": None,
        "pessimistic": None,
        "num_candidates": fault.UNKNOWN,
        "side": 0,
        "group": ABSENT,
    },
    **{"sample_id": ABSENT, "count": 1, "query": ABSENT, "weight": ONE, "gain": ONE},
}
_FLOATS = ("weight", "gain")  # stored as bits
_COLUMNS = {"side": "side_and_flags", "weight": "weight_bits", "gain": "gain_bits"}
_FLAGS = {
    name: getattr(fault, name.upper())
    for name in ("nan", "sampled", "partial", "filtered", "raw", "excluded", "empty")
}
_NAMES = (*_STORED, *_FLAGS)
# columns of text that may have missing values
_OPTIONAL = ("side", "group", "sample_id", "query", *_FLAGS)
# words of columns of text, with their numbers
_WORDS = {"side": SIDE_WORDS, **{name: {"true": 1, "false": 0} for name in _FLAGS}}
_MISSING = ("", "nan", "none", "<na>")  # as CSV files, NumPy and pandas write missing values
_WIDEST = 400  # characters of a cell; the longest decimal integer of a float64 has 309
_EXACT = 2.0**53  # larger floats are not exact integers


def to_arrays(rows: Tensor) -> dict[str, Array]:
    """Write rows as arrays by name, without columns of default values; raise flagged faults."""
    table = Columns(rows.cpu().numpy())
    flags = table.flags
    raise_faults(flags)
    arrays: dict[str, Array] = {}
    for name, default in _STORED.items():  # a copy of a column of default values is freed at once
        column = (
            table.side.copy() if name == "side" else getattr(table, _COLUMNS.get(name, name)).copy()
        )
        if default is None or (column != default).any():
            arrays[name] = column.view(np.float64) if name in _FLOATS else column
    return arrays | {name: flags & bit > 0 for name, bit in _FLAGS.items() if (flags & bit).any()}


def from_arrays(arrays: Mapping[str, npt.ArrayLike]) -> Tensor:
    """Read rows from arrays by name, as ``RankTable.from_numpy`` describes them."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays must be a dict of arrays by name, got {type(arrays).__name__}")
    check_names(arrays)
    if "optimistic" not in arrays:
        raise ValueError(
            f"arrays must contain optimistic, got {truncate(', '.join(map(str, arrays))) or 'none'}"
        )
    n = len(_vector(arrays["optimistic"], "optimistic", None))
    given = {name: _vector(values, name, n) for name, values in arrays.items()}
    # in memory by columns, as they are written and read
    table = Columns(np.empty((WIDTH, n), dtype=np.int64).T)
    for name, default in _STORED.items():
        column: Array | int | None = default if name != "pessimistic" else table.optimistic
        if name in given:
            column = _stored(given[name], name)
        setattr(table, _COLUMNS.get(name, name), column)
    check_side_codes(table.side_and_flags)
    refuse(table.count < 1, table.count, "count must be at least 1")
    refuse(
        (table.sample_id != ABSENT) & (table.count != 1),
        table.count,
        "count must be 1 in rows with a sample_id: repeats of an id count once",
    )
    for name in filter(given.__contains__, _FLAGS):
        if n and given[name].dtype != bool:
            raise TypeError(f"{name} must contain booleans, got {given[name].dtype}")
        table.side_and_flags |= given[name].astype(np.int64) * (_FLAGS[name] << SIDE_BITS)
    _check_ranks(table)
    marks = table.flags & (fault.FILTERED | fault.RAW)
    refuse(marks == fault.FILTERED | fault.RAW, marks > 0, "filtered and raw must not both be true")
    refuse(
        (marks > 0) & (table.query == ABSENT),
        marks > 0,
        "filtered and raw must be false in rows without a query",
    )
    return torch.from_numpy(table.rows)


def _stored(values: Array, name: str) -> Array:
    """Read the numbers of a column as int64; weights and gains as the bits of float64."""
    if name not in _FLOATS:
        return as_ids(values, name).numpy()
    if len(values) and values.dtype.kind not in "iuf":
        raise TypeError(f"{name} must contain real numbers, got {values.dtype}")
    numbers = values.astype(np.float64) + 0.0  # -0.0 and 0.0 have different bits
    refuse(
        ~(np.isfinite(numbers) & (numbers >= 0)),
        numbers,
        f"{name} must be finite and not negative",
    )
    return numbers.view(np.int64)


def _check_ranks(table: Columns[Any]) -> None:
    """Check the ranks, which are 0 in rows of queries without a relevant item."""
    is_empty = is_empty_query(table.rows)
    refuse(
        is_empty & ((table.optimistic != 0) | (table.pessimistic != 0)),
        table.optimistic,
        "ranks must be 0 in rows that are empty",
    )
    refuse(
        is_empty & (table.sample_id != ABSENT),
        table.sample_id,
        "sample_id must be absent in rows that are empty",
    )
    low, high, N = table.rows[~is_empty, :3].T
    Ranks(low, high, np.where(N != fault.UNKNOWN, N, MOST_CANDIDATES))  # checks the values


def check_names(names: Iterable[str]) -> None:
    """Check the names of columns."""
    if unknown := [name for name in names if name not in _NAMES]:
        raise ValueError(
            f"arrays must be among {', '.join(_NAMES)}; got "
            f"{truncate(', '.join(map(repr, unknown)))}"
        )


def check_version(version: str, names: Collection[str]) -> None:
    """Check that a file has a supported version, and the columns of its version."""
    if version not in _VERSIONS:
        raise ValueError(
            f"its {VERSION_FIELD} is {truncate(version)}; this library reads {', '.join(_VERSIONS)}"
        )
    if int(version) < (needed := version_of(names)):
        raise ValueError(
            f"its {VERSION_FIELD} is {version}, but files of its columns have at least {needed}"
        )


def version_of(names: Collection[str]) -> int:
    """The first version that has these columns."""
    first = max((_NEW_IN.get(name, 1) for name in names), default=1)
    return first if "num_candidates" in names else max(first, _UNKNOWN_IN)


def _vector(values: npt.ArrayLike, name: str, n: int | None) -> Array:
    array = as_array(values, name)
    # one number for all tasks
    if array.ndim == 0 and n is not None and name not in ("optimistic", "sample_id"):
        return np.full(n, array)
    if array.ndim != 1 or (n is not None and len(array) != n):
        expected = "(tasks,)" if n is None else f"(tasks,) = ({n},) as optimistic"
        raise ValueError(f"{name} must be {expected}, got shape {array.shape}")
    return array


def from_columns(names: Sequence[object], columns: Iterable[npt.ArrayLike], source: str) -> Tensor:
    """Read rows from ``rank``, or both of its ends, and the columns of ``from_numpy``."""
    listed = truncate(", ".join(map(str, names))) or "none"
    if len(set(names)) < len(names):
        raise ValueError(f"columns must have different names, got {listed}")
    known = ("rank", *_NAMES)
    found = {
        str(name): np.asarray(column)
        for name, column in zip(names, columns, strict=True)
        if name in known
    }
    if not ("rank" in found) ^ (found.keys() >= {"optimistic", "pessimistic"}):
        upper = any(str(name) not in known and str(name).lower() in known for name in names)
        hint = "; write names in lower case" * upper
        if not upper and (near := difflib.get_close_matches("rank", map(str, names), n=1)):
            hint = f"; rename {shorten(near[0])} to 'rank'"
        raise ValueError(
            "columns must contain rank, or optimistic and pessimistic (with ties); got "
            f"{listed}{hint}"
        )
    arrays = {name: of_text(values, name) for name, values in found.items()}
    if "rank" in arrays:
        arrays["optimistic"] = arrays.pop("rank")
    rows = from_arrays(arrays)
    if ignored := [str(name) or "(unnamed)" for name in names if name not in known]:
        warn(f"{source}: ignored the columns {truncate(', '.join(ignored))}")
    return rows


def from_frame(frame: Any) -> Tensor:
    """Read the columns of a pandas.DataFrame as rows (n, 10)."""
    if not hasattr(frame, "columns") or not hasattr(frame, "items"):
        raise TypeError(
            f"frame must be a pandas.DataFrame, got {type(frame).__name__}; from_numpy takes a dict"
        )
    if any(name in ("rank", *_NAMES) for name in getattr(frame.index, "names", ())):
        frame = frame.reset_index()
    columns = [_plain_array(column) for _, column in frame.items()]
    return from_columns(list(frame.columns), columns, "frame")


def _plain_array(column: Any) -> Array:
    """Return a column as an array, of objects for extension dtypes such as Int64."""
    values: Array = column.to_numpy(None if isinstance(column.dtype, np.dtype) else object)
    return values


def to_frame(rows: Tensor) -> "pandas.DataFrame":
    """Return the arrays as a data frame, with sides as words and missing ids as NA."""
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("to_pandas", "pandas", "pandas") from error

    frame = pandas.DataFrame(to_arrays(rows))
    for column in frame.columns.intersection(["group", "sample_id", "query"]):
        frame[column] = frame[column].astype("Int64").mask(frame[column] == ABSENT)
    if "side" in frame:
        frame["side"] = frame["side"].map({code: word for word, code in SIDE_WORDS.items()})
    return frame


def of_text(values: Array, column: str) -> Array:
    """Read text or numbers as the dtype of ``RankTable.from_numpy``.

    Sides, groups, ids and flags may be missing.
    """
    if values.dtype.kind in "iu" or (values.dtype == bool and column in _FLAGS):
        return values
    if values.dtype == object:  # NumPy stores every cell as wide as the widest
        widths = np.array([len(str(value)) for value in values])
        refuse(widths > _WIDEST, widths, f"{column} must have at most {_WIDEST} characters")
    text = np.char.lower(np.char.strip(values.astype(str)))
    missing = np.isin(text, _MISSING)
    if missing.any() and column not in _OPTIONAL:
        raise ValueError(
            f"{column} must have a value in every row, got none in row {int(missing.argmax())}"
        )
    text = np.where(missing, str(_STORED.get(column, 0)), text)
    words = _WORDS.get(column, {})
    for word, number in words.items():
        text = np.where(text == word, str(number), text)
    numbers = _numbers(text)
    if (wrong := np.isnan(numbers)).any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{column} must contain numbers{_number_hint(column)}; got {shorten(values[row])} in "
            f"row {row}"
        )
    if column not in _FLOATS and numbers.dtype == np.float64:
        numbers = _as_integers(numbers, missing, values, column)
    if column == "num_candidates":  # the stored number of an unknown one is negative
        refuse(numbers < 1, values, f"{column} must be at least 1; leave an unknown column out")
    if column in _FLAGS:
        refuse(~np.isin(numbers, (0, 1)), values, f"{column} must be true or false")
        return numbers.astype(bool)
    return numbers


def _number_hint(column: str) -> str:
    """What cells of a column may be instead of other words."""
    if column == "side":
        return ", or head and tail"
    if column in _FLAGS:
        return ", or true and false"
    return ": number names from 0 on, the same in all files" if column in _OPTIONAL else ""


def _as_integers(numbers: Array, missing: Array, values: Array, column: str) -> Array:
    """Read floats as int64; ValueError for the first of ``values`` that is not an integer."""
    wrong = ~missing & ~((numbers == np.floor(numbers)) & (abs(numbers) < _EXACT))
    if wrong.any():
        row = int(wrong.argmax())
        hint = ""
        if column == "rank":
            hint = "; ranks of ties belong into the columns optimistic and pessimistic"
        raise ValueError(f"{column} must contain integers, got {values[row]} in row {row}{hint}")
    return numbers.astype(np.int64)


def _numbers(text: Array) -> Array:
    """Read words as int64 if all are integers, else as float64 with NaN for other words."""
    if is_plain("".join(text)):
        with suppress(ValueError, OverflowError):
            return text.astype(np.int64)
    return np.array([parse_number(word) for word in text.tolist()], dtype=np.float64)
