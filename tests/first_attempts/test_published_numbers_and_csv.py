"""Numbers of a paper, relative to random ranking, and ranks in a CSV file; expectations are computed here."""

import numpy as np
import pytest

from torchrankmetrics import RankTable, adjust, compare, evaluate
from torchrankmetrics.datasets import candidate_counts


def expectation(f):
    """Mean of f over uniform ranks, averaged over the test tasks of FB15k-237."""
    counts = candidate_counts("fb15k237")
    sums = np.cumsum(f(np.arange(1, counts.num_candidates.max() + 1)))
    return np.average(sums[counts.num_candidates - 1] / counts.num_candidates, weights=counts.count)


@pytest.mark.parametrize(
    ("value", "metric", "f"), [(0.355, "MRR", lambda rank: 1 / rank), (0.543, "Hits@10", lambda rank: rank <= 10)]
)
@pytest.mark.parametrize("dataset", ["FB15k-237", "fb15k237"])
def test_a_number_of_a_paper(value, metric, f, dataset):
    chance = expectation(f)
    assert adjust(value, metric, dataset) == pytest.approx((value - chance) / (1 - chance))
    rounded = adjust(str(value), metric, dataset)
    assert (rounded.low, rounded.high) == pytest.approx(
        [(value + half - chance) / (1 - chance) for half in (-0.0005, 0.0005)]
    )


def test_a_mean_rank_with_the_number_of_entities():
    assert adjust(250, "mr", 14541) == pytest.approx(1 - 2 * 249 / 14540)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((35.5, "MRR", "FB15k-237"), {}, "as a share, not in percent"),
        (("54.3%", "Hits@10", "FB15k-237"), {}, "not in percent"),
        (("0.355", "MRR"), {"dataset": "FB15k-237"}, "did you mean 'num_candidates'"),
        (("0.355", "MRR", "FB15k"), {}, "torchrankmetrics candidates"),
        (("0.355", "MRR", "FB15k-273"), {}, "fb15k237"),
    ],
)
def test_other_spellings_name_the_right_one(arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        adjust(*arguments, **options)


def test_a_csv_of_ranks_is_reported_and_compared(tmp_path, monkeypatch, capsys):
    pytest.importorskip("typer")
    from torchrankmetrics.cli import main

    monkeypatch.chdir(tmp_path)
    ranks = {name: np.random.default_rng(0).integers(1, top, 200) for name, top in (("a", 30), ("b", 60))}
    for name, values in ranks.items():
        rows = "\n".join(f"{number},{rank},100,tail" for number, rank in enumerate(values))
        (tmp_path / f"{name}.csv").write_text(f"sample_id,rank,num_candidates,side\n{rows}\n")
    table, mrr = RankTable.load("a.csv"), [(1 / values).mean() for values in ranks.values()]
    assert evaluate(table, metrics=["mrr"])["mrr"] == pytest.approx(mrr[0])
    assert compare(table, RankTable.load("b.csv"), "mrr").difference == pytest.approx(mrr[0] - mrr[1])
    assert main(["report", "a.csv", "-m", "mrr"]) == main(["compare", "a.csv", "b.csv", "-m", "mrr"]) == 0
    assert f"{mrr[0]:.4f}" in capsys.readouterr().out
    (tmp_path / "half.csv").write_text("rank,num_candidates\n1.5,100\n")
    with pytest.raises(ValueError, match=r"optimistic.*pessimistic"):
        RankTable.load("half.csv")
