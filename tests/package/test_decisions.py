"""The pages say what the benchmark of decisions has found, and a few draws of it agree with the library."""

import json

import pytest
from benchmarks import decisions
from benchmarks.case_study import shipped

from scripts import ROOT
from torchrankmetrics import Ranks, evaluate

RESULTS = json.loads(decisions.RESULTS.read_text())


@pytest.mark.parametrize("part", decisions.PAGES)
def test_the_pages_show_the_results(part: str) -> None:
    page = (ROOT / "docs" / decisions.PAGES[part]).read_text()
    assert f"{decisions.CAPTIONS[part]}\n\n{decisions.table(part, RESULTS[part])}\n" in page


def found(part: str, **about: object) -> list[dict[str, float]]:
    """Rows of a part, with how far each share is from 5 % in its standard errors."""
    rows = [row for row in RESULTS[part] if all(row[key] == value for key, value in about.items())]
    assert rows
    return [row | {"far": (row["share"] - 0.05) / row["error"]} for row in rows]


def test_what_is_promised_was_found() -> None:
    """Clusters of queries and answers keep 5% for models without skill, and so do margins."""
    for null in ("blind runs", "by both"):
        rows = [row for row in found("nulls", null=null) if row["scorer"] != "knows a little"]
        assert all(row["far"] < 3 for row in rows)
    for called in ("equivalent", "not inferior"):
        assert all(row["far"] < 3 for row in found("margins", kind="size", called=called))


def test_few_draws_have_every_method() -> None:
    splits = shipped()["nations"]
    told = decisions.rejections(splits, next(decisions.noise(splits, 2.0)), decisions.Uniform())
    assert set(told) == {row["null"] for row in RESULTS["nulls"]}
    assert all(told.values())


def test_a_threshold_that_is_remembered_rejects_as_the_p_value_does() -> None:
    uniform = decisions.Uniform()
    for ranks in ([1, 1, 2, 1], [9, 8, 7, 6], [1, 2, 3, 4], [1, 1, 1, 1], [2, 2, 3, 4], [1, 3, 9, 9]):
        asked = Ranks(ranks, None, 9)
        assert uniform.rejects(asked) == (evaluate(asked, metrics=["p_mrr"])["p_mrr"] <= 0.05)
