"""What the pages say beside their executed blocks: README, versions, tables, links, the metric of CONTRIBUTING.md."""

import json
import math
import re
from pathlib import Path

import pytest
from test_hoyt_table import DIRECTED, expected_table

from scripts import ROOT, load_script
from torchrankmetrics import RankDefinition, RankMetric, __version__, evaluate
from torchrankmetrics.metrics.registry import Entry
from torchrankmetrics.metrics.unavailable import UNAVAILABLE

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(
    r"^```python\n(.*?)^```$\n\n```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL
)
RESULTS = ROOT / "benchmarks" / "results"
results = load_script(DOCS / "results.py")


@pytest.mark.parametrize(("block", "shown"), BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_of_the_readme_run_when_copied_alone(
    block, shown, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == shown


def test_the_first_screen_has_one_short_block_and_its_table() -> None:
    assert len(README.splitlines()) <= 120
    assert len(BLOCKS) == README.count("```python") > 0
    assert len(BLOCKS[0][0].splitlines()) <= 12
    assert README.index("pip install .") < README.index(BLOCKS[0][0]) < README.index("## ")
    assert (
        README.index("## Contributing")
        < README.index("<!-- test command -->")
        < README.index("-m pytest")
    )


def test_the_release_has_one_version_and_date_in_every_file_and_standard_headings() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)\]? - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert released == sorted(released, reverse=True)
    assert released[0][0] == __version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\ndate-released: {released[0][1]}\n" in citation
    assert f"version = {{{__version__}}}" in README
    assert f"torchrankmetrics {__version__} |" in README
    headings = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Renamed"}
    assert {*re.findall(r"^### (.*)$", changes, re.MULTILINE)} <= headings


def test_the_metric_that_contributing_adds_has_every_view() -> None:
    (block,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL
    )
    made: dict[str, object] = {}
    exec(compile(block, "CONTRIBUTING.md", "exec"), made)
    definition, row = made["definition"], made["row"]
    assert isinstance(definition, RankDefinition)
    assert isinstance(row, Entry)
    assert row.definition() is definition
    views = ("base", "normalized", "adjusted_index", "z_score", "p_value")
    values = evaluate([4], [4], {view: RankMetric(definition, view=view) for view in views})
    roots = [math.sqrt(rank) for rank in (1, 2, 3, 4)]
    mean = sum(roots) / 4
    deviation = math.sqrt(sum((x - mean) ** 2 for x in roots) / 4)
    expected = (2.0, 2 / mean, (2 - mean) / (1 - mean), (mean - 2) / deviation, 1.0)
    assert tuple(values.values()) == pytest.approx(expected, rel=1e-12)


def test_the_page_of_differences_lists_every_metric_that_is_not_available() -> None:
    page = (DOCS / "differences.md").read_text()
    for one in UNAVAILABLE:
        assert f"| {one.names} | it {one.reason} |" in page


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_desiderata_are_those_that_were_tested() -> None:
    """The table of test_hoyt_table.py is tested by numbers; the page repeats it."""
    lines = (DOCS / "comparable.md").read_text().splitlines()
    start = lines.index("| metric | base | normalized | adjusted index | z score |")
    views = [view.replace(" ", "_") for view in cells(lines[start])[1:]]
    found = {}
    for line in lines[start + 2 : lines.index("", start)]:
        name, *marks = cells(line)
        for view, mark in zip(views, marks, strict=True):
            found[name.strip("`"), view] = tuple(
                letter != "·" for letter in mark.strip("`").split()
            )
    tested = {pair: expected_table(*pair) for pair in DIRECTED}
    names = dict.fromkeys(name for name, _ in [*found, *tested])
    wrong = [n for n in names if any(found.get((n, v)) != tested.get((n, v)) for v in views)]
    rows = [desiderata_row(name, tested) for name in wrong if (name, "base") in tested]
    assert not wrong, "\n".join([f"docs/comparable.md is wrong on {wrong}; its rows are:", *rows])


def desiderata_row(name: str, tested: dict[tuple[str, str], tuple[bool, ...]]) -> str:
    """Line of a metric in the table of docs/comparable.md."""
    marks = [name]
    for view in ("base", "normalized", "adjusted_index", "z_score"):
        properties = zip("OPSN", tested[name, view], strict=True)
        marks.append(" ".join(letter if has_it else "·" for letter, has_it in properties))
    return "".join(f"| `{mark}` " for mark in marks) + "|"


def test_claims_of_the_pages_are_in_the_committed_results() -> None:
    rows = json.loads((RESULTS / "p_values_blind.json").read_text())
    nations = {row["scorer"]: row for row in rows if row["graph"] == "nations"}
    assert nations["blind"]["sd_z"] > 2 * nations["independent"]["sd_z"]
    assert nations["blind"]["rejected"] > 0.2
    assert nations["untrained TransE"]["mean_z"] < -7
    ours, *peers = json.loads((RESULTS / "retrieval.json").read_text())["rows"]
    assert ours["role"] == "ours"
    assert len(peers) == 4
    assert ours["best"] < min(peer["best"] for peer in peers)


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text()
    listed = [
        line
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
        for line in block.split()
    ]
    missing = {page.stem for page in PAGES} - {"index"} - set(listed)
    assert not missing, "add these pages to a toctree of docs/index.md"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere_and_numbers_are_shown_in_full(page: Path) -> None:
    text = page.read_text()
    outputs = re.findall(r"^(?!>>>|\.\.\. ).*\d\.\d*\.\.\..*$", text, re.MULTILINE)
    assert not outputs, "write the number that is printed: the tests compare it within a tolerance"
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        if anchor:
            shown = path.read_text() + (results.sections() if path.name == "benchmarks.md" else "")
            headings = re.findall(r"^#+ (.*)$", shown, re.MULTILINE)
            anchors = {
                re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
            }
            assert anchor in anchors, target


def test_numbers_of_pages_are_compared_within_a_share() -> None:
    numbers = load_script(ROOT / "conftest.py").Numbers(0.1)
    assert numbers.check_output("mrr 0.500 of 3", "mrr 0.510 of 3", 0) is True
    for want, got in (
        ("mrr 0.500", "mrr 0.560"),
        ("mrr 0.500 of 3", "mrr 0.500 of 4"),
        ("0.1 0.2", "0.1"),
    ):
        assert numbers.check_output(want, got, 0) is False
