"""Tables of results: columns, cells and notes, and their writers; HTML pages."""

import csv
import json
import math
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, starmap
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypedDict, Unpack

from torchrankmetrics.errors import missing_extra
from torchrankmetrics.validation import check_int, probability_text, shorten, visible

if TYPE_CHECKING:
    from pandas import DataFrame

Plain = str | int | float | None
Names = Mapping[int, str] | Sequence[str] | None  # of ids: a dict, or a sequence by id
ROW = "row"  # as the metric of a column: its values are in units of the metric that the row names
_VIEWS = {
    None: "",
    "adjusted": "adjusted ",
    "normalized": "normalized ",
    "z": "z of ",
    "p": "p of ",
}
_SHARES = {
    "mrr": "MRR",
    "rr": "RR",
    "ap": "AP",
    "auc": "AUC",
    "query_auc": "query AUC",
    "ndcg": "nDCG",
    "amri": "AMRI",
}
_SHARES |= {name: name.title() for name in ("hits", "recall", "precision", "success")} | {
    "tie_rate": "tie rate"
}
_SHARES |= {
    "imr": "IMR",
    "igmr": "IGMR",
    "r_precision": "R-Precision",
    "inverse_median_rank": "1/median rank",
}
_SHARES |= {"ndcg_exp": "exponential nDCG", "rbp": "RBP", "f1": "F1", "fall_out": "fall-out"}
_SHARES |= {"ap_cap": "AP, capped", "recall_cap": "Recall, capped"}
_OTHERS = {
    "mr": "MR",
    "amr": "AMR",
    "gmr": "GMR",
    "hmr": "HMR",
    "first_mr": "first MR",
    "median_rank": "median rank",
}
_OTHERS |= {"first_median_rank": "first median rank", "dcg": "DCG"}
_KEY = re.compile(
    r"((?:head_|tail_|relation_)?(?:optimistic_|pessimistic_|expected_)?(?:macro_)?)"
    r"(?:(adjusted|normalized|z|p)_)?(\w+?)(?:_at_(\d+))?"
)


def paper_name(key: str) -> str:
    """Name a metric as papers print it: "MRR" for mrr, "Hits@10 (tail)" for tail_hits_at_10."""
    match = _KEY.fullmatch(key)
    if not match or match[3] not in _SHARES | _OTHERS:
        return key
    cut = f"@{match[4]}" if match[4] else ""
    tasks = f" ({match[1].strip('_').replace('_', ', ')})" if match[1] else ""
    return f"{_VIEWS[match[2]]}{(_SHARES | _OTHERS)[match[3]]}{cut}{tasks}"


def _is_share(key: str) -> bool:
    """Whether the values of a metric are at most 1, so that papers print them in percent."""
    match = _KEY.fullmatch(key)
    return match is not None and (
        match[2] == "adjusted" or (match[2] is None and match[3] in _SHARES)
    )


def name_of(number: int, names: Names, argument: str = "names", kind: str = "group") -> int | str:
    """Return the name of an id, or the id; errors name ``argument`` and the ``kind`` of id."""
    if names is None:
        return number
    if isinstance(names, str):
        raise TypeError(
            f"{argument} must be a dict of id -> name, or names by id; got the string "
            f"{shorten(names)}"
        )
    if not (number in names if isinstance(names, Mapping) else 0 <= number < len(names)):
        raise ValueError(
            f"{argument} must have a name for every {kind} that occurs; {kind} {number} has none"
        )
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
    """A cell with an interval, its own decimals, bold print, or a mark that a note explains."""

    value: Plain
    low: float = math.nan
    high: float = math.nan
    digits: int | None = None
    bold: bool = False
    mark: str = ""


