"""Writers of tables: text, Markdown, LaTeX, HTML, CSV and JSON; and whole HTML pages from templates."""

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from torchrankmetrics.rendering.tabular import Plain, Printed, Tabular, visible, width_of

_GAP = "  "


def to_text(table: Tabular, width: int | None = None) -> str:
    """Write aligned columns; a table wider than ``width`` breaks into blocks that repeat the keys."""
    columns = [(one.above, _lines(one), one.column.key) for one in table.printed()]
    keys, others = ([column for column in columns if column[2] == is_key] for is_key in (True, False))
    blocks = [keys[:]]
    for column in others:
        wide = sum(len(lines[1]) + len(_GAP) for _, lines, _ in [*blocks[-1], column]) - len(_GAP)
        if width is not None and wide > width and len(blocks[-1]) > len(keys):
            blocks.append(keys[:])
        blocks[-1].append(column)
    texts = "\n\n".join(_block([(above, lines) for above, lines, _ in block]) for block in blocks)
    return "\n".join([texts, *([""] if len(blocks) > 1 else []), *map(visible, table.notes)])


def _lines(column: Printed) -> list[str]:
    """Heading, rule and cells of a column, all as wide as the widest."""
    behind = [("*" if bold else "") + mark for _, bold, mark in column.cells]
    tail = max(map(len, behind), default=0) if column.is_number else 0
    cells = [
        ("*" if bold else "") + text + end.ljust(tail)
        for (text, bold, _), end in zip(column.cells, behind, strict=True)
    ]
    width = max(map(width_of, [column.title, *cells]))
    pads = [(" " * (width - width_of(text)), text) for text in (column.title, *cells)]
    head, *body = (pad + text if column.is_number else text + pad for pad, text in pads)
    return [head, "-" * width, *body]


def _block(columns: list[tuple[str, list[str]]]) -> str:
    """Columns next to each other, below the texts that neighboring ones share."""
    parts, above = [], []
    for text, group in groupby(columns, key=lambda one: one[0]):
        part = [_GAP.join(cells) for cells in zip(*(lines for _, lines in group), strict=True)]
        pad = max(width_of(text) - len(part[1]), 0)
        parts.append([line + ("-" if i == 1 else " ") * pad for i, line in enumerate(part)])
        above.append(text + " " * (len(part[1]) + pad - width_of(text)))
    heads = [_GAP.join(above).rstrip()] if any(above_text for above_text, _ in columns) else []
    return "\n".join([*heads, *(_GAP.join(line).rstrip() for line in zip(*parts, strict=True))])


_MARKDOWN = re.compile(r"([\\`*_|<>\[\]])")


def to_markdown(table: Tabular, **style: Any) -> str:
    """Write a table as Markdown in a style of ``Tabular.printed``; headings above headings become their first words."""

    def cell(text: str, bold: bool, mark: str) -> str:
        text = _MARKDOWN.sub(r"\\\1", text)
        return (f"**{text}**" if bold else text) + _MARKDOWN.sub(r"\\\1", mark)

    columns = table.printed(**style)
    lines = [
        [cell(f"{one.above} {one.title}".strip(), False, "") for one in columns],
        ["---:" if one.is_number else "---" for one in columns],
        *([cell(*one) for one in row] for row in zip(*(one.cells for one in columns), strict=True)),
    ]
    notes = "".join(f"\n\n{cell(visible(note), False, '')}" for note in table.notes)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + notes


