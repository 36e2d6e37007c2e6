"""What the pages say beside their executed blocks: tables, links between them, and pictures that exist."""

import json
import re
from pathlib import Path

import pytest
from test_hoyt_table import DIRECTED, expected_table

from scripts import ROOT, load_script

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


results = load_script(DOCS / "results.py")


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
            found[name.strip("`"), view] = tuple(letter != "·" for letter in mark.strip("`").split())
    assert found == {pair: expected_table(*pair) for pair in DIRECTED}


def test_claims_about_blind_scorers_are_in_the_results() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "blind_scorers.json").read_text())
    nations = {row["scorer"]: row for row in rows if row["graph"] == "nations"}
    assert nations["blind"]["sd_z"] > 2 * nations["independent"]["sd_z"]
    assert nations["blind"]["rejected"] > 0.2
    assert nations["untrained TransE"]["mean_z"] < -7


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text()
    listed = [line for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL) for line in block.split()]
    missing = {page.stem for page in PAGES} - {"index"} - set(listed)
    assert not missing, "add these pages to a toctree of docs/index.md"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        if anchor:
            shown = path.read_text() + (results.sections() if path.name == "benchmarks.md" else "")
            headings = re.findall(r"^#+ (.*)$", shown, re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                target
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_are_shown_in_full(page: Path) -> None:
    outputs = re.findall(r"^(?!>>>|\.\.\. ).*\d\.\d*\.\.\..*$", page.read_text(), re.MULTILINE)
    assert not outputs, "write the number that is printed: the tests compare it within a tolerance"


@pytest.mark.parametrize(
    ("want", "got", "same"),
    [
        ("mrr 0.500 of 3", "mrr 0.510 of 3", True),
        ("mrr 0.500 of 3", "mrr 0.560 of 3", False),
        ("mrr 0.500 of 3", "mrr 0.500 of 4", False),
        ("mrr 0.500 of 3", "mr 0.500 of 3", False),
        ("1.0e-7 [0.2]", "1.02e-07 [0.2]", True),
        ("0.1 0.2", "0.1", False),
    ],
)
def test_numbers_of_pages_are_compared_within_a_share(want: str, got: str, same: bool) -> None:
    assert load_script(ROOT / "conftest.py").Numbers(0.1).check_output(want, got, 0) is same
