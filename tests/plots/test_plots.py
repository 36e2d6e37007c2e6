"""Axes, labels and series of plots; drawn values against counting by hand."""

import itertools
import re
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from studies import SIZES, study_of
from torchrankmetrics import RankCollection, Ranks, RankTable, compare, plots, study
from torchrankmetrics.inference import detectable_difference, equivalence
from torchrankmetrics.plots.canvas import MARKS, pyplot

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:torchrankmetrics.RankMetricWarning")
    for text in ("the interval of", "all differences of")
]

matplotlib = pytest.importorskip("matplotlib", reason="plots need the extra 'plot'")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
METRICS = ["mrr", "hits@3", "amri", "mr"]
RANKS = {
    "a": ([1, 2, 2, 5, 9, 1], [1, 4, 2, 6, 9, 3]),
    "b": ([3, 2, 7, 5, 4, 10], [3, 2, 7, 5, 5, 10]),
}
CANDIDATES = [9, 10, 12, 14, 9, 12]
CELLS = {
    "d": {"a": (0.5, 0.4, 0.6), "b": (0.3, 0.2, 0.4)},
    "e": {"b": (0.7, float("nan"), float("nan"))},
}
SIDES = ["head", "head", "tail", "tail", "tail", "tail"]


@pytest.fixture(autouse=True)
def _close() -> Any:
    yield
    plt.close("all")


def collection(model: str) -> RankCollection:
    result = RankCollection(METRICS)
    optimistic, pessimistic = RANKS[model]
    for i, side in enumerate(SIDES):
        ranks = Ranks([optimistic[i]], [pessimistic[i]], [CANDIDATES[i]])
        result.update(ranks, side=side, group=[i % 3], sample_id=[i])
    return result


@pytest.fixture
def models() -> dict[str, RankCollection]:
    return {model: collection(model) for model in RANKS}


def share_at_most(x: float, optimistic: list[int], pessimistic: list[int]) -> float:
    return float(
        Fraction(
            sum(o + p <= 2 * x for o, p in zip(optimistic, pessimistic, strict=True)),
            len(optimistic),
        )
    )


def chance_at_most(x: float, candidates: list[int]) -> float:
    return float(sum(Fraction(min(int(x), n), n) for n in candidates) / len(candidates))


def test_ecdf_counts_ranks_and_chance(models: dict[str, RankCollection]) -> None:
    fig, ax = plots.rank_ecdf(models)
    assert fig is ax.figure
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_xlim()) == (
        "log",
        "rank x (realistic)",
        (1, 14),
    )
    assert "share of tasks" in ax.get_ylabel()
    assert [line.get_label() for line in ax.lines] == ["a", "b", "random ranking"]
    assert {line.get_drawstyle() for line in ax.lines} == {"steps-post"}
    for model, line in zip(RANKS, ax.lines, strict=False):
        x, y = line.get_data()
        assert list(x) == sorted(x)
        assert (x[0], y[0], x[-1], y[-1]) == (1, 0, 14, 1)
        np.testing.assert_allclose(
            y[1:], [share_at_most(at, *RANKS[model]) for at in x[1:]], rtol=1e-15
        )
        assert {(o + p) / 2 for o, p in zip(*RANKS[model], strict=True)} <= set(x)
    x, y = ax.lines[-1].get_data()
    assert list(x) == list(range(1, 15))
    np.testing.assert_allclose(y, [chance_at_most(at, CANDIDATES) for at in x], rtol=1e-14)


def test_ecdf_of_weights() -> None:
    table = RankTable.from_ranks(
        Ranks([1, 3, 7], None, [10, 20, 30]), side="tail", weight=[1.0, 2.0, 5.0]
    )
    _, ax = plots.rank_ecdf(table, rank_type="optimistic")
    assert [line.get_label() for line in ax.lines] == ["ranks", "random ranking"]
    assert ax.get_xlabel() == "rank x (optimistic)"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0, 1 / 8, 3 / 8, 1, 1])
    chance = dict(zip(*ax.lines[1].get_data(), strict=True))
    assert chance[15.0] == pytest.approx((1 * 1 + 2 * 15 / 20 + 5 * 15 / 30) / 8)
    with pytest.raises(ValueError, match="the evaluation has no ranking tasks to draw"):
        plots.rank_ecdf(table.select(side="head"))


