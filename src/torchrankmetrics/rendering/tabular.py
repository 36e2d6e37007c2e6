"""Tabular: columns, cells and notes of a table of results, and how papers print names and numbers."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torchrankmetrics.validation import check_int, probability_text, shorten

Plain = str | int | float | None
Names = Mapping[int, str] | Sequence[str] | None  # of ids: a dict, or a sequence by id
ROW = "row"  # as the metric of a column: its values are in units of the metric that the row names
_RATIOS = {"normalized": "normalized ", "z": "z of ", "p": "p of "}
_SHARES = {"mrr": "MRR", "rr": "RR", "ap": "AP", "auc": "AUC", "query_auc": "query AUC", "ndcg": "nDCG", "amri": "AMRI"}
_SHARES |= {name: name.title() for name in ("hits", "recall", "precision", "success")} | {"tie_rate": "tie rate"}
_SHARES |= {"imr": "IMR", "igmr": "IGMR", "r_precision": "R-Precision", "inverse_median_rank": "1/median rank"}
_RANKS = {"mr": "MR", "amr": "AMR", "gmr": "GMR", "hmr": "HMR", "first_mr": "first MR", "median_rank": "median rank"}
_KEY = re.compile(
    r"((?:head_|tail_|relation_)?(?:optimistic_|pessimistic_|expected_)?(?:macro_)?)"
    r"(?:(adjusted|normalized|z|p)_)?(\w+?)(?:_at_(\d+))?"
)


def paper_name(key: str) -> str:
    """Name a metric as papers print it: "MRR" for mrr, "Hits@10 (tail)" for tail_hits_at_10; other keys as they are."""
    match = _KEY.fullmatch(key)
    if not match or match[3] not in _SHARES | _RANKS:
        return key
    view = "adjusted " if match[2] == "adjusted" else _RATIOS.get(match[2], "")
    cut = f"@{match[4]}" if match[4] else ""
    tasks = f" ({match[1].strip('_').replace('_', ', ')})" if match[1] else ""
    return f"{view}{(_SHARES | _RANKS)[match[3]]}{cut}{tasks}"


def _is_share(key: str) -> bool:
    """Whether the values of a metric are at most 1, so that papers print them in percent."""
    match = _KEY.fullmatch(key)
    return match is not None and match[2] not in _RATIOS and (match[3] in _SHARES or match[2] == "adjusted")


def name_of(number: int, names: Names, argument: str = "names", kind: str = "group") -> int | str:
    """Return the name of an id, or the id without names; errors name ``argument`` and the ``kind`` of id."""
    if names is None:
        return number
    if isinstance(names, str):
        raise TypeError(f"{argument} must be a dict of id -> name, or names by id; got the string {shorten(names)}")
    if not (number in names if isinstance(names, Mapping) else 0 <= number < len(names)):
        raise ValueError(f"{argument} must have a name for every {kind} that occurs; {kind} {number} has none")
    return names[number]


class PValue(float):
    """A probability with its logarithm, which remains exact where the float is 0."""

    log10: float

    def __new__(cls, value: float, log10: float) -> "PValue":
        """Build from the value and its logarithm."""
        self = super().__new__(cls, value)
        self.log10 = log10
        return self


@dataclass(frozen=True)
class Styled:
    """A cell with an interval, decimals of its own, bold print, or a raised mark that a note of the table explains."""

    value: Plain
    low: float = math.nan
    high: float = math.nan
    digits: int | None = None
    bold: bool = False
    mark: str = ""


Cell = Plain | Styled


@dataclass(frozen=True)
class Column:
    """One column: its unique name in machine formats, and how its cells are printed.

    ``heading`` is below ``above``, which neighbors share. A ``key`` is repeated in the blocks of a wide table.
    ``digits`` are decimals of a float in units of ``metric`` (ROW: of the metric in the column "metric").
    """

    name: str
    heading: str | None = None
    above: str = ""
    key: bool = False
    digits: int = 4
    audience: Literal["all", "people", "programs"] = "all"
    metric: str = ""


class Printed(NamedTuple):
    """A column as text: cells are (text, bold, mark); columns of numbers are aligned on the right."""

    title: str
    above: str
    is_key: bool
    is_number: bool
    cells: list[tuple[str, bool, str]]


@dataclass(frozen=True)
class Tabular:
    """A table of results: cells in the order of the columns, and notes of one line each."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    @classmethod
    def named(
        cls, names: Sequence[str], rows: Sequence[Sequence[Cell]], notes: Sequence[str] = (), keys: int = 1
    ) -> "Tabular":
        """Build a table of plain columns, of which the first ones are keys."""
        return cls([Column(name, key=i < keys) for i, name in enumerate(names)], rows, notes)

    def programs(self) -> dict[str, list[Plain]]:
        """Columns of machine formats by name; after p-values a column of their logarithms."""
        found, logarithms = dict[str, list[Plain]](), dict[str, list[Plain]]()
        for i, column in enumerate(self.columns):
            if column.audience != "people":
                cells = found[column.name] = [_value(row[i]) for row in self.rows]
                if any(isinstance(cell, PValue) for cell in cells):
                    name = "log10_p" if column.name in ("p", "value") else f"log10_p_{column.name}"
                    logarithms[name] = [getattr(cell, "log10", None) for cell in cells]
        return found | logarithms

    def printed(
        self, percent: bool = False, digits: int | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Printed]:
        """Columns of printed tables; with ``labels`` (even empty) metrics have the names of papers, else their keys."""
        metric = next((i for i, column in enumerate(self.columns) if column.name == "metric"), None)
        names = {key: str(label) for key, label in (labels or {}).items()}
        digits = None if digits is None else check_int("digits", digits, 0)
        found = []
        for i, column in enumerate(self.columns):
            if column.audience == "programs":
                continue
            title = column.name if column.heading is None else column.heading
            paper = paper_name(column.metric)
            if labels is not None and column.metric not in ("", ROW) and title in (column.metric, paper):
                title = names.get(column.metric, paper)
            cells = []
            for row in self.rows:
                raw, of = row[i], column.metric
                cell = raw if isinstance(raw, Styled) else Styled(raw)
                if of == ROW:
                    of = "" if metric is None else str(_value(row[metric]))
                text = _text(cell, column.digits, digits if of else None, percent and _is_share(of))
                if labels is not None and column.key:
                    text = names.get(text, paper_name(text) if i == metric else text)
                cells.append((text, cell.bold, cell.mark))
            title, above = (visible(names.get(text, text)) for text in (title, column.above))
            is_number = any(isinstance(_value(row[i]), int | float) for row in self.rows)
            found.append(Printed(title, above, column.key, is_number, cells))
        return found


def _value(cell: Cell) -> Plain:
    return cell.value if isinstance(cell, Styled) else cell


def _text(cell: Styled, decimals: int, chosen: int | None, percent: bool) -> str:
    """A cell as text; ``chosen`` decimals replace those of the column and of the cell."""
    value, ends = cell.value, [] if math.isnan(cell.low) else [cell.low, cell.high]
    if isinstance(value, PValue):
        return probability_text(value.log10)
    if value is None or value != value:
        return "-"
    if not isinstance(value, float):
        return visible(str(value))
    decimals = decimals if cell.digits is None else cell.digits
    if not ends and chosen is None and decimals > 3 and 0 < abs(value) < 1e-3 and not percent:
        return f"{value:.3g}"  # few significant digits would remain
    decimals = max(decimals - 2 * percent, 0) if chosen is None else chosen
    first, *limits = (f"{number * (100 if percent else 1):.{decimals}f}" for number in (value, *ends))
    return f"{first} [{', '.join(limits)}]" if limits else first


def visible(text: str) -> str:
    """Escape characters without a glyph, such as line breaks in names and control sequences of terminals."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