Cell = Plain | Styled
Rows = Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Column:
    """One column: its unique name in machine formats, and how its cells are printed.

    ``heading`` is below ``above``, which neighbors share. A ``key`` is repeated in the blocks of a
    wide table. ``digits`` are decimals of a float in units of ``metric`` (ROW: of the metric in the
    column "metric").
    """

    name: str
    heading: str | None = None
    above: str = ""
    key: bool = False
    digits: int = 4
    audience: Literal["all", "people", "programs"] = "all"
    metric: str = ""


class Printed(NamedTuple):
    """A column as text: cells are (text, bold, mark); numbers are aligned on the right."""

    title: str
    above: str
    is_key: bool
    is_number: bool
    cells: list[tuple[str, bool, str]]

    @property
    def alignment(self) -> str:
        """Alignment in LaTeX."""
        return "r" if self.is_number else "l"


# text that spreadsheets execute, not numbers
_FORMULA = re.compile(r"[=@\t\r\n]|[+-](?![0-9.]+(e[+-]?[0-9]+)?$)")
_GAP = "  "
_RULES = {"r": "---:", "l": "---"}  # of Markdown, by alignment


class Style(TypedDict, total=False):
    """How ``to_markdown``, ``to_latex`` and ``to_html`` print a table.

    They name metrics as papers do (MRR, Hits@10).

    Attributes:
        percent (bool): whether to multiply values of metrics that are at most 1 by 100.
        digits (int): decimals of values of metrics.
        labels (dict): text to print instead of a key of a metric, a name of a model or dataset, or
            a heading.
        baseline, stars (str, bool): marks of tables of ``RankStudy``; ValueError for others.
    """

    percent: bool
    digits: int | None
    labels: Mapping[str, str] | None
    baseline: str | None
    stars: bool


