"""Pages except executed blocks: README, versions, tables, links, the metric of CONTRIBUTING.md."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from test_hoyt_table import DIRECTED, expected_table

from scripts import ROOT, load_script
from torchrankmetrics import RankCollection, RankDefinition, RankMetric, __version__, evaluate
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
    assert len(README.splitlines()) <= 135
    assert len(BLOCKS) == README.count("```python") > 0
    assert len(BLOCKS[0][0].splitlines()) <= 12
    assert README.index("pip install .") < README.index(BLOCKS[0][0]) < README.index("## ")
    assert (
        README.index("## Contributing")
        < README.index("<!-- test command -->")
        < README.index("-m pytest")
    )


TASKS = README[README.index("## Your task") : README.index("## Other libraries")]
CALLS = re.findall(r"`(from torchrankmetrics[\w.]* import [\w, ]+)`, then `([^`]+)`", TASKS)


@pytest.mark.parametrize(("statement", "call"), CALLS, ids=[call for _, call in CALLS])
def test_names_of_the_task_table_are_importable_as_shown(statement: str, call: str) -> None:
    made: dict[str, object] = {}
    exec(statement, made)
    called = set(re.findall(r"(\w+)\(", call)) - {"pipeline"}  # PyKEEN's
    assert called, call
    assert called <= set(made), call


def test_the_task_table_has_eight_calls() -> None:
    assert len(CALLS) == TASKS.count("`from ") == 8


def test_the_lightning_row_logs_a_number() -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    build, step, end = re.findall(r"`(self\.\w.*?\))` in `\w+`", TASKS)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            exec(build, {"self": self, "RankCollection": RankCollection})

        def test_step(self, batch: torch.Tensor) -> None:
            exec(step, {"self": self, "scores": torch.eye(3)[batch], "target": batch})

        def on_test_epoch_end(self) -> None:
            exec(end, {"self": self})

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, **quiet)
    loader = torch.utils.data.DataLoader(torch.arange(3))
    assert trainer.test(Module(), loader, verbose=False) == [{"mrr": 1.0, "hits_at_10": 1.0}]


RECIPES = re.findall(
    r"^```python\n(.*?)^```$", (DOCS / "cookbook.md").read_text(), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_recipes_of_the_cookbook_are_short_and_run_when_copied_alone(recipe, capsys) -> None:
    assert len(RECIPES) == 10
    assert len(recipe.splitlines()) <= 12
    exec(compile(recipe, "cookbook.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


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


FASTEST = "count 256 x 40943 float32"


def test_tables_of_the_benchmarks_page_are_of_the_results() -> None:
    text = results.PAGE.read_text()
    assert results.page(text) == text, "run: python docs/results.py"
    assert len(results.TIMINGS) == 10
    rows = json.loads((RESULTS / "steps.json").read_text())["rows"]
    case = [row for row in rows if (row["case"], row["threads"]) == (FASTEST, 2)]
    medians = {row["way"]: row["median"] for row in case}
    assert f"{medians['rank_scores, numba']:.1f} ms with the extra `fast`" in README
    assert f"{medians['rank_scores, torch']:.1f} ms without it" in README
    assert f"{medians['pykeen Ranks.from_scores']:.0f} ms by PyKEEN" in README
    assert "| 1.65 | 115 | PyKEEN 1.11.1 | wall-clock, 2 threads | 29 Nov 2026 |" in text


def test_links_of_the_built_site_are_checked(tmp_path: Path) -> None:
    check = load_script(DOCS / "check_links.py")
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"></a><a href="b.html#gone"></a><a href="c.html"></a>'
        '<a href="https://example.org/x"></a><img src="none.png"><a href="#"></a>'
    )
    links = ["a.html: b.html#gone", "a.html: c.html", "a.html: none.png"]
    assert check.broken(tmp_path) == links


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text() + (DOCS / "articles.md").read_text()
    listed = [
        line
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
        for line in block.split()
    ]
    missing = {page.stem for page in PAGES} - {"index", "articles"} - set(listed)
    assert not missing, "add these pages to a toctree of docs/index.md or docs/articles.md"


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
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
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