@pytest.mark.parametrize(
    ("metric", "f"), [("mrr", lambda r: 1 / r), ("mr", float), ("hits@3", lambda r: r <= 3)]
)
def test_ties_span_from_pessimistic_to_optimistic(
    models: dict[str, RankCollection], metric: str, f: Callable[[float], float]
) -> None:
    _, ax = plots.ties(models, metric)
    drawn = {line.get_label(): list(line.get_xdata()) for line in ax.lines}
    assert list(drawn) == ["pessimistic", "realistic", "optimistic", "expected"]
    for row, (optimistic, pessimistic) in enumerate(RANKS.values()):
        pairs = list(zip(optimistic, pessimistic, strict=True))
        by_hand = {
            "optimistic": np.mean([f(o) for o, _ in pairs]),
            "pessimistic": np.mean([f(p) for _, p in pairs]),
            "realistic": np.mean([f((o + p) / 2) for o, p in pairs]),
            "expected": np.mean([np.mean([f(r) for r in range(o, p + 1)]) for o, p in pairs]),
        }
        assert {kind: x[row] for kind, x in drawn.items()} == pytest.approx(by_hand)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["a\n50.0% ties\nmean gap 0.833 ranks", "b\n16.7% ties\nmean gap 0.167 ranks"]


def test_datasets_show_the_three_views_of_one_metric(models: dict[str, RankCollection]) -> None:
    other = Ranks([1, 5, 30, 2], None, 5000)
    fig, axes = plots.by_dataset({"small": models, "large": {"b": other}}, "mrr")
    assert len(axes) == 3
    assert [ax.get_title() for ax in axes] == ["MRR", "adjusted MRR", "z of MRR"]
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["small", "large"]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["a", "b", "random ranking"]
    expected = {"small": CANDIDATES, "large": [5000] * 4}
    chance = [
        np.mean([np.mean(1 / np.arange(1, n + 1)) for n in counts]) for counts in expected.values()
    ]
    variances = [[np.var(1 / np.arange(1, n + 1)) for n in counts] for counts in expected.values()]
    spread = [np.sqrt(sum(own)) / len(own) for own in variances]
    np.testing.assert_allclose(axes[0].lines[2].get_ydata(), chance)
    rank = np.mean(RANKS["b"], axis=0)
    base = np.array([np.mean(1 / rank), np.mean(1 / np.array([1, 5, 30, 2]))])
    np.testing.assert_allclose(axes[0].lines[1].get_ydata(), base)
    np.testing.assert_allclose(
        axes[1].lines[1].get_ydata(), (base - chance) / (1 - np.array(chance))
    )
    np.testing.assert_allclose(axes[2].lines[1].get_ydata(), (base - chance) / spread)
    assert np.isnan(axes[0].lines[0].get_ydata()[1])  # model a was not evaluated on the large one


def test_forest_draws_every_interval(models: dict[str, RankCollection]) -> None:
    results = {model: ranks.confidence_intervals() for model, ranks in models.items()}
    _, ax = plots.forest(results, ["mrr", "amri"])
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "MRR a",
        "MRR b",
        "AMRI a",
        "AMRI b",
    ]
    rows = [results[model][metric] for metric in ("mrr", "amri") for model in RANKS]
    assert list(ax.lines[0].get_xdata()) == [row.value for row in rows]
    ends = [(segment[0][0], segment[1][0]) for segment in ax.collections[0].get_segments()]
    assert ends == [(row.low, row.high) for row in rows]
    assert [text.get_text() for text in ax.texts] == [
        f"{r.value:.4f} [{r.low:.4f}, {r.high:.4f}]" for r in rows
    ]
    assert ax.get_xlabel() == "value, 95% interval"


def test_forest_draws_differences_against_zero(models: dict[str, RankCollection]) -> None:
    result = compare(models["a"], models["b"], ["mrr", "hits@3"], confidence_level=0.9)
    _, ax = plots.forest(result)
    assert list(ax.lines[0].get_xdata()) == [row.difference for row in result.rows]
    assert list(ax.lines[1].get_xdata()) == [0, 0]
    assert ax.get_xlabel() == "difference, 90% interval, p by Holm\nright is better for a\n6 tasks"
    assert f"p = {result.rows[0].p_adjusted:.2g}" in ax.texts[0].get_text()
    _, ax = plots.forest({"a against b": result["mrr"]})
    assert [text.get_text() for text in ax.get_yticklabels()] == ["MRR a against b"]
    _, ax = plots.forest(equivalence(models["a"], models["b"], margin=0.1))
    assert ax.get_xlabel() == "difference, 90% interval\nright is better for a\n6 tasks"


