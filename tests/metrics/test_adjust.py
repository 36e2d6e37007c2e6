"""adjust: the views of a collection from the base value alone, and the interval that rounding leaves."""

import math

import numpy as np
import pytest

from torchrankmetrics import RankDefinition, RankMetricWarning, adjust, evaluate
from torchrankmetrics.definitions.candidates import Moments
from torchrankmetrics.null import ExactExpectation

RANKS = [1, 4, 2, 9, 1, 30, 3, 3]
COUNTS = [40, 40, 38, 14, 35, 40, 12, 31]
MEANS = ["mr", "mrr", "auc", "hits_at_1", "hits_at_10", "imr", "hmr", "gmr", "igmr"]


@pytest.mark.parametrize("view", ["adjusted_index", "normalized", "z_score", "p_value"])
@pytest.mark.parametrize("name", MEANS)
def test_values_are_those_of_a_collection_of_the_ranks(name, view):
    base = evaluate(RANKS, COUNTS, [name])[name]
    ((_, expected),) = evaluate(RANKS, COUNTS, [name], views=[view]).items()
    assert adjust(base, name, COUNTS, view=view) == pytest.approx(expected, rel=1e-9)


# Berrendorf et al. 2020 (arXiv 2002.06914), table 1: filtered MR and AMRI in percent, as printed
TABLE_1 = {
    "wn18rr": [(7000, "65.8"), (4412, "78.4"), (2289, "88.8"), (2126, "89.6"), (6254, "69.4"), (2448, "88.0")],
    "fb15k237": [(500, "93.0"), (241, "96.6"), (317, "95.6"), (219, "97.0"), (540, "92.5"), (167, "97.7")],
}


def test_amri_of_berrendorf_et_al_are_reproduced_by_filtered_candidates_and_not_by_the_number_of_entities():
    for graph, models in TABLE_1.items():
        assert [f"{100 * adjust(rank, 'mr', graph):.1f}" for rank, _ in models] == [printed for _, printed in models]
    by_entities = [f"{100 * adjust(rank, 'mr', 14_541):.1f}" for rank, _ in TABLE_1["fb15k237"]]
    assert sum(got != printed for got, (_, printed) in zip(by_entities, TABLE_1["fb15k237"], strict=True)) == 4


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("0.355", "0.3545", "0.3555"), ("0.40", "0.395", "0.405"), ("0.4", "0.35", "0.45"), ("4e-1", "0.35", "0.45")],
)
def test_rounding_leaves_half_a_unit_of_the_last_digit(text, low, high):
    found = adjust(text, "mrr", COUNTS)
    assert (found.low, found.value, found.high) == pytest.approx(
        tuple(adjust(float(x), "mrr", COUNTS) for x in (low, text, high))
    )
    assert float(found) == found.value
    assert str(found).startswith(f"{found.value:.4f} [")


@pytest.mark.parametrize("name", ["mrr", "hits_at_1", "hits_at_10", "auc", "mr"])
@pytest.mark.parametrize("view", ["adjusted_index", "normalized", "z_score"])
def test_sampling_bounds_the_normal_interval_of_any_ranks_with_that_mean(name, view):
    for exponent in (1, 7):
        random = np.random.default_rng(exponent)
        counts = random.integers(20, 60, 100)
        ranks = np.ceil(counts * random.random(100) ** exponent).astype(int)
        base = evaluate(ranks, counts, [name])[name]
        digits = f"{base:.12f}"
        f = {"mrr": 1 / ranks, "mr": ranks, "auc": (counts - ranks) / (counts - 1)}.get(name)
        f = (ranks <= int(name.rpartition("_")[2])).astype(float) if f is None else f
        slope = (adjust(base, name, counts, view=view) - adjust(base + 1e-3, name, counts, view=view)) / 1e-3
        half = 1.959963984540054 * abs(slope) * f.std() / math.sqrt(100)
        found = adjust(digits, name, counts, view=view).sampling
        assert found >= half * (1 - 1e-6)
        if name.startswith("hits"):
            assert found == pytest.approx(half, rel=1e-6)
    assert math.isnan(adjust("0.4", "mrr", 40).sampling)  # of how many tasks is not known
    assert math.isnan(adjust("0.4", "mrr", COUNTS, view="p_value").sampling)


def test_own_metrics_and_expectations_are_accepted():
    dcg = RankDefinition("dcg", f=lambda r: 1 / (1 + r).log2())
    mean = np.mean([np.mean(1 / np.log2(1 + np.arange(1, n + 1))) for n in COUNTS])
    assert adjust(0.6, dcg, COUNTS) == pytest.approx((0.6 - mean) / (1 - mean))
    plain = adjust(0.4, "mrr", COUNTS, view="z_score")

    class Doubled(ExactExpectation):
        def moments(self, definition, counts, weight=None):
            exact = super().moments(definition, counts, weight)
            return Moments(exact.mean, 4 * exact.variance)

    doubled = adjust(0.4, "mrr", COUNTS, view="z_score", expectation=Doubled())
    assert doubled == pytest.approx(plain / 2)


def test_zero_variance_under_the_null_is_nan_with_a_warning():
    with pytest.warns(RankMetricWarning, match="adjusted_hits_at_10 is undefined"):
        assert math.isnan(adjust(1.0, "hits@10", [5, 9, 10]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((35.5, "mrr", COUNTS), {}, r"in \[0.0\d+, 1\].*\(as a share, not in percent\)"),
        ((41, "mr", 40), {}, r"in \[1, 40\]"),
        ((0.9, "amri", 40), {}, "must be a base metric, such as 'mr'"),
        ((0.3, "mrr", 40), {"view": "z_score"}, "one count per task for 'mrr' with view='z_score'"),
        ((0.3, "mmr", 40), {}, "did you mean"),
        (("a third", "mrr", 40), {}, "its digits"),
        ((math.nan, "mrr", 40), {}, "finite"),
        ((2.0, "rank_std", COUNTS), {}, "no meaning"),
        ((0.3, "mrr", []), {}, "num_candidates is empty"),
        (("54.3%", "Hits@10", "FB15k-237"), {}, "not in percent"),
        (("0.355", "MRR"), {"dataset": "FB15k-237"}, "did you mean 'num_candidates'"),
        (("0.355", "MRR", "FB15k"), {}, "KnownTriples.num_candidates` counts others"),
        (("0.355", "MRR", "FB15k-273"), {}, "fb15k237"),
    ],
)
def test_impossible_values_raise(arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        adjust(*arguments, **options)
