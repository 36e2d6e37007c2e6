"""A table in Markdown, LaTeX and HTML: what has a meaning in each language is escaped."""

import html
import re
from collections.abc import Iterable, Iterator

from torchrankmetrics.rendering.tabular import Shown, Tabular, spans, visible

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
_MARKDOWN = re.compile(r"([\\`*_|<>\[\]])")
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
    return "\n".join([*lines, *([] if caption is None else [r"\end{table}"])])


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
    escaped = "".join(_LATEX.get(c, c) for c in visible(text))
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
    return " & ".join(cells) + r" \\"


def _spanning(above: str, number: int) -> str:
    return rf"\multicolumn{{{number}}}{{c}}{{{latex(above)}}}"


def _rules(ruled: list[tuple[str, int]]) -> Iterator[str]:
    first = 1
    for above, number in ruled:
        if above:
            yield rf"\cmidrule(lr){{{first}-{first + number - 1}}}"
        first += number