def test_groups_show_the_largest_in_their_order(models: dict[str, RankCollection]) -> None:
    ranks = RankCollection(["mrr"])
    group = [5, 5, 5, 8, 2, 2]
    ranks.update(Ranks([1, 2, 4, 1, 3, 3], None, 12), group=group)
    breakdown = ranks.breakdown(names={5: "five", 8: "eight", 2: "two"}).sort(
        "mrr", descending=True
    )
    _, ax = plots.groups(breakdown, "mrr")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["eight", "five", "two"]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [1, 1.75 / 3, 1 / 3])
    assert [text.get_text() for text in ax.texts] == ["1 tasks", "3 tasks", "2 tasks"]
    assert ax.get_xlabel() == "MRR"
    _, ax = plots.groups(breakdown, "mrr", most=2)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["five", "two"]
    assert ax.get_xlabel() == "MRR (the 2 largest of 3 groups)"


def test_forest_names_the_models_and_the_better_side(models: dict[str, RankCollection]) -> None:
    third = {**models, "c": models["a"]}
    _, ax = plots.forest(compare(third, ["mrr", "hits@3"]))
    assert [text.get_text() for text in ax.get_yticklabels()][:3] == [
        "MRR a − b",
        "MRR a − c",
        "MRR b − c",
    ]
    label = "difference, 95% interval, p by max-T\nright is better for the first\n6 tasks"
    assert ax.get_xlabel() == label
    named = {"ours": models["a"], "theirs": models["b"]}
    _, ax = plots.forest(compare(named, ["gmr"]))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["GMR ours − theirs"]
    assert ax.get_xlabel().endswith("p by max-T\nleft is better for ours\n6 tasks")
    # of a spread neither side is better
    _, ax = plots.forest(compare(models["a"], models["b"], "rank_std"))
    assert "better" not in ax.get_xlabel()


def test_intervals_of_datasets_are_those_of_the_collection(
    models: dict[str, RankCollection],
) -> None:
    _, axes = plots.by_dataset({"x": {"one": models["a"]}}, "mrr", confidence_level=0.9)
    # data sets have no order
    assert [line.get_linestyle() for line in axes[0].lines[:2]] == ["None"] * 2
    expected = models["a"].confidence_intervals(0.9)["mrr"]
    assert axes[0].collections[0].get_segments()[0][:, 1].tolist() == [expected.low, expected.high]


def test_calibration_is_the_diagonal_for_all_ranks_and_a_step_for_the_best() -> None:
    every = Ranks(list(range(1, 11)), None, 10)
    first, tied = Ranks([1] * 10, None, 10), Ranks([1] * 4, [10] * 4, 10)
    _, ax = plots.calibration({"every": every, "first": first, "tied": tied})
    x, y = ax.lines[0].get_data()
    np.testing.assert_allclose(y, x, atol=1e-12)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.minimum(10 * x, 1), atol=1e-12)
    # a constant scorer is chance
    np.testing.assert_allclose(ax.lines[2].get_ydata(), x, atol=1e-12)
    band = ax.collections[0].get_paths()[0].vertices
    half = np.sqrt(np.log(2 / 0.05) / (2 * 4))
    assert band[np.isclose(band[:, 0], 0.2), 1].max() == pytest.approx(0.2 + half)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "every",
        "first",
        "tied",
        "random ranking, 95%",
    ]


