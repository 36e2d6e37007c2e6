"""Tables of results as text, Markdown, LaTeX and HTML for people, and as CSV, JSON and pandas for programs."""

import csv
import html
import importlib
import io
import json
import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torchrankmetrics.rendering.tabular import Plain, PValue, Shown, Styled, Tabular, spans, value, visible, width_of

GAP = 2
_NARROW = 20  # a column of text is not broken into lines shorter than this


def to_text(table: Tabular, width: int | None = None) -> str:
    """Write a table as lines.

    No number and no key is ever shortened. What is wider than ``width`` breaks into blocks that repeat the keys, and
    long texts that are no keys go on in a second line.

    Args:
        table: to be written.
        width: columns of the terminal; None: as wide as need be.
    """
    columns = [_Lines(shown) for shown in table.shown]
    blocks = ["\n".join(_block(block)) for block in _blocks(columns, width)]
    notes = [visible(note) for note in table.notes]
    if width is not None:
        notes = [
            textwrap.fill(note, max(width, _NARROW), break_long_words=False, break_on_hyphens=False) for note in notes
        ]
    apart = [""] if len(blocks) > 1 else []
    return "\n".join(["\n\n".join(blocks), *apart, *notes])


class _Lines:
    """A column with the lines of each cell, and how wide they are."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        tail = max((len(_behind(style)) for style in shown.styles), default=0)
        self.cells = [
            [("*" if style.bold else "") + text + _behind(style).ljust(tail if shown.number else 0)]
            for text, style in zip(shown.texts, shown.styles, strict=True)
        ]
        self.measure()

    def measure(self) -> None:
        cells = (width_of(line) for lines in self.cells for line in lines)
        self.width = max([width_of(self.shown.column.title), *cells])

    def wrap(self, width: int) -> None:
        """Break the text of the cells into lines of a width."""
        self.cells = [textwrap.wrap(lines[0], width, break_on_hyphens=False) or [""] for lines in self.cells]
        self.measure()

    def aligned(self, text: str) -> str:
        pad = " " * (self.width - width_of(text))
        return pad + text if self.shown.number else text + pad


def _blocks(columns: Sequence[_Lines], width: int | None) -> Iterator[list[_Lines]]:
    if width is None or _total(columns) <= width:
        yield list(columns)
        return
    keys = [column for column in columns if column.shown.column.key]
    room = max(width - sum(key.width + GAP for key in keys), _NARROW)
    block: list[_Lines] = []
    for column in columns:
        if column.shown.column.key:
            continue
        if column.width > room and not column.shown.number:
            column.wrap(room)
        if block and _total([*block, column]) > room:
            yield _with_keys(columns, block)
            block = []
        block.append(column)
    if block or keys:
        yield _with_keys(columns, block)


def _with_keys(columns: Sequence[_Lines], block: Sequence[_Lines]) -> list[_Lines]:
    return [column for column in columns if column.shown.column.key or column in block]


def _total(columns: Sequence[_Lines]) -> int:
    return sum(column.width + GAP for column in columns) - GAP


def _block(columns: Sequence[_Lines]) -> Iterator[str]:
    gap, first = " " * GAP, 0
    above = []
    for text, number in spans([column.shown for column in columns]):
        over = columns[first : first + number]
        over[-1].width += max(width_of(text) - _total(over), 0)
        above.append(text + " " * (_total(over) - width_of(text)))
        first += number
    if above:
        yield gap.join(above).rstrip()
    yield gap.join(column.aligned(column.shown.column.title) for column in columns).rstrip()
    yield gap.join("-" * column.width for column in columns)
    for row in zip(*(column.cells for column in columns), strict=True):
        for i in range(max(map(len, row))):
            line = (
                column.aligned(lines[i] if i < len(lines) else "") for column, lines in zip(columns, row, strict=True)
            )
            yield gap.join(line).rstrip()


def _behind(style: Styled) -> str:
    return ("*" if style.bold else "") + style.mark


# what LaTeX reads as a command, and what its fonts may lack
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "−": r"$-$",
    "→": r"$\rightarrow$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
}
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_LATEX |= {c: rf"$\{name}$" for c, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK.split(), strict=True)}
_LATEX |= {c: f"$_{{{i}}}$" for i, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
# what LaTeX sets without another encoding or font: Latin letters but for these, and common punctuation
_BEYOND = re.compile("[^\x00-\u017f–—‘’“”…•€™]|[«»ÐðÞþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ]")
_MARKDOWN = re.compile(r"([\\`*_|<>\[\]])")
_FORMULA = re.compile(r"[=@\t\r\n]|[+-](?![0-9.]+(e[+-]?[0-9]+)?$)")  # what spreadsheets execute: no numbers
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def to_markdown(table: Tabular) -> str:
    """Write a table as Markdown; what stands above headings goes before them."""
    shown = table.shown
    heads = [f"{one.column.above} {one.column.title}".strip() for one in shown]
    lines = [
        _pipes(map(_markdown, heads)),
        _pipes("---:" if one.number else "---" for one in shown),
        *map(_pipes, zip(*(_markdown_cells(one) for one in shown), strict=True)),
    ]
    notes = "".join(f"\n\n{_markdown(note)}" for note in table.notes)
    return "\n".join(lines) + notes


def to_latex(table: Tabular, caption: str | None = None, label: str | None = None) -> str:
    r"""Write a table as a ``tabular`` with the rules of booktabs; with a caption inside a ``table``.

    Args:
        table: to be written.
        caption: of the table, as text; None: a ``tabular`` alone.
        label: of the table, for ``\ref``.
    """
    shown, ruled = table.shown, spans(table.shown)
    lines = ["% needs \\usepackage{booktabs}"]
    if caption is not None:
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{latex(caption)}}}"]
        lines += [] if label is None else [rf"\label{{{label}}}"]
    lines += [rf"\begin{{tabular}}{{{''.join('r' if one.number else 'l' for one in shown)}}}", r"\toprule"]
    if ruled:
        lines += [_ampersands(latex(above) if n == 1 else _spanning(above, n) for above, n in ruled)]
        lines += [" ".join(_rules(ruled))]
    lines += [_ampersands(latex(one.column.title) for one in shown), r"\midrule"]
    lines += map(_ampersands, zip(*(_latex_cells(one) for one in shown), strict=True))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        lines += [r"\par\smallskip", r"{\footnotesize", *(latex(note) + r"\par" for note in table.notes), "}"]
    text = "\n".join([*lines, *([] if caption is None else [r"\end{table}"])])
    if beyond := "".join(dict.fromkeys(_BEYOND.findall(text))):
        text = f"% pdflatex lacks {beyond}: use lualatex or xelatex with a font that has them\n{text}"
    return text


def to_html(table: Tabular) -> str:
    """Write a table as an HTML element that stands alone, without styles but the alignment."""
    shown, ruled = table.shown, spans(table.shown)
    lines = ["<table>", "<thead>"]
    if ruled:
        above = "".join(f'<th colspan="{n}" scope="colgroup">{html.escape(text)}</th>' for text, n in ruled)
        lines.append(f"<tr>{above}</tr>")
    heads = "".join(f'<th scope="col"{_aligned(one)}>{html.escape(visible(one.column.title))}</th>' for one in shown)
    lines += [f"<tr>{heads}</tr>", "</thead>", "<tbody>"]
    lines += [f"<tr>{''.join(row)}</tr>" for row in zip(*(_html_cells(one) for one in shown), strict=True)]
    lines.append("</tbody>")
    if table.notes:
        notes = "<br>".join(html.escape(visible(note)) for note in table.notes)
        lines.append(f'<tfoot><tr><td colspan="{len(shown)}" style="text-align:left">{notes}</td></tr></tfoot>')
    return "\n".join([*lines, "</table>"])


def latex(text: str) -> str:
    """Escape a text for LaTeX; a hyphen before a number is a minus sign."""
    escaped = "".join(_LATEX.get(c, c) for c in visible(unicodedata.normalize("NFC", text)))
    return _MINUS.sub("$-$", escaped)


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", visible(text))


def _markdown_cells(one: Shown) -> Iterator[str]:
    for text, style in zip(one.texts, one.styles, strict=True):
        escaped = _markdown(text)
        yield (f"**{escaped}**" if style.bold else escaped) + style.mark


def _latex_cells(one: Shown) -> Iterator[str]:
    for text, style in zip(one.texts, one.styles, strict=True):
        escaped = "--" if text == "-" else latex(text)
        bold = rf"\textbf{{{escaped}}}" if style.bold else escaped
        yield bold + (rf"\textsuperscript{{{latex(style.mark)}}}" if style.mark else "")


def _html_cells(one: Shown) -> Iterator[str]:
    tag = "th" if one.column.key else "td"
    scope = ' scope="row"' if one.column.key else ""
    for text, style in zip(one.texts, one.styles, strict=True):
        escaped = html.escape(text)
        bold = f"<strong>{escaped}</strong>" if style.bold else escaped
        mark = f"<sup>{html.escape(style.mark)}</sup>" if style.mark else ""
        yield f"<{tag}{scope}{_aligned(one)}>{bold}{mark}</{tag}>"


def _aligned(one: Shown) -> str:
    return f' style="text-align:{"right" if one.number else "left"}"'


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ampersands(cells: Iterable[str]) -> str:
    line = " & ".join(cells) + r" \\"
    return "{}" + line if line[0] in "[*" else line  # else the rule or the line above takes it for an option


def _spanning(above: str, number: int) -> str:
    return rf"\multicolumn{{{number}}}{{c}}{{{latex(above)}}}"


def _rules(ruled: list[tuple[str, int]]) -> Iterator[str]:
    first = 1
    for above, number in ruled:
        if above:
            yield rf"\cmidrule(lr){{{first}-{first + number - 1}}}"
        first += number


def to_csv(table: Tabular) -> str:
    """Write a table as CSV with all digits, None and NaN as empty cells.

    Text that a spreadsheet would execute as a formula begins with an apostrophe (OWASP, "CSV Injection").
    """
    columns = _columns(table)
    rows = [columns, *zip(*columns.values(), strict=True)]
    return "".join(_csv_line(map(_csv_cell, row)) for row in rows)


def to_json(table: Tabular, ascii_only: bool = False) -> str:
    """Write a table as a JSON list of one object per row, with all digits; what JSON lacks is null."""
    columns = _columns(table)
    rows = zip(*(map(_finite, cells) for cells in columns.values()), strict=True)
    content = [dict(zip(columns, row, strict=True)) for row in rows]
    return json.dumps(content, indent=2, ensure_ascii=ascii_only) + "\n"


def to_pandas(table: Tabular) -> Any:
    """Give a table as a ``pandas.DataFrame``.

    Raises:
        ImportError: if pandas is not installed.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas; to_csv does without") from error
    return pandas.DataFrame(_columns(table))


def _columns(table: Tabular) -> dict[str, list[Plain]]:
    """Columns by name; beside p-values their logarithm, which a float can always hold."""
    found: dict[str, list[Plain]] = {}
    logarithms: dict[str, list[Plain]] = {}
    for column, cells in table.seen_by("programs"):
        found[column.name] = [value(cell) for cell in cells]
        if any(isinstance(cell, PValue) for cell in found[column.name]):
            name = "log10_p" if column.name in ("p", "value") else f"log10_p_{column.name}"
            logarithms[name] = [cell.log10 if isinstance(cell, PValue) else None for cell in found[column.name]]
    return found | logarithms


def _csv_line(cells: Iterable[Plain]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line).writerow(cells)  # only with its own line ends does it quote cells that hold "\r"
    return line.getvalue()[:-2] + "\n"


def _csv_cell(cell: Plain) -> Plain:
    if isinstance(cell, str):
        return f"'{cell}" if _FORMULA.match(cell) else cell
    return "" if cell is None or cell != cell else cell


def _finite(cell: Plain) -> Plain:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
