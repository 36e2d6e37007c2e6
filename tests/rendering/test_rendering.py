"""One table in every form: the contents of its cells can be read back, whatever they are."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
import unicodedata

import pandas
import pytest
from hypothesis import given, strategies as st

from html_pages import Page
from torchrankmetrics import RankCollection
from torchrankmetrics.metrics.names import as_measure
from torchrankmetrics.rendering import ROW, Column, PValue, Rendered, Styled, Tabular, paper_name
from torchrankmetrics.rendering.tabular import render

NAMES = ["metric", "model of the paper", "p", "low", "high", "tasks", "test"]
TABLE = Tabular.named(
    ["dataset", "model", *NAMES],
    [
        [
            "FB15k-237 <&> 50%",
            "a_b|c",
            "mrr",
            "x" * 30,
            0.00012,
            -1.5,
            2.25,
            40932,
            "sign-flip " * 12,
        ],
        ["日本語", "é\n\x1b[31m", "mr", "", PValue(0.0, -868.589), math.nan, None, 7, "exact"],
    ],
    ["†: cannot be told from the best; 100% of $x_1$ {braces} ~ ^ # \\"],
    keys=2,
)
STYLED = Tabular(
    [
        Column("model", key=True),
        Column("wn_mrr", "mrr", above="WN18RR"),
        Column("wn_mr", "mr", above="WN18RR", digits=1),
        Column("fb_mrr", "mrr", above="FB15k-237"),
        Column("interval", audience="people"),
        Column("low", audience="programs"),
    ],
    [
        [
            "ours",
            Styled(0.4762, bold=True),
            12.34,
            Styled(0.355, 0.35, 0.36, digits=3, mark="†"),
            "x",
            0.1,
        ],
        ["theirs", 0.4701, 1234.5, None, "y", 0.2],
    ],
    ["† cannot be told from the best"],
)


# a lone carriage return is no CSV that anybody reads back
WORDS = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(("width", "blocks"), [(40, 7), (80, 3), (250, 1)])
def test_no_key_and_no_number_is_shortened_at_any_width(width, blocks):
    text = TABLE.to_text(width)
    parts = text.split("\n\n") if blocks > 1 else [text]
    assert len(parts) == blocks + (blocks > 1)  # and the notes
    for block in parts[:blocks]:
        assert block.startswith("dataset            model")
        for key in ("FB15k-237 <&> 50%", "a_b|c", "日本語", r"é\n\x1b[31m"):
            assert key in block
    for cell in ("mrr", "x" * 30, "0.00012", "-1.5000", "2.2500", "40932", "2.58e-869", "exact"):
        assert cell in text
    heads = [name for name in NAMES for block in parts if re.search(rf"  {name}( |\n)", block)]
    assert sorted(heads) == sorted(NAMES)  # every column is in one block
    for block in parts[:blocks]:  # one column fits next to the keys, or it has a block of its own
        head = block.splitlines()[0]
        assert len(head) + sum(unicodedata.east_asian_width(c) in "WF" for c in head) <= max(
            width, 37 + 20
        )


def test_styles_and_headings_above_headings_in_text():
    assert STYLED.to_text() == (
        "        WN18RR            FB15k-237\n"
        "model        mrr      mr                    mrr  interval\n"
        "------  --------  ------  ---------------------  --------\n"
        "ours    *0.4762*    12.3  0.355 [0.350, 0.360]†  x\n"
        "theirs   0.4701   1234.5                     -   y\n"
        "† cannot be told from the best"
    )


CELLS = st.tuples(WORDS, st.floats(allow_nan=False), st.none() | st.integers(), WORDS)


@given(st.lists(CELLS, max_size=5), st.integers(1, 120))
def test_whatever_the_cells_hold_every_form_has_a_row_for_each(rows, width):
    table = Tabular.named(["key", "x|y", "n&m", "<text>"], rows, ["a note"])
    assert table.to_text().count("\n") == 2 + len(rows)
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f]", table.to_text(width) + table.to_markdown() + table.to_latex()
    )
    lines = table.to_markdown().splitlines()[: 2 + len(rows)]
    assert [len(re.split(r"(?<!\\)\|", line)) for line in lines] == [6] * (2 + len(rows))
    check_latex(table.to_latex(), 4)
    assert len(parsed(table.to_html())) == 2 + len(rows)
    read = list(csv.reader(io.StringIO(table.to_csv(), newline="")))
    assert read[1:] == [
        [safe(key), repr(x), "" if n is None else str(n), safe(text)] for key, x, n, text in rows
    ]
    for got, (key, x, n, text) in zip(json.loads(table.to_json()), rows, strict=True):
        assert got == {"key": key, "x|y": x if math.isfinite(x) else None, "n&m": n, "<text>": text}


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-"]
)
def test_text_that_spreadsheets_execute_begins_with_an_apostrophe_in_csv(text):
    table = Tabular.named(
        ["key", text], [[text, -0.5], ["-1", -2], ["+1.5e-3", None], ["a=1", "-1e5"]]
    )
    assert list(csv.reader(io.StringIO(table.to_csv(), newline=""))) == [
        ["key", f"'{text}"],
        *([f"'{text}", "-0.5"], ["-1", "-2"], ["+1.5e-3", ""], ["a=1", "-1e5"]),
    ]


def safe(text):
    return (
        f"'{text}"
        if text[:1] in set("=+-@\t\r\n") and not re.fullmatch(r"[+-][0-9.]+", text)
        else text
    )


def parsed(html):
    reader = Page(html)
    assert not reader.open
    return reader.rows


def check_latex(source, columns):
    """What LaTeX would stumble over: braces, ampersands, rules and characters that are commands."""
    text = re.sub(r"\A(% (needs|pdflatex lacks) .*\n)+", "", source)
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[%#~^_\"<>|]", re.sub(r"\\cmidrule\(lr\)", "", bare))
    body = re.search(r"\\midrule\n(.*)\\bottomrule", text, re.DOTALL)[1]
    for line in body.splitlines():
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)(?:\\\\)*&", line)) == columns - 1


def test_html_shows_the_texts_of_the_cells_and_markdown_escapes_them():
    head, *rows = parsed(TABLE.to_html())
    assert head == ["dataset", "model", *NAMES]
    assert rows[0][:2] == ["FB15k-237 <&> 50%", "a_b|c"]
    assert rows[1][4:7] == ["2.58e-869", "-", "-"]
    above, head, first, *_ = parsed(STYLED.to_html())
    assert above == ["", "WN18RR", "FB15k-237", ""]
    assert head == ["model", "mrr", "mr", "mrr", "interval"]
    assert first == ["ours", "0.4762", "12.3", "0.355 [0.350, 0.360]†", "x"]
    assert "<strong>0.4762</strong>" in STYLED.to_html()
    assert "<sup>†</sup>" in STYLED.to_html()
    lines = TABLE.to_markdown().splitlines()
    assert lines[0].startswith("| dataset | model | metric |")
    assert lines[1].count("---:") == 4
    assert r"a\_b\|c" in lines[2]
    assert r"\<&\> 50%" in lines[2]
    assert (
        STYLED.to_markdown().splitlines()[0]
        == "| model | WN18RR mrr | WN18RR mr | FB15k-237 mrr | interval |"
    )
    assert "| **0.4762** |" in STYLED.to_markdown()


def test_latex_has_booktabs_spans_and_minus_signs():
    source = STYLED.to_latex()
    assert r" & \multicolumn{2}{c}{WN18RR} & FB15k-237 &  \\" in source
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in source
    assert (
        r"ours & \textbf{0.4762} & 12.3 & 0.355 [0.350, 0.360]\textsuperscript{\dag{}} & x \\"
        in source
    )
    assert "$-$1.5000" in TABLE.to_latex()
    assert "FB15k-237" in TABLE.to_latex()  # a hyphen in a name is none
    head = [r"\begin{table}", r"\centering", r"\caption{Results \& more}", r"\label{tab:results}"]
    lines = STYLED.to_latex(caption="Results & more", label="tab:results").splitlines()
    assert lines[1:6] == [*head, r"\begin{tabular}{lrrrl}"]
    check_latex(TABLE.to_latex(), 9)


def test_programs_get_values_and_the_logarithm_of_p():
    frame = pandas.DataFrame(TABLE.programs())
    assert list(frame.columns) == ["dataset", "model", *NAMES, "log10_p"]
    assert frame["tasks"].tolist() == [40932, 7]
    assert frame["log10_p"][1] == -868.589
    assert list(STYLED.programs()) == ["model", "wn_mrr", "wn_mr", "fb_mrr", "low"]
    assert STYLED.programs()["wn_mrr"] == [0.4762, 0.4701]
    assert json.loads(TABLE.to_json())[1]["high"] is None


class Long(Rendered):
    def tabular(self):
        return Tabular.named(["i", "square"], [(i, i * i) for i in range(1000)], ["squares"])


def test_a_notebook_shows_the_first_rows_of_a_long_table_with_a_note_and_a_page_stands_alone():
    rows = parsed(Long()._repr_html_())
    assert len(rows) == 1 + 100 + 1
    assert "".join(rows[-1]) == "the first 100 of 1000 rowssquares"
    assert len(parsed(Long().to_html())) == 1 + 1000 + 1
    assert len(Long().to_csv().splitlines()) == 1001
    text = render("rendering/page.html", title="A & <b>", table=PAPER)
    assert "<title>A &amp; &lt;b&gt;</title>" in text
    body = text.replace("<!DOCTYPE html>", "").replace('<meta charset="utf-8">', "")
    assert parsed(body)[1][:2] == ["Hits@10", "ours"]


LATEX = shutil.which("pdflatex")


@pytest.mark.skipif(LATEX is None, reason="no pdflatex is installed: see CONTRIBUTING.md")
def test_latex_is_compiled(tmp_path):
    """Names with all that LaTeX reads as commands, styles, spans, notes, caption; no lost glyph."""
    names = [
        "R_GCN 50%",
        "A&B #1 $x$ {q} ~^\\",
        "[x] \u00fc \u0142",
        "*<|>*",
        "e\u0301 \u2013 \u2020 \u2248",
    ]
    rows = [(name, Styled(-0.5, -0.6, 0.4, bold=True, mark="\u2020\u2248")) for name in names]
    own = Tabular.named(("model_%", "mrr & more"), rows, tuple(names))
    latin = Tabular(TABLE.columns, TABLE.rows[:1], TABLE.notes)
    parts = [
        own.to_latex(),
        STYLED.to_latex(caption="Results & more: 5%", label="tab:results"),
        latin.to_latex(),
    ]
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (tmp_path / "a.tex").write_text(
        head + "\n\n".join(parts) + "\n\\end{document}\n", encoding="utf-8"
    )
    command = [LATEX, "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in (tmp_path / "a.log").read_text(errors="replace")


PAPER = Tabular(
    [
        Column("metric", key=True),
        Column("model", key=True),
        Column("value", metric=ROW),
        Column("p"),
    ],
    [["hits_at_10", "ours", 0.51234, 0.5], ["mr", "ours", 123.456, 0.25]],
)


def test_papers_have_names_of_metrics_percent_and_digits():
    names = (
        "amri",
        "tail_optimistic_macro_hits_at_10",
        "z_mr",
        "ndcg_at_5",
        "my_own_f",
        "adjusted_own",
    )
    expected = [
        "AMRI",
        "Hits@10 (tail, optimistic, macro)",
        "z of MR",
        "nDCG@5",
        "my_own_f",
        "adjusted_own",
    ]
    assert [paper_name(key) for key in names] == expected
    assert "hits_at_10  ours     0.5123  0.5000" in PAPER.to_text()
    style = {"percent": True, "digits": 1, "labels": {"ours": "This work"}}
    assert "| Hits@10 | This work | 51.2 | 0.5000 |" in PAPER.to_markdown(**style)
    assert "| MR | This work | 123.5 | 0.2500 |" in PAPER.to_markdown(**style)
    assert "| H10 | ours | 51.23 |" in PAPER.to_markdown(percent=True, labels={"hits_at_10": "H10"})
    for name in RankCollection.names():
        measure = as_measure(name.replace("<k>", "10").replace("<p>", "2"))
        shown = (
            Tabular([Column("value", metric=measure.key)], [[0.5]])
            .printed(percent=True, digits=1)[0]
            .cells[0][0]
        )
        assert (shown == "50.0") == (measure.bounds[1] == 1 or name == "tie_rate"), name
    with pytest.raises(ValueError, match=r"models by datasets, as RankStudy\.table returns them"):
        Long().to_latex(baseline="ours")