def test_differences_by_group_are_those_of_compare(models: dict[str, RankCollection]) -> None:
    a, b = models["a"].table(), models["b"].table()
    names = {0: "likes", 1: "knows", 2: "owns"}
    _, ax = plots.group_differences(a, b, "mrr", names=names, models=("ours", "theirs"))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["likes", "knows", "owns"]
    for group in range(3):
        expected = compare(a.select(group=group), b.select(group=group), "mrr")
        assert ax.lines[group].get_xdata()[0] == expected.difference
        assert ax.collections[0].get_segments()[group][:, 0].tolist() == [
            expected.low,
            expected.high,
        ]
    assert ax.texts[0].get_text() == "2 tasks"
    assert ax.get_xlabel().splitlines()[:2] == [
        "MRR: ours − theirs, 95% interval",
        "right is better for ours",
    ]
    # two tasks in a group cannot tell: hollow points
    assert {line.get_markerfacecolor() == ax.get_facecolor() for line in ax.lines[:3]} == {True}
    ranks = ([1] * 60, [9, 8, 7] * 20)
    clear = (
        RankTable.from_ranks(Ranks(one, None, 50), group=0, sample_id=range(60)) for one in ranks
    )
    _, ax = plots.group_differences(*clear, "mrr")
    assert ax.lines[0].get_markerfacecolor() == ax.xaxis.label.get_color()  # filled: beyond chance
    _, ax = plots.group_differences(a, b, "mrr", most=2)
    assert "2 largest of 3 groups" in ax.get_xlabel()
    with pytest.raises(ValueError, match="group 2 has none"):
        plots.group_differences(a, b, names=["x", "y"])
    with pytest.raises(ValueError, match="b needs a group for every task"):
        plots.group_differences(a, b.with_group(None))


def test_a_row_per_data_set_and_a_point_per_model_without_lines_between() -> None:
    fig, ax = study.intervals_by_dataset(CELLS, "mrr", random_values={"d": 0.1})
    drawn = {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}
    assert list(drawn) == ["a", "b", "random ranking"]
    assert drawn["b"].get_xdata().tolist() == [0.3, 0.7]
    assert drawn["random ranking"].get_xdata().tolist() == [0.1]
    assert all(
        line.get_linestyle() == "None" or line.get_label() == "random ranking"
        for line in drawn.values()
    )
    assert [label.get_text() for label in ax.get_yticklabels()] == ["d", "e"]
    assert fig.axes == [ax]
    with pytest.raises(ValueError, match="7 series are too many to distinguish"):
        study.intervals_by_dataset({"d": {str(i): (0.0, 0.0, 0.0) for i in range(7)}}, "mrr")
    with pytest.raises(ValueError, match="nothing to draw"):
        study.intervals_by_dataset({}, "mrr")
    assert (
        len(
            study.intervals_by_dataset(
                {"d": {"m": (0.5, 0.4, 0.6)}}, "mrr", random_values={"e": 0.1}
            )[1].lines
        )
        == 1
    )


def test_differences_end_in_diamonds() -> None:
    _, own = plt.subplots()
    fig, ax = plots.differences(
        {"d": (0.1, -0.1, 0.3)}, {"all": (0.2, 0.1, 0.3)}, "a less b", ax=own
    )
    assert ax is own
    (diamond,) = ax.patches
    assert sorted({x for x, _ in diamond.get_xy().tolist()}) == [0.1, 0.2, 0.3]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["d", "all"]
    assert fig is own.figure


def test_the_critical_difference_names_all_models_and_joins_the_cliques() -> None:
    ranking = study_of(seeds=2).mean_ranks("mr")
    _, ax = study.critical_difference(ranking.models, ranking)
    texts = " ".join(text.get_text() for text in ax.texts)
    for model, mean in zip(ranking.models, ranking.mean, strict=True):
        assert model in texts
        assert f"{mean:.2f}" in texts
    assert len([line for line in ax.lines if line.get_linewidth() == 4]) == len(ranking.cliques)


def test_results_of_a_study_draw_themselves() -> None:
    study = study_of(seeds=2)
    for result in (study.table(["mrr", "mr"]), study.mean_ranks(), study.difference("a", "b")):
        fig, _ = result.plot()
        texts = " ".join(text.get_text() for text in fig.findobj(matplotlib.text.Text))
        assert "a" in texts
    _, ax = study.table("mrr").plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == list(SIZES)


def test_svg_keeps_text_and_has_ids_of_its_own() -> None:
    def drawn(prefix: str) -> str:
        return plots.to_svg(study.intervals_by_dataset(CELLS, "mrr <&>")[0], "a & b", prefix)

    one, other = drawn("one"), drawn("other")
    assert one == drawn("one")
    assert ">mrr &lt;&amp;&gt;</text>" in one
    assert 'aria-label="a &amp; b"' in one
    ids = [set(re.findall(r'id="([^"]*)"', text)) for text in (one, other)]
    assert not ids[0] & ids[1]
    assert (
        set(re.findall(r'href="#([^"]*)"', one)) | set(re.findall(r"url\(#([^)]*)\)", one))
        <= ids[0]
    )
    assert plt.get_fignums() == []
    labels = ("a - b", "a label that is wider than its axes" * 3)
    drawings = [plots.to_svg(plots.differences(CELLS["d"], {}, label)[0], "") for label in labels]
    widths = [float(re.search(r'viewBox="0 0 ([\d.]+)', text)[1]) for text in drawings]
    assert widths[1] > widths[0]  # nothing is cut off