class Rendered(ABC):
    """A result that is a table; ``Style`` has the keywords of its writers.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> summary = RankTable.from_ranks(Ranks([1, 2, 1, 3], None, 9)).summary(["mrr", "mr"])
    >>> print(summary.to_markdown())
    | side | metric | base | adjusted index | z-score |
    | --- | --- | ---: | ---: | ---: |
    | all | MRR | 0.7083 | 0.5746 | 2.9 |
    | all | MR | 1.7500 | 0.8125 | 2.5 |
    <BLANKLINE>
    4 ranks among 9 candidates
    """

    @abstractmethod
    def tabular(self) -> "Tabular":
        """Give columns, cells and notes."""

    def records(self) -> "Tabular":
        """Give the table of machine formats."""
        return self.tabular()

    def marked(
        self, baseline: str | None = None, stars: bool = False, name: str | None = None
    ) -> Self:
        """Give the table with marks of significance; ``name``: of the baseline in the legend."""
        raise ValueError(
            "baseline and stars need models by datasets, as RankStudy.table returns them"
        )

    def _styled(self, **style: Unpack[Style]) -> "tuple[Tabular, list[Printed]]":
        """The table with marks of significance, and its columns with the names of papers."""
        rest: dict[str, Any] = {**style, "labels": style.get("labels") or {}}
        baseline = rest.pop("baseline", None)
        stars = rest.pop("stars", False)
        result: Rendered = self
        if baseline is not None or stars:
            result = self.marked(baseline, stars, rest["labels"].get(baseline))
        table = result.tabular()
        return table, table.printed(**rest)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int | None = None) -> str:
        """Write aligned columns; wider tables than ``width`` break into blocks with the keys."""
        table = self.tabular()
        columns = [(one, _lines(one)) for one in table.printed()]
        keys = [column for column in columns if column[0].is_key]
        blocks = [keys]
        for column in [column for column in columns if not column[0].is_key]:
            wide = len(_GAP.join(lines[1] for _, lines in [*blocks[-1], column]))
            if width is not None and wide > width and len(blocks[-1]) > len(keys):
                blocks.append(keys)
            blocks[-1] = [*blocks[-1], column]
        texts = "\n\n".join(map(_block, blocks))
        return "\n".join([texts, *[""] * (len(blocks) > 1), *map(visible, table.notes)])

    def to_markdown(self, **style: Unpack[Style]) -> str:
        """Write a table in Markdown; headings above headings become their first words."""
        table, columns = self._styled(**style)
        lines = [[_markdown(f"{one.above} {one.title}".strip()) for one in columns]]
        lines.append([_RULES[one.alignment] for one in columns])
        for row in _cells_by_row(columns):
            lines.append([_markdown(*cell) for cell in row])
        notes = "".join(f"\n\n{_markdown(visible(note))}" for note in table.notes)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + notes

    def to_latex(
        self, caption: str | None = None, label: str | None = None, **style: Unpack[Style]
    ) -> str:
        """Write a LaTeX ``tabular`` with booktabs; with a caption inside a ``table``."""
        table, columns = self._styled(**style)
        alignment = "".join(one.alignment for one in columns)
        lines = [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            *_latex_heads(columns),
            r"\midrule",
            *_latex_body(columns),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        if table.notes:
            notes = [_latex(note) + r"\par" for note in table.notes]
            lines += [r"\par\smallskip", r"{\footnotesize", *notes, "}"]
        if caption is not None:
            begin = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(caption)}}}"]
            if label is not None:
                begin.append(rf"\label{{{label}}}")
            lines = [*begin, *lines, r"\end{table}"]
        return "\n".join(["% needs \\usepackage{booktabs}", *lines])

    def to_html(self, **style: Unpack[Style]) -> str:
        """Write an HTML ``<table>`` without styles except the alignment."""
        table, columns = self._styled(**style)
        return render("rendering/table.html", table=table, columns=columns)

    def _repr_html_(self) -> str:
        table = self.tabular()
        if len(table.rows) > 100:
            table = Tabular(
                table.columns,
                table.rows[:100],
                (f"the first 100 of {len(table.rows)} rows", *table.notes),
            )
        return render("rendering/table.html", table=table, columns=table.printed())

    def to_json(self) -> str:
        """Write a JSON list of an object per row, with all digits; NaN and infinity are null."""
        columns = self.records().programs()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        strict = json.loads(json.dumps(rows), parse_constant=lambda name: None)
        return json.dumps(strict, indent=2, ensure_ascii=False) + "\n"

    def to_pandas(self) -> "DataFrame":
        """Return a ``pandas.DataFrame``; ImportError if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise missing_extra("to_pandas", "pandas", "pandas") from error
        return pandas.DataFrame(self.records().programs())

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write CSV with all digits, None and NaN as empty cells; return it without a path.

        Text that a spreadsheet would execute as a formula begins with an apostrophe (OWASP, "CSV
        Injection").
        """

        def cell(value: Plain) -> Plain:
            if isinstance(value, str):
                return f"'{value}" if _FORMULA.match(value) else value
            return "" if value is None or value != value else value

        # with other ends csv quotes no "\r"
        one_line: Any = SimpleNamespace(write=lambda line: line[:-2] + "\n")
        writer = csv.writer(one_line)
        columns = self.records().programs()
        content = "".join(
            writer.writerow(map(cell, row))
            for row in [columns, *zip(*columns.values(), strict=True)]
        )
        if path is None:
            return content
        Path(path).write_text(content, encoding="utf-8", newline="")
        return None


