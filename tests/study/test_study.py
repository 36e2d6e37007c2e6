"""Studies have what their tables have: values of evaluate, intervals and p-values of compare."""

from collections.abc import Callable, Sequence
from itertools import combinations, permutations, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.stats import friedmanchisquare, rankdata

import torchrankmetrics as trm
from fuzzing import cases
from studies import SIZES, ULTRA, study_of, table_of
from torchrankmetrics import RankCollection, RankDefinition, RankMetric, Ranks, RankTable, evaluate
from torchrankmetrics.definitions import IDENTITY
from torchrankmetrics.inference import holm
from torchrankmetrics.inference.standard_errors import units_of
from torchrankmetrics.inference.testing import SeededModels
from torchrankmetrics.study import RankStudy
from torchrankmetrics.study.mean_ranks import Ranking, friedman


@pytest.mark.parametrize(
    "metric", ["mrr", "hits@10", "adjusted_mrr", "z_mr", "median_rank", "tie_rate", "own"]
)
def test_a_value_is_the_mean_over_seeds_of_evaluate_and_chance_that_of_the_tasks(
    metric: str,
) -> None:
    given = metric
    if metric == "own":
        given = RankMetric(
            RankDefinition("ndcg", f=lambda r: 1 / torch.log2(1 + r)), view="adjusted_index"
        )
    table = study_of(seeds=2).table(given)
    key = table.measures[0].key
    for model in "abc":
        for dataset in SIZES:
            values = [
                evaluate(table_of(model, dataset, seed), metrics=[given])[key] for seed in range(2)
            ]
            assert table.cell(model, dataset).value == pytest.approx(np.mean(values), rel=1e-12)
            if metric == "mrr":
                expected = (
                    RankMetric("mrr").moments(table_of("a", dataset, 0).ranks.num_candidates).mean
                )
                assert table.results["mrr", dataset].random_value == pytest.approx(float(expected))
    if key.startswith("adjusted_"):
        assert table.results[key, dataset].random_value == pytest.approx(0, abs=1e-12)
    assert any(cell.best for cell in table.cells.values()) == (metric != "tie_rate")


@pytest.mark.parametrize("cluster", [None, "group"])
def test_intervals_of_one_seed_are_those_of_the_collection(cluster: str | None) -> None:
    table = study_of().table(
        ["mrr", "adjusted_mrr", "hits@10", "mr", "gmr"], confidence_level=0.9, cluster=cluster
    )
    collection = RankCollection(["mrr", "adjusted_mrr", "hits@10", "mr", "gmr"])
    collection.update(table_of("b", "middle", 0))
    for row in collection.confidence_intervals(0.9, cluster=cluster).rows:
        cell = table.cell("b", "middle", row.metric)
        assert (cell.value, cell.low, cell.high) == pytest.approx(
            (row.value, row.low, row.high), rel=1e-12
        )


@pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")
@pytest.mark.parametrize("seeds", [1, 3])
def test_differences_are_those_of_compare(seeds: int) -> None:
    study = study_of(seeds=seeds)
    for metric in ("mrr", "hits@10", "gmr", "amri", "z_mrr"):
        found = study.difference("a", "b", metric)
        for dataset in SIZES:
            runs = [[table_of(model, dataset, seed) for seed in range(seeds)] for model in "ab"]
            theirs = trm.compare(*(one[0] if seeds == 1 else one for one in runs), metric)
            row = found[dataset]
            ours = (row.difference, row.low, row.high, row.p_value)
            assert ours == pytest.approx(
                (theirs.difference, theirs.low, theirs.high, theirs.p_value), rel=1e-9
            )
            assert row.test == theirs.test
        errors = np.array([row.standard_error for row in found.rows])
        assert found.here.difference == pytest.approx(
            np.mean([row.difference for row in found.rows])
        )
        assert found.here.standard_error == pytest.approx(np.sqrt((errors**2).sum()) / 3)
        if seeds > 1:  # t and not the normal distribution
            assert (found.here.high - found.here.low) / 2 > 1.96 * found.here.standard_error