def test_the_smallest_detectable_difference_is_drawn_by_number_of_queries() -> None:
    values = np.random.default_rng(0).normal(size=40)
    _, ax = plots.detectable_differences(values, power=0.9)
    curve, pilot = ax.lines
    for x, y in zip(curve.get_xdata()[::20], curve.get_ydata()[::20], strict=True):
        assert y == pytest.approx(detectable_difference(values, int(x), power=0.9))
    assert pilot.get_xdata() == [40]
    assert pilot.get_ydata() == [detectable_difference(values, power=0.9)]


def figures(models: dict[str, RankCollection]) -> dict[str, Any]:
    named = {"ComplEx": models["a"], "RotatE": models["b"], "TransE": models["a"]}
    pair = {"ComplEx": models["a"], "TransE": models["b"]}
    names = ["relation/of/type", "another/relation", "the/third"]
    intervals = {name: one.confidence_intervals() for name, one in named.items()}
    return {
        "ecdf": plots.rank_ecdf(named),
        "calibration": plots.calibration(named),
        "ties": plots.ties(models),
        "by_dataset": plots.by_dataset({"kinships": pair, "nations": pair, "umls": pair}),
        "forest of values": plots.forest(intervals, ["mrr", "hits_at_3"]),
        "forest of pairs": plots.forest(compare(named, ["mrr", "hits@3"])),
        "groups": plots.groups(models["a"].breakdown(names=names), "mrr"),
        "differences": plots.group_differences(models["a"], models["b"], names=names),
        "sizes": plots.detectable_differences([0.1, -0.3, 0.5, 0.0, 0.2], "difference of MRR"),
    }


@pytest.mark.parametrize(
    "style", ["default", pytest.param("dark_background", marks=pytest.mark.slow)]
)
def test_every_label_is_readable(models: dict[str, RankCollection], style: str) -> None:
    """Whole inside the figure, at least 6.5 points, on no other label, in contrast to the paper."""
    with plt.style.context(style):
        for name, (fig, _) in figures(models).items():
            fig.canvas.draw()
            texts = fig.findobj(matplotlib.text.Text)
            outside = matplotlib.transforms.Bbox(fig.bbox.get_points() + [[-1, -1], [1, 1]])
            axes = [axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis)]
            hidden = {tick.label1 for axis in axes for tick in axis.get_major_ticks()}
            for ax in fig.axes:  # ticks beyond the limits are not drawn
                for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
                    inside = [
                        t.label1
                        for t in axis.get_major_ticks()
                        if min(limits) <= t.get_loc() <= max(limits)
                    ]
                    hidden -= set(inside if axis.get_tick_params().get("labelbottom", True) else [])
            drawn = [
                text
                for text in texts
                if text.get_visible() and text.get_text().strip() and text not in hidden
            ]
            boxes = {text: text.get_window_extent() for text in drawn if not text.get_rotation()}
            for text, box in boxes.items():
                assert outside.x0 <= box.x0, (name, text)
                assert box.x1 <= outside.x1, (name, text)
                assert text.get_fontsize() >= 6.5, (name, text)
                color = np.mean(matplotlib.colors.to_rgb(text.get_color()))
                assert abs(color - np.mean(fig.get_facecolor()[:3])) > 0.5, (name, text)
            for (text, box), (other, other_box) in itertools.combinations(boxes.items(), 2):
                overlap = matplotlib.transforms.Bbox.intersection(box, other_box)
                assert overlap is None or min(overlap.width, overlap.height) < 2, (
                    name,
                    text,
                    other,
                )