@dataclass(frozen=True)
class Tabular(Rendered):
    """A table of results: cells in the order of the columns, and notes of one line each."""

    columns: Sequence[Column]
    rows: Rows
    notes: Sequence[str] = ()

    @classmethod
    def named(
        cls, names: Sequence[str], rows: Rows, notes: Sequence[str] = (), keys: int = 1
    ) -> "Tabular":
        """Build a table of plain columns, of which the first ones are keys."""
        return cls([Column(name, key=i < keys) for i, name in enumerate(names)], rows, notes)

    def tabular(self) -> "Tabular":
        """Return the table itself."""
        return self

    def programs(self) -> dict[str, list[Plain]]:
        """Columns of machine formats by name; after p-values a column of their logarithms."""
        found = dict[str, list[Any]]()
        logarithms = dict[str, list[Any]]()
        for i, column in enumerate(self.columns):
            if column.audience != "people":
                cells = found[column.name] = [getattr(row[i], "value", row[i]) for row in self.rows]
                if any(isinstance(cell, PValue) for cell in cells):
                    name = "log10_p" if column.name in ("p", "value") else f"log10_p_{column.name}"
                    logarithms[name] = [getattr(cell, "log10", None) for cell in cells]
        return found | logarithms

    def printed(
        self,
        percent: bool = False,
        digits: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[Printed]:
        """Columns of printed tables; with ``labels``, even empty, metrics have names of papers."""
        if digits is not None:
            digits = check_int("digits", digits, 0)
        names = _Names(labels)
        return [
            self._printed(i, percent, digits, names)
            for i, column in enumerate(self.columns)
            if column.audience != "programs"
        ]

    def _printed(self, i: int, percent: bool, digits: int | None, names: "_Names") -> Printed:
        """Column i with its cells as text."""
        column = self.columns[i]
        cells = []
        is_number = False
        for row in self.rows:
            raw = row[i]
            cell = raw if isinstance(raw, Styled) else Styled(raw)
            metric = self._metric_of(column, row)
            is_percent = percent and _is_share(metric)
            text = _text(cell, column.digits, digits if metric else None, is_percent)
            if column.key:
                text = names.of_key(text, is_metric=column.name == "metric")
            cells.append((text, cell.bold, cell.mark))
            is_number |= isinstance(cell.value, int | float)
        title = visible(names.of_heading(column))
        return Printed(title, visible(names.of(column.above)), column.key, is_number, cells)

    def _metric_of(self, column: Column, row: Sequence[Any]) -> str:
        """The key of the metric of a cell, which may be in the column ``metric`` of its row."""
        if column.metric != ROW:
            return column.metric
        place = next((j for j, one in enumerate(self.columns) if one.name == "metric"), -1)
        return str(row[place])


class _Names:
    """What is printed for keys and headings: with ``labels`` (even empty) the names of papers."""

    def __init__(self, labels: Mapping[str, str] | None) -> None:
        self._is_paper = labels is not None
        self._labels = {key: str(label) for key, label in (labels or {}).items()}

    def of(self, text: str) -> str:
        return self._labels.get(text, text)

    def of_key(self, text: str, is_metric: bool) -> str:
        if not self._is_paper:
            return text
        return self._labels.get(text, paper_name(text) if is_metric else text)

    def of_heading(self, column: Column) -> str:
        title = column.name if column.heading is None else column.heading
        paper = paper_name(column.metric)
        if self._is_paper and title in (column.metric, paper):
            title = self._labels.get(column.metric, paper)
        return self.of(title)


def _latex_heads(columns: Sequence[Printed]) -> list[str]:
    """The headings, below those that span several columns."""
    titles = _latex_line(_latex(one.title) for one in columns)
    spans = [(_latex(text), places) for text, places in _spans(columns)]
    if not spans:
        return [titles]
    above = []
    rules = []
    for text, places in spans:
        n = len(places)
        above.append(text if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{text}}}")
        if text:
            rules.append(rf"\cmidrule(lr){{{places[0]}-{places[-1]}}}")
    return [_latex_line(above), " ".join(rules), titles]


def _cells_by_row(columns: Sequence[Printed]) -> Iterator[tuple[Any, ...]]:
    return zip(*(one.cells for one in columns), strict=True)


def _latex_body(columns: Sequence[Printed]) -> list[str]:
    return [_latex_line(starmap(_latex_cell, row)) for row in _cells_by_row(columns)]


def _latex_cell(text: str, bold: bool, mark: str) -> str:
    return _latex("--" if text == "-" else text, bold, mark)


def _latex_line(cells: Iterable[str]) -> str:
    text = " & ".join(cells) + r" \\"
    # the rule above reads [ and * as an option
    return "{}" + text if text[0] in "[*" else text


