"""The table of docs/scale.md is that of the committed results."""

from scripts import ROOT, load_script

table = load_script(ROOT / "benchmarks" / "table.py")


def test_the_page_shows_the_results():
    page = table.PAGE.read_text()
    assert page == table.replaced(page, table.tables(), table.BEGIN), (
        "docs/scale.md and benchmarks/results differ: run python -m benchmarks.table"
    )


def test_ratios_are_of_the_same_case_and_threads():
    def row(case, role, best, threads=1, **more):
        return {"case": case, "way": role, "role": role, "threads": threads, "best": best} | {
            "median": 1.0, "low": 1.0, "high": 1.0, **more
        }  # fmt: skip

    rows = [row("a", "floor", 2.0), row("a", "ours", 3.0), row("a", "peer", 6.0), row("a", "ours", 5.0, threads=2)]
    text = table.table({"machine": {"torch": "2"}, "rows": [*rows, row("b", "ours", 4.0, peak_gib=1.5)]})
    assert [line.split(" | ")[-2:] for line in text.splitlines()[4:]] == [
        ["1.50", "2.0 (peer) |"],
        ["", " |"],
        ["", " |"],
    ]
    assert "peak 1.50 GiB" in text
