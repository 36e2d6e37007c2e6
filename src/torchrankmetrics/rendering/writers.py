"""Writers of tables: text, Markdown, LaTeX, HTML, CSV and JSON; and whole HTML pages from templates."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from torchrankmetrics.rendering.tabular import Plain, Printed, Tabular, visible

_GAP = "  "


def to_text(table: Tabular, width: int | None = None) -> str:
    """Write aligned columns; a table wider than ``width`` breaks into blocks that repeat the keys."""
    columns = [(one, _lines(one)) for one in table.printed()]
    keys = [column for column in columns if column[0].is_key]
    blocks = [keys]
    for column in columns:
        if not column[0].is_key:
            wide = sum(_width(lines[1]) + len(_GAP) for _, lines in [*blocks[-1], column]) - len(_GAP)
            if width is not None and wide > width and len(blocks[-1]) > len(keys):
                blocks.append(keys)
            blocks[-1] = [*blocks[-1], column]
    texts = "\n\n".join(map(_block, blocks))
    return "\n".join([texts, *[""] * (len(blocks) > 1), *map(visible, table.notes)])


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _lines(column: Printed) -> list[str]:
    """Heading, rule and cells of a column, all as wide as the widest."""
    behind = ["*" * bold + mark for _, bold, mark in column.cells]
    tail = max(map(len, behind), default=0) if column.is_number else 0
    cells = zip(column.cells, behind, strict=True)
    texts = [column.title, *("*" * bold + text + end.ljust(tail) for (text, bold, _), end in cells)]
    width = max(map(_width, texts))
    pads = [" " * (width - _width(text)) for text in texts]
    head, *body = (pad + text if column.is_number else text + pad for pad, text in zip(pads, texts, strict=True))
    return [head, "-" * width, *body]


def _block(columns: list[tuple[Printed, list[str]]]) -> str:
    """Columns next to each other, below the texts that neighboring ones share."""
    parts, above = [], []
    for text, group in groupby(columns, key=lambda one: one[0].above):
        part = [_GAP.join(cells) for cells in zip(*(lines for _, lines in group), strict=True)]
        pad = max(_width(text) - len(part[1]), 0)
        parts.append([line + ("-" if i == 1 else " ") * pad for i, line in enumerate(part)])
        above.append(text + " " * (len(part[1]) + pad - _width(text)))
    heads = [above] if any(one.above for one, _ in columns) else []
    return "\n".join(_GAP.join(line).rstrip() for line in [*heads, *zip(*parts, strict=True)])


def _markdown(text: str, bold: bool = False, mark: str = "") -> str:
    text, mark = (re.sub(r"([\\`*_|<>\[\]])", r"\\\1", part) for part in (text, mark))
    return (f"**{text}**" if bold else text) + mark


def to_markdown(table: Tabular, **style: Any) -> str:
    """Write a table as Markdown in a style of ``Tabular.printed``; headings above headings become their first words."""
    columns = table.printed(**style)
    lines = [
        [_markdown(f"{one.above} {one.title}".strip()) for one in columns],
        ["---:" if one.is_number else "---" for one in columns],
        *([_markdown(*cell) for cell in row] for row in zip(*(one.cells for one in columns), strict=True)),
    ]
    notes = "".join(f"\n\n{_markdown(visible(note))}" for note in table.notes)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + notes


_COMMANDS = {c: rf"\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "†": r"\dag{}", "‡": r"\ddag{}", '"': "''"}
_COMMANDS |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"}
_COMMANDS |= {"|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$"}
_LATEX = {ord(c): text for c, text in _COMMANDS.items()}


def _latex(text: str, bold: bool = False, mark: str = "") -> str:
    """Escape a text for LaTeX; a hyphen before a number is a minus sign."""
    escaped = visible(unicodedata.normalize("NFC", text)).translate(_LATEX)
    escaped = re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)
    return (rf"\textbf{{{escaped}}}" if bold else escaped) + (rf"\textsuperscript{{{_latex(mark)}}}" if mark else "")


def to_latex(table: Tabular, caption: str | None = None, label: str | None = None, **style: Any) -> str:
    """Write a ``tabular`` with the rules of booktabs; with a caption inside a ``table``."""

    def line(cells: Iterable[str]) -> str:
        text = " & ".join(cells) + r" \\"
        return "{}" + text if text[0] in "[*" else text  # the rule above reads these as an option

    columns = table.printed(**style)
    lines = ["% needs \\usepackage{booktabs}"]
    if caption is not None:
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{_latex(caption)}}}"]
        lines += [] if label is None else [rf"\label{{{label}}}"]
    lines += [rf"\begin{{tabular}}{{{''.join('r' if one.is_number else 'l' for one in columns)}}}", r"\toprule"]
    if spans := _spans(columns):
        lines.append(
            line(_latex(text) if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{_latex(text)}}}" for text, n in spans)
        )
        ends = accumulate(n for _, n in spans)
        rules = [rf"\cmidrule(lr){{{end - n + 1}-{end}}}" for (text, n), end in zip(spans, ends, strict=True) if text]
        lines.append(" ".join(rules))
    lines += [line(_latex(one.title) for one in columns), r"\midrule"]
    for row in zip(*(one.cells for one in columns), strict=True):
        lines.append(line(_latex("--" if text == "-" else text, bold, mark) for text, bold, mark in row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        lines += [r"\par\smallskip", r"{\footnotesize", *(_latex(note) + r"\par" for note in table.notes), "}"]
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
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    loader = jinja2.FileSystemLoader(folder)
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


def to_json(table: Tabular) -> str:
    """Write a JSON list of one object per row, with all digits; NaN and infinity become null."""
    columns = table.programs()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    strict = json.loads(json.dumps(rows), parse_constant=lambda name: None)
    return json.dumps(strict, indent=2, ensure_ascii=False) + "\n"
