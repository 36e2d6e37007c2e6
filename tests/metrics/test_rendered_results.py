"""Results speak for themselves: what evaluation gives can be written into a notebook, a page and a paper."""

import json

import pytest
import torch

from torchrankmetrics import RankCollection, Ranks, compare
from torchrankmetrics.rendering import Rendered, paper_name


def collected(shift=0):
    collection = RankCollection(["mrr", "mr", "hits@3"])
    ids = torch.arange(40)
    collection.update(Ranks((ids * 7 + shift) % 11 + 1, None, 30), side="tail", group=ids % 3, sample_id=ids)
    return collection


RESULTS = {
    "summary": lambda: collected().summary(),
    "breakdown": lambda: collected().breakdown(),
    "intervals": lambda: collected().confidence_intervals(),
    "comparison": lambda: compare(collected(), collected(2), "mrr"),
    "pairs": lambda: compare({"x": collected(), "y": collected(2), "z": collected(5)}, ["mrr", "hits@3"]),
    "one pair": lambda: compare({"x": collected(), "y": collected(2)}, "mrr")["mrr", "y", "x"],
    "comparisons": lambda: compare(collected(), collected(2), ["mrr", "hits@3"]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_every_form(name):
    result = RESULTS[name]()
    assert isinstance(result, Rendered)
    rows = json.loads(result.to_json())
    frame = result.to_pandas()
    assert len(rows) == len(frame) == len(getattr(result, "rows", [result]))
    assert list(rows[0]) == list(frame.columns) == result.to_csv().splitlines()[0].split(",")
    first = str(next(iter(rows[0].values())))
    for text in (result._repr_html_(), result.to_latex(), result.to_markdown(), result.to_text()):
        assert first.replace("_", r"\_") in text or first in text or paper_name(first) in text
    assert r"\toprule" in result.to_latex()


def test_a_table_answers_like_a_collection_of_it():
    collection = collected()
    table = collection.table()
    names = ["mrr", "mr", "hits@3"]
    assert table.summary(names) == collection.summary()
    assert str(table.breakdown(names, {0: "a", 1: "b", 2: "c"})) == str(collection.breakdown({0: "a", 1: "b", 2: "c"}))
    assert table.confidence_intervals(names, 0.9, cluster="sample_id") == collection.confidence_intervals(
        0.9, cluster="sample_id"
    )
    assert [row.metric for row in table.confidence_intervals().rows][:2] == ["mrr", "mr"]
    with pytest.raises(ValueError, match="unknown metric 'mmr'"):
        table.summary("mmr")