@pytest.mark.parametrize(
    ("ranks", "p"), [((4, 5), 2 * 2.0**-20), ((2, 4), 1.0)], ids=["one_way", "cancel"]
)
def test_a_mean_of_differences_without_spread_is_not_sure(ranks: tuple[int, int], p: float) -> None:
    """Twenty tasks that differ alike: p of the two flips that reach the sum, or an upper bound."""
    study = RankStudy()
    for dataset, rank in zip(("one", "two"), ranks, strict=True):
        for model, own in (("a", 3), ("b", rank)):
            table = RankTable.from_ranks(Ranks([own] * 10, [own] * 10, [9] * 10))
            study.add(table, dataset=dataset, model=model)
    found = study.difference("a", "b", "mr")
    assert found.here.standard_error == 0
    assert p <= found.here.p_value <= min(50 * p, 1)


def test_the_error_of_a_mean_over_seeds_is_that_of_the_two_way_layout() -> None:
    """By hand, 5 runs on 400 tasks: variances between runs, between tasks, of a run on a task."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1)) + 0.1 * rng.normal(size=(1, 5)) + 0.5 * rng.normal(size=(400, 5))
    models = SeededModels(units_of(x, np.ones(400), np.ones(400, dtype=np.int64)), (5,), IDENTITY)
    residual = x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()
    interaction = (residual**2).sum() / 399 / 4
    seeds = x.mean(0).var(ddof=1) - interaction / 400
    tasks = x.mean(1).var(ddof=1) - interaction / 5
    split = models.estimate(0.95, 0).split
    assert (split.seeds, split.tasks, split.interaction) == pytest.approx(
        (seeds / 5, tasks / 400, interaction / 2000)
    )


def test_runs_that_differ_on_tasks_and_nowhere_else_have_an_interval() -> None:
    """Two runs of equal value on tasks of equal mean: neither seeds nor tasks add anything."""
    study = RankStudy()
    for model, ranks in {"a": ([1, 9] * 20, [9, 1] * 20), "b": ([2, 8] * 20, [8, 2] * 20)}.items():
        for seed, one in enumerate(ranks):
            table = RankTable.from_ranks(Ranks(one, None, 20), sample_id=torch.arange(40))
            study.add(table, model=model, dataset="d", seed=seed)
    cell = study.table("hits@3").cell("a", "d")
    assert cell.low < 0.5 < cell.high
    assert study.difference("a", "b", "mr")["d"].p_value == 1


@pytest.mark.parametrize(("metric", "top"), [("mrr", max), ("mr", min)])
def test_marks_are_those_of_the_adjusted_p_values_and_ranks_follow(
    metric: str, top: Callable[..., str]
) -> None:
    table = study_of(seeds=3).table(metric)
    for dataset in SIZES:
        cells = {model: table.cell(model, dataset) for model in "abc"}
        best = top(cells, key=lambda model: cells[model].value)
        assert [model for model in "abc" if cells[model].best] == [best]
        assert cells[best].p_best == 1
        for cell in cells.values():
            low, high = cell.rank
            assert 1 <= low <= high <= 3
            assert (low == 1) == (cell.best or cell.p_best > 0.05)
    text = table.to_text()
    marked = sum(not cell.best and cell.p_best > 0.05 for cell in table.cells.values())
    assert text.split("\nMeans over")[0].count("†") == marked


def test_stars_are_those_of_the_differences_from_the_baseline() -> None:
    study = study_of(seeds=2)
    table = study.table("mrr")
    p = holm([study.difference(*pair)[data].p_value for pair in ("ab", "bc") for data in SIZES])
    labels = {"a": "This work", "b": "Baseline"}
    source = table.to_markdown(baseline="b", stars=True, percent=True, digits=1, labels=labels)
    rows = {
        line.split(" | ")[0].strip("| *"): line
        for line in source.splitlines()
        if line.startswith("|")
    }
    for model, part in (("This work", p[:3]), ("c", p[3:])):
        cells = rows[model].split(" | ")[1:]
        assert [cell.count("\\*") for cell in cells] == [
            sum(x <= level for level in (0.05, 0.01, 0.001)) for x in part
        ]
    assert f"{100 * table.cell('c', 'large').value:.1f}" in rows["c"]
    assert "significantly different from Baseline" in source
    assert "6 pairwise comparisons" in source
    assert "Metric: MRR (higher is better)." in source
    assert "from the best (p ≤" in table.to_markdown(stars=True)
    with pytest.raises(ValueError, match="baseline must be one of 'a', 'b', 'c'"):
        table.to_latex(baseline="d")


def test_values_that_random_ranking_explains_are_marked() -> None:
    study, rng = study_of(datasets=("middle",)), np.random.default_rng(0)
    counts = table_of("a", "middle", 0).ranks.num_candidates
    random = Ranks(1 + (torch.from_numpy(rng.random(120)) * counts).long(), None, counts)
    ids = torch.arange(120)
    study.add(
        RankTable.from_ranks(random, side="tail", group=ids % 30, sample_id=ids),
        model="r",
        dataset="middle",
    )
    table = study.table(["mrr", "tie_rate"])
    better = [table.cell(model, "middle").is_better_than_random for model in "abcr"]
    assert better == [True, True, True, False]
    assert table.cell("r", "middle", "tie_rate").is_better_than_random is None
    text = table.to_text()
    assert (
        "‡: not significantly better than random ranking (family-wise error rate 5% for each "
        "metric)" in text
    )
    assert "‡" in next(line for line in text.splitlines() if line.startswith("r "))
    assert text.count("‡") == 2
    assert table.to_pandas().better_than_random.tolist()[:4] == [1, 1, 1, 0]
    assert "‡" not in study_of(datasets=("middle",)).table().to_text()
    assert "r on middle: MRR" in study.report(metrics="mrr")


def test_the_pairs_of_all_metrics_and_datasets_are_corrected_by_holm() -> None:
    study, metrics = study_of(), ["mrr", "hits@10"]
    table = study.table(metrics)
    keys = ("mrr", "hits_at_10")
    places = [
        (*pair, dataset, key)
        for key in keys
        for dataset in SIZES
        for pair in combinations("abc", 2)
    ]
    found = [study.difference(a, b, key)[dataset].p_value for a, b, dataset, key in places]
    adjusted = dict(zip(places, holm(found).tolist(), strict=True))
    for (a, b, dataset, key), p in adjusted.items():
        best = next(model for model in "abc" if table.cell(model, dataset, key).best)
        if best in (a, b):
            assert table.cell(b if best == a else a, dataset, key).p_best == pytest.approx(
                p, rel=1e-12
            )
    assert len(set(adjusted.values())) > 6
    assert (study_of(datasets=("small",)).table("mrr").num_tests, table.num_tests) == (3, 18)


def test_metrics_without_direction_have_no_best() -> None:
    table = study_of().table("tie_rate")
    assert not any(cell.best for cell in table.cells.values())
    assert "Bold" not in table.to_text()
    with pytest.raises(ValueError, match="'tie_rate' has no direction"):
        study_of().mean_ranks("tie_rate")


def test_missing_cells_are_shown_and_counted() -> None:
    study = study_of()
    study.add(table_of("a", "small", 0), model="d", dataset="small")
    assert study.missing == [("d", "middle"), ("d", "large")]
    assert "2 of these missing" in repr(study)
    table = study.table("mrr")
    assert table.cell("d", "large") is None
    line = next(line for line in table.to_text().splitlines() if line.startswith("d "))
    assert line.split()[-2:] == ["-", "-"]
    assert ",,,,,,,,," in next(
        row for row in table.to_csv().splitlines() if row.startswith("d,large,mrr")
    )


def test_metrics_that_need_unknown_numbers_of_candidates_are_missing() -> None:
    study = RankStudy()
    for model, ranks in {"a": [1, 7, 5], "b": [2, 9, 4]}.items():
        study.add(Ranks(ranks), model=model, dataset="unknown")
        study.add(Ranks(ranks, None, 9), model=model, dataset="known")
    table = study.table(["mrr", "amri", "auc"])
    missing = [(key, data) for (key, _, data), cell in table.cells.items() if np.isnan(cell.value)]
    assert sorted(missing) == [("amri", "unknown")] * 2 + [("auc", "unknown")] * 2
    assert table.num_tests == 4
    assert table.cell("a", "unknown").high <= 1  # of an MRR, whatever the numbers
    assert (
        "AMRI: without unknown, where a model has no value." in study.summary(["mrr", "amri"]).notes
    )


def test_notes_name_single_models_equal_ones_and_nan_and_sampled_candidates() -> None:
    study = RankStudy()
    # in an order that canonical rows have, too
    study.add(Ranks([1, 2, 3], None, 9), model="a", dataset="d")
    assert "compared" not in study.table("mrr").to_text()
    assert "(random ranking: 0.314)." in study.summary("mrr").notes[1]
    study.add(Ranks([1, 2, 3], None, 8), model="b", dataset="d")
    text = study.table("mrr").to_text()
    assert "b: not compared" in text
    assert "Bold" not in text
    for name in ("nan", "sampled"):
        marks = {"optimistic": [1, 2, 3], "num_candidates": 9, name: [False, True, False]}
        study.add(RankTable.from_numpy(marks), model=name, dataset="d")
    table = study.table("mrr")
    assert "nan: NaN scores in 1 tasks" in table.to_text()
    assert "sampled: ranked among sampled candidates in 1 tasks" in table.to_text()
    assert "\nBold: best of its dataset.\n" in table.to_text()
    assert [table.cell(model, "d").best for model in table.models] == [True, False, True, True]


def test_seeds_that_are_missing_are_reported() -> None:
    study = study_of(seeds=2)
    study.add(table_of("a", "small", 2), model="a", dataset="small", seed=2)
    assert "b, c: seed 2 is missing" in study.table("mrr").to_text()
    assert study.table("mrr").cell("a", "small").seeds == ("0", "1", "2")


def test_other_candidates_are_reported_and_not_compared() -> None:
    study = study_of()
    odd = table_of("a", "small", 1)
    odd.rows[:, 2] += 1
    for model in ("odd", "second"):  # one reason for both
        study.add(odd, model=model, dataset="small")
    table = study.table("mrr")
    note = (
        "odd, second: not compared, because a, seed 0, and this run differ in num_candidates "
        "at 40 tasks"
    )
    assert note in table.to_text()
    cell = table.cell("odd", "small")
    assert cell.value == pytest.approx(evaluate(odd, metrics=["mrr"])["mrr"])
    assert not cell.best
    assert np.isnan(cell.p_best)
    assert study_of().table("mrr").cell("b", "small").p_best == table.cell("b", "small").p_best


def test_runs_of_a_model_on_other_tasks_have_the_interval_of_their_seeds() -> None:
    study = RankStudy()
    values = []
    for seed in range(3):
        ranks = Ranks([1 + seed, 2, 3], None, 10 + seed)
        study.add(ranks, model="a", dataset="d", seed=seed)
        values.append(evaluate(ranks, metrics=["mrr"])["mrr"])
    cell = study.table("mrr").cell("a", "d")
    assert cell.standard_error == pytest.approx(np.std(values, ddof=1) / 3**0.5)
    assert cell.seed_share == 1


def test_everything_that_holds_ranks_can_be_added(tmp_path: Path) -> None:
    table = table_of("a", "small", 0)
    table.save(tmp_path / "a.npz")
    collection = RankCollection(["mr"])
    collection.update(table)
    results = SimpleNamespace(table=table)  # as RankResults and, below, PyKEEN's PipelineResult
    study = RankStudy()
    pipeline = SimpleNamespace(metric_results=results)
    for name, source in enumerate(
        (table, tmp_path / "a.npz", collection, table.ranks, results, pipeline)
    ):
        study.add(source, model=str(name), dataset="d")
    values = {study.table("mrr").cell(name, "d").value for name in study.models}
    assert values == {evaluate(table, metrics=["mrr"])["mrr"]}
    with pytest.raises(TypeError, match=r"table must be a RankTable.*got int"):
        study.add(3, model="x", dataset="d")
    with pytest.raises(ValueError, match="the study has a run of 0 on d, seed 0 already"):
        study.add(table, model="0", dataset="d")
    with pytest.raises(ValueError, match="have no ranking tasks"):
        study.add(RankTable.concatenate([]), model="x", dataset="d")
    assert len(study) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": "mrrr"}, "unknown metric 'mrrr'"),
        ({"metrics": []}, "metrics is empty"),
        ({"metrics": "p_mrr"}, "'p_mrr' has no mean over seeds"),
        ({"metrics": "count"}, "'count' has no mean over seeds"),
        ({"view": "index"}, "view must be one of"),
        ({"confidence_level": 1}, "confidence_level must be in"),
        ({"cluster": "side"}, "cluster must be one of"),
    ],
)
def test_bad_options_are_reported(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study_of(datasets=("small",)).table(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda study: study.table().with_layout(rows="cells"),
            ValueError,
            "rows must be one of 'models', 'datasets'; got 'cells'",
        ),
        (
            lambda study: study.table().to_markdown(digits=-1),
            ValueError,
            "digits must be an int",
        ),
        (
            lambda study: study.difference("a", "a"),
            ValueError,
            "a and b must be two models, got 'a' twice",
        ),
        (
            lambda study: study.summary("hits@10")["hits@10", "a"],
            KeyError,
            r"\('hits@10', 'a'\) is missing; available: \('hits_at_10', 'a'\)",
        ),
        (
            lambda study: study.difference("a", "b")["nations"],
            KeyError,
            "'nations' is missing; available: small",
        ),
    ],
    ids=["layout", "digits", "pair", "average", "dataset"],
)
def test_bad_styles_and_pairs_are_named(
    call: Callable[[RankStudy], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(study_of("ab", datasets=("small",)))


def test_a_study_without_runs_has_no_table() -> None:
    with pytest.raises(ValueError, match=r"the study has no runs: add\("):
        RankStudy().table()


def test_tied_scores_are_not_better_than_random() -> None:
    """The middle of a block of 19 is in the first 10, its end is not: realistic hits are all 1."""
    study, ids = RankStudy(), torch.arange(50)
    for model, low, high in (("tied", 1, 19), ("good", 1, 1), ("random", 500, 500)):
        ranks = Ranks(torch.full((50,), low), torch.full((50,), high), 1000)
        study.add(RankTable.from_ranks(ranks, sample_id=ids), model=model, dataset="large")
    averages = study.summary(["hits@10", "expected_hits@1"])
    for metric in ("hits_at_10", "expected_hits_at_1"):
        assert [averages[metric, model].better_than_random for model in study.models] == [
            0,
            1,
            0,
        ], metric


def mean_ranks_of(rows: Sequence[Sequence[float]], metric: str) -> Ranking:
    """Mean ranks of models (columns) on datasets (rows) with a single value each."""
    study = RankStudy()
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            study.add_values({"q": value}, metric=metric, model=str(j), dataset=str(i))
    return study.mean_ranks(metric)


def test_mean_ranks_of_demsars_example() -> None:
    """Demsar 2006, section 3.2.2: mean ranks of 4 classifiers on 14 datasets differ (Friedman)."""
    rows = "4 3 2 1|1 2 3 4|4 1 2 3|4 1 3 2|4 2 3 1|1 2.5 4 2.5|3 2 4 1|2.5 2.5 4 1|4 3 2 1"
    rows += "|2.5 2.5 2.5 2.5|4 2.5 1 2.5|3 2 4 1|4 1 2 3|3 1 4 2"
    found = mean_ranks_of([list(map(float, row.split())) for row in rows.split("|")], "mr")
    assert found.mean == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=5e-4)
    assert found.critical_difference == pytest.approx(1.25, abs=0.005)


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2, 3]] * 3,
        [[1, 2, 3], [1, 3, 2], [2, 1, 3], [1, 2, 3]],
        [[1.5, 1.5, 3], [1, 2, 3], [3, 1, 2]],
        [[1, 2.5, 2.5, 4], [1, 2, 3, 4], [2, 1, 4, 3]],
        [[1, 2, 3, 4, 5], [2, 1, 3, 5, 4]],
    ],
)
def test_friedmans_test_of_few_datasets_is_enumerated(rows: list[list[float]]) -> None:
    """Every order of the ranks of every dataset, one by one."""
    ranks = np.array(rows)
    reached = [
        ((np.array(orders).sum(0) - ranks.sum() / ranks.shape[1]) ** 2).sum()
        for orders in product(*(list(permutations(row)) for row in rows))
    ]
    observed = ((ranks.sum(0) - ranks.sum() / ranks.shape[1]) ** 2).sum()
    p_value, is_exact = friedman(ranks)
    assert is_exact
    assert p_value == pytest.approx(np.mean(np.array(reached) >= observed - 1e-9))
    if ranks.shape == (3, 3) and observed == 18:
        assert p_value == pytest.approx(1 / 36)


@pytest.mark.parametrize(("datasets", "models"), [(60, 3), (20, 6)])
def test_friedmans_test_of_many_datasets_is_that_of_scipy(datasets: int, models: int) -> None:
    values = np.random.default_rng(models).integers(0, 5, (datasets, models)).astype(float)
    p_value, is_exact = friedman(rankdata(values, axis=1))
    assert not is_exact
    assert p_value == pytest.approx(friedmanchisquare(*values.T).pvalue)
    assert friedman(np.full((4, 3), 2.0)) == (1.0, True)


@given(
    st.integers(2, 9),
    st.integers(3, 6),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["mr", "score"]),
)
@cases(10, 200)
def test_models_of_a_clique_are_close(datasets: int, models: int, seed: int, metric: str) -> None:
    values = np.random.default_rng(seed).integers(0, 5, (datasets, models)).astype(float)
    found = mean_ranks_of(values.tolist(), metric)
    for clique in found.cliques:
        means = [found.mean[i] for i in clique]
        assert max(means) - min(means) <= found.critical_difference + 1e-12
        assert len(clique) > 1


@pytest.mark.skipif(not ULTRA.is_dir(), reason=f"the tables of ULTRA are not in {ULTRA}")
def test_real_tables_agree_with_other_programs() -> None:
    """Three checkpoints of ULTRA on 19 graphs.

    Compared are p-values of ranx 0.3.21 (Student) and mean ranks of autorank 1.3.0.
    """
    study = RankStudy.open(ULTRA / "{dataset}.{model}.npz")
    assert (study.models, len(study.datasets), len(study)) == (["3g", "4g", "50g"], 19, 57)
    theirs = (1.6172001431042853e-21, 0.08108643150617274, 1.365821920022247e-23)
    for pair, p in zip(combinations(study.models, 2), theirs, strict=True):
        ours = study.difference(*pair, cluster=None)["nations"].p_value
        assert ours == pytest.approx(p, abs=0.01)  # sign flips and Student's t
    ranks = study.mean_ranks()
    assert ranks.is_exact
    assert ranks.p_value == pytest.approx(0.005178924370597789, abs=0.002)  # chi-square
    assert ranks.critical_difference == pytest.approx(0.760397983829745, rel=1e-5)
    assert ranks.mean == pytest.approx((2.526316, 2.0, 1.473684), abs=1e-6)
    averages = study.summary(["mrr", "amri"])
    order = {
        key: sorted(study.models, key=lambda model: -averages[key, model].value)
        for key in ("mrr", "amri")
    }
    assert order == {"mrr": ["50g", "4g", "3g"], "amri": ["50g", "3g", "4g"]}
    assert averages["mrr", "4g"].better_than_random == 18  # not on Nations