@pytest.mark.parametrize(
    "seen",
    [
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    ],
    ids=["full", "protanopia", "deuteranopia", "tritanopia"],
)
def test_colors_differ_for_every_kind_of_color_vision(seen: list[list[float]]) -> None:
    """Seen without one kind of cone (Machado et al. 2009, severity 1), colors stay apart in RGB."""
    colors = [np.array(matplotlib.colors.to_rgb(color)) for color, _, _ in MARKS]
    linear = [np.clip(np.array(seen) @ color**2.2, 0, 1) ** (1 / 2.2) for color in colors]
    for one, other in itertools.combinations(linear, 2):
        assert np.abs(one - other).max() > 0.1


def test_plots_draw_on_given_axes_and_values_that_are_undefined(
    models: dict[str, RankCollection],
) -> None:
    fig, axes = plt.subplots(1, 4)
    for draw in (plots.rank_ecdf, plots.ties):
        assert draw(models, ax=axes[3]) == (fig, axes[3])
    assert plots.forest(models["a"].confidence_intervals(), ["mrr"], ax=axes[3]) == (fig, axes[3])
    assert plots.groups(models["a"].breakdown(), "mrr", ax=axes[3]) == (fig, axes[3])
    one = Ranks([1, 1], None, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plots.by_dataset({"one candidate each": one}, ax=axes[:3]) == (fig, list(axes[:3]))
    assert np.isnan(axes[2].lines[0].get_ydata()).all()  # the z-score
    assert len(plt.get_fignums()) == 1
    _, ax = plots.rank_ecdf({"x": one, "y": one, "z": Ranks([1, 2], None, 1000)})
    assert [line.get_label() for line in ax.lines][3:] == [
        "random ranking (x, y)",
        "random ranking (z)",
    ]
    assert len(ax.lines[-1].get_xdata()) < 1100


def test_without_matplotlib_or_its_cache_directory_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(name: str) -> None:
        raise OSError("Matplotlib requires access to a writable cache directory")

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.pyplot", None)
        with pytest.raises(ImportError, match=r"pip install 'torchrankmetrics\[plot\]'"):
            plots.rank_ecdf(Ranks([1], None, 9))
    monkeypatch.setattr("torchrankmetrics.plots.canvas.importlib.import_module", failing)
    with pytest.raises(OSError, match="set MPLCONFIGDIR"):
        pyplot()


BAD = [
    (
        TypeError,
        "evaluation of 'x' must be a RankTable, a RankColl",
        lambda m: plots.rank_ecdf({"x": [1, 2]}),
    ),
    (ValueError, "nothing to draw", lambda m: plots.rank_ecdf({})),
    (TypeError, "ax must be matplotlib Axes", lambda m: plots.rank_ecdf(m, ax=3)),
    (ValueError, "base metric", lambda m: plots.ties(m, "amri")),
    (ValueError, "adjusted index", lambda m: plots.by_dataset({"x": m}, "rank_std")),
    (ValueError, "base metric of ranks", lambda m: plots.ties(m, "tie_rate")),
    (TypeError, "dict of dataset", lambda m: plots.by_dataset(m["a"])),
    (ValueError, "must be 3 axes", lambda m: plots.by_dataset({"x": m}, ax=plt.subplots(1, 2)[1])),
    (TypeError, "confidence_intervals", lambda m: plots.forest(m["a"])),
    (TypeError, "breakdown", lambda m: plots.groups(m["a"], "mrr")),
    (ValueError, "dataset 'x' has no evaluation", lambda m: plots.by_dataset({"x": {}})),
    (
        ValueError,
        "different candidates",
        lambda m: plots.by_dataset({"x": {"a": m["a"], "b": Ranks([1], None, 9)}}),
    ),
    (
        ValueError,
        "shares: 'mrr'.* ranks: 'mr'",
        lambda m: plots.forest(m["a"].confidence_intervals()),
    ),
    (
        ValueError,
        "'gmr' are missing",
        lambda m: plots.forest(m["a"].confidence_intervals(), ["gmr"]),
    ),
    (
        ValueError,
        "two plots",
        lambda m: plots.forest({"x": m["a"].confidence_intervals(), "y": compare(*m.values())}),
    ),
    (ValueError, "must be one of 'mrr'", lambda m: plots.groups(m["a"].breakdown(), "gmr")),
]


@pytest.mark.parametrize(("error", "message", "call"), BAD)
def test_bad_arguments_raise(
    models: dict[str, RankCollection], error: Any, message: str, call: Any
) -> None:
    with pytest.raises(error, match=message):
        call(models)