_LATEX = {c: rf"\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "†": r"\dag{}", "‡": r"\ddag{}"}
_LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"}
_LATEX |= {
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
}
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def latex(text: str) -> str:
    """Escape a text for LaTeX; a hyphen before a number is a minus sign."""
    escaped = "".join(_LATEX.get(c, c) for c in visible(unicodedata.normalize("NFC", text)))
    return _MINUS.sub("$-$", escaped)


def to_latex(table: Tabular, caption: str | None = None, label: str | None = None, **style: Any) -> str:
    """Write a ``tabular`` with the rules of booktabs; with a caption inside a ``table``."""

    def cell(text: str, bold: bool, mark: str) -> str:
        escaped = "--" if text == "-" else latex(text)
        return (rf"\textbf{{{escaped}}}" if bold else escaped) + (rf"\textsuperscript{{{latex(mark)}}}" if mark else "")

    def line(cells: Iterable[str]) -> str:
        text = " & ".join(cells) + r" \\"
        return "{}" + text if text[0] in "[*" else text  # the rule above reads these as an option

    columns = table.printed(**style)
    lines = ["% needs \\usepackage{booktabs}"]
    if caption is not None:
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{latex(caption)}}}"]
        lines += [] if label is None else [rf"\label{{{label}}}"]
    lines += [rf"\begin{{tabular}}{{{''.join('r' if one.is_number else 'l' for one in columns)}}}", r"\toprule"]
    if spans := _spans(columns):
        lines.append(
            line(latex(text) if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{latex(text)}}}" for text, n in spans)
        )
        ends = [sum(n for _, n in spans[: i + 1]) for i in range(len(spans))]
        rules = [rf"\cmidrule(lr){{{end - n + 1}-{end}}}" for (text, n), end in zip(spans, ends, strict=True) if text]
        lines.append(" ".join(rules))
    lines += [line(latex(one.title) for one in columns), r"\midrule"]
    lines += [line(cell(*one) for one in row) for row in zip(*(one.cells for one in columns), strict=True)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        lines += [r"\par\smallskip", r"{\footnotesize", *(latex(note) + r"\par" for note in table.notes), "}"]
    return "\n".join([*lines, *([] if caption is None else [r"\end{table}"])])


def _spans(columns: Sequence[Printed]) -> list[tuple[str, int]]:
    """Texts above the headings with their numbers of columns; empty if there are none."""
    found = [(text, len(list(group))) for text, group in groupby(columns, key=lambda one: one.above)]
    return found if any(text for text, _ in found) else []


def to_html(table: Tabular, **style: Any) -> str:
    """Write an HTML ``<table>`` without styles except the alignment."""
    return render("rendering/table.html", table=table, style=style)


def page(title: str, table: Tabular) -> str:
    """Write a whole HTML page of a table, in the style of the page of a study."""
    return render("rendering/page.html", title=title, table=table) + "\n"


def render(template: str, **names: Any) -> str:
    """Fill a Jinja2 template of the package, named by its path in the package; text is escaped."""
    return str(_environment().get_template(template).render(**names))


@cache
def _environment() -> Any:
    import jinja2

    folder = Path(__file__).parents[1]
    loader = jinja2.FileSystemLoader(folder)
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **options)
    css = (folder / "rendering/page.css").read_text("utf-8")
    environment.globals |= {"spans": _spans, "visible": visible, "css": css}
    return environment


_FORMULA = re.compile(r"[=@\t\r\n]|[+-](?![0-9.]+(e[+-]?[0-9]+)?$)")  # text that spreadsheets execute, not numbers


def to_csv(table: Tabular) -> str:
    """Write CSV with all digits, None and NaN as empty cells.

    Text that a spreadsheet would execute as a formula begins with an apostrophe (OWASP, "CSV Injection").
    """

    def cell(value: Plain) -> Plain:
        if isinstance(value, str):
            return f"'{value}" if _FORMULA.match(value) else value
        return "" if value is None or value != value else value

    def line(row: Iterable[Plain]) -> str:
        written = io.StringIO(newline="")
        csv.writer(written).writerow(map(cell, row))  # only with its own line ends it quotes cells with "\r"
        return written.getvalue()[:-2] + "\n"

    columns = table.programs()
    return "".join(map(line, [columns, *zip(*columns.values(), strict=True)]))


def to_json(table: Tabular, ascii_only: bool = False) -> str:
    """Write a JSON list of one object per row, with all digits; NaN and infinity become null."""
    columns = table.programs()
    rows = [dict(zip(columns, map(_finite, row), strict=True)) for row in zip(*columns.values(), strict=True)]
    return json.dumps(rows, indent=2, ensure_ascii=ascii_only) + "\n"


def _finite(cell: Plain) -> Plain:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
