"""Plots over data sets hold the numbers they are given."""

import re

import numpy as np
import pytest

from studies import SIZES, study_of
from torchrankmetrics.plots import critical_difference, differences, intervals_by_dataset, to_svg

matplotlib = pytest.importorskip("matplotlib", reason="plots need the extra 'plot'")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
CELLS = {"d": {"a": (0.5, 0.4, 0.6), "b": (0.3, 0.2, 0.4)}, "e": {"b": (0.7, float("nan"), float("nan"))}}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_a_row_per_data_set_and_a_point_per_model_without_lines_between():
    fig, ax = intervals_by_dataset(CELLS, "mrr", chance={"d": 0.1})
    drawn = {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}
    assert list(drawn) == ["a", "b", "chance"]
    assert drawn["b"].get_xdata().tolist() == [0.3, 0.7]
    assert drawn["chance"].get_xdata().tolist() == [0.1]
    assert all(line.get_linestyle() == "None" or line.get_label() == "chance" for line in drawn.values())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["d", "e"]
    assert fig.axes == [ax]
    with pytest.raises(ValueError, match="7 series are too many to distinguish"):
        intervals_by_dataset({"d": {str(i): (0.0, 0.0, 0.0) for i in range(7)}}, "mrr")
    with pytest.raises(ValueError, match="nothing to draw"):
        intervals_by_dataset({}, "mrr")
    assert len(intervals_by_dataset({"d": {"m": (0.5, 0.4, 0.6)}}, "mrr", chance={"e": 0.1})[1].lines) == 1


def test_differences_end_in_diamonds():
    _, own = plt.subplots()
    fig, ax = differences({"d": (0.1, -0.1, 0.3)}, {"all": (0.2, 0.1, 0.3)}, "a less b", ax=own)
    assert ax is own
    (diamond,) = ax.patches
    assert sorted({x for x, _ in diamond.get_xy().tolist()}) == [0.1, 0.2, 0.3]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["d", "all"]
    assert fig is own.figure


def test_the_critical_difference_names_all_models_and_joins_the_cliques():
    ranking = study_of(seeds=2).mean_ranks("mr")
    _, ax = critical_difference(ranking.models, ranking.ranks)
    texts = " ".join(text.get_text() for text in ax.texts)
    for model, mean in zip(ranking.models, ranking.ranks.mean, strict=True):
        assert model in texts
        assert f"{mean:.2f}" in texts
    thick = [line for line in ax.lines if line.get_linewidth() == 4]
    assert len(thick) == len(ranking.ranks.cliques)


def test_results_of_a_study_draw_themselves():
    study = study_of(seeds=2)
    for result in (study.table(["mrr", "mr"]), study.mean_ranks(), study.difference("a", "b")):
        fig, _ = result.plot()
        texts = " ".join(text.get_text() for text in fig.findobj(matplotlib.text.Text))
        assert "a" in texts
    _, ax = study.table("mrr").plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == list(SIZES)


def test_svg_keeps_text_and_has_ids_of_its_own():
    def drawn(prefix):
        return to_svg(intervals_by_dataset(CELLS, "mrr <&>")[0], "a & b", prefix)

    one, other = drawn("one"), drawn("other")
    assert one == drawn("one")
    assert ">mrr &lt;&amp;&gt;</text>" in one
    assert 'aria-label="a &amp; b"' in one
    ids = [set(re.findall(r'id="([^"]*)"', text)) for text in (one, other)]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'href="#([^"]*)"', one)) | set(re.findall(r"url\(#([^)]*)\)", one)) <= ids[0]
    assert plt.get_fignums() == []
    assert np.isfinite(float(re.search(r'viewBox="0 0 ([\d.]+)', one)[1]))