def _text(cell: Styled, decimals: int, chosen: int | None, percent: bool) -> str:
    """A cell as text; ``chosen`` decimals replace those of the column and of the cell."""
    value = cell.value
    ends = [] if math.isnan(cell.low) else [cell.low, cell.high]
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
    unit = 100 if percent else 1
    first, *limits = (f"{number * unit:.{decimals}f}" for number in (value, *ends))
    return f"{first} [{', '.join(limits)}]" if limits else first


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters take two, combining ones none."""
    width = 0
    for letter in text:
        if not unicodedata.combining(letter):
            width += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
    return width


def _lines(column: Printed) -> list[str]:
    """Heading, rule and cells of a column, all as wide as the widest."""
    tail = column.is_number * max((bold + len(mark) for _, bold, mark in column.cells), default=0)
    texts = [
        column.title,
        *("*" * bold + text + ("*" * bold + mark).ljust(tail) for text, bold, mark in column.cells),
    ]
    width = max(map(_width, texts))
    pads = [" " * (width - _width(text)) for text in texts]
    lines = [text + pad for text, pad in zip(texts, pads, strict=True)]
    if column.is_number:
        lines = [pad + text for text, pad in zip(texts, pads, strict=True)]
    return [lines[0], "-" * width, *lines[1:]]


def _block(columns: list[tuple[Printed, list[str]]]) -> str:
    """Columns next to each other, below the texts that neighboring ones share."""
    parts = []
    for text, group in groupby(columns, key=lambda one: one[0].above):
        rows = zip(*(lines for _, lines in group), strict=True)
        part = [text, *map(_GAP.join, rows)]
        width = max(map(_width, part[:2]))
        padded = [line + " " * (width - _width(line)) for line in part]
        padded[2] = part[2] + "-" * (width - _width(part[2]))  # the rule below the headings
        parts.append(padded)
    lines = [_GAP.join(line).rstrip() for line in zip(*parts, strict=True)]
    return "\n".join(lines[not any(one.above for one, _ in columns) :])


def _markdown(text: str, bold: bool = False, mark: str = "") -> str:
    text, mark = (re.sub(r"([\\`*_|<>\[\]])", r"\\\1", part) for part in (text, mark))
    return (f"**{text}**" if bold else text) + mark


_COMMANDS = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    '"': "''",
}
_COMMANDS |= {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
_COMMANDS |= {
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
}
_LATEX = {ord(c): text for c, text in _COMMANDS.items()}


def _latex(text: str, bold: bool = False, mark: str = "") -> str:
    """Escape a text for LaTeX; a hyphen before a number is a minus sign."""
    escaped = visible(unicodedata.normalize("NFC", text)).translate(_LATEX)
    escaped = re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)
    if bold:
        escaped = rf"\textbf{{{escaped}}}"
    return escaped + rf"\textsuperscript{{{_latex(mark)}}}" if mark else escaped


def _spans(columns: Sequence[Printed]) -> list[tuple[str, list[int]]]:
    """Texts above the headings with the numbers of their columns, from 1; empty without any."""
    numbers = range(1, len(columns) + 1)
    groups = groupby(numbers, key=lambda i: columns[i - 1].above)
    found = [(text, list(group)) for text, group in groups]
    has_texts = any(text for text, _ in found)
    return found if has_texts else []


def render(template: str, **names: Any) -> str:
    """Fill a Jinja2 template of the package by its path, as "rendering/page.html"."""
    return str(_environment().get_template(template).render(**names))


@cache
def _environment() -> Any:
    import jinja2

    options: dict[str, Any] = {
        "undefined": jinja2.StrictUndefined,
        "trim_blocks": True,
        "lstrip_blocks": True,
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("torchrankmetrics", ""), autoescape=True, **options
    )
    environment.globals |= {"spans": _spans, "visible": visible}
    return environment
