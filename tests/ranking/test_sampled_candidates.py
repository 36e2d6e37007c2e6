"""Ranks among sampled candidates: the estimate of the full rank, and what the printed tables say."""

import itertools
import math

import pytest
import torch

from torchrankmetrics import RankCollection, RankMetricWarning, Ranks, RankTable, evaluate


def samples(scores, m):
    """Every set of m negatives of a true candidate that stands first, each equally likely: one batch of ranks."""
    negatives = torch.tensor(list(itertools.combinations(scores[1:], m)), dtype=torch.float32)
    return Ranks.from_negatives(torch.full((len(negatives),), scores[0]), negatives)


@pytest.mark.parametrize("m", [1, 3, 6])
@pytest.mark.parametrize("scores", [[2.0, 5, 4, 1, 0, 3, 1], [2.0, 2, 2, 1, 4, 2, 5], [9.0, 0, 0, 0, 0, 0, 0]])
def test_the_estimate_of_the_full_rank_is_unbiased(scores, m):
    full = Ranks.from_negatives(torch.tensor(scores[:1]), torch.tensor([scores[1:]], dtype=torch.float32))
    sampled = samples(scores, m)
    assert len(sampled) == math.comb(6, m)
    mean = sampled.full_rank_estimate(7).mean().item()
    assert mean == pytest.approx(full.realistic.item(), rel=1e-14)
    values = evaluate(sampled, metrics=["amri"])
    assert values["amri"] == pytest.approx(evaluate(full, metrics=["amri"])["amri"], rel=1e-13, abs=1e-14)


def test_the_estimate_takes_counts_per_task():
    ranks = Ranks([1, 3, 2], [1, 4, 2], [5, 5, 11])
    expected = [1.0, 1 + 2.5 * 99 / 4, 1 + 1 * 10 / 10]
    assert ranks.full_rank_estimate(torch.tensor([9, 100, 11])).tolist() == expected


@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_the_printed_tables_say_that_candidates_were_sampled(storage, tmp_path):
    note = "ranks are among sampled candidates: MRR, hits and similar metrics differ from the full candidate set"
    collection = RankCollection(["mrr"], storage=storage)
    collection.update(Ranks([1, 2], None, 5), group=0)
    assert "sampled" not in str(collection.summary())
    collection.update(samples([1.0, 2, 3, float("nan")], 2), group=1)
    with pytest.warns(RankMetricWarning, match="NaN"):
        summary = str(collection.summary())
    collection.table().save(tmp_path / "a.npz")
    other = RankCollection(["mrr"])
    other.update(RankTable.load(tmp_path / "a.npz").ranks)
    assert f"3 {note}" in summary
    assert "2 ranking tasks have NaN scores" in summary
    assert f"3 {note}" in str(collection.breakdown())
    with pytest.warns(RankMetricWarning, match="NaN"):
        assert note in str(other.summary())


@pytest.mark.parametrize(
    ("num_candidates", "error", "message"),
    [
        (4, ValueError, "num_candidates of all candidates, .*; task 0 has 4 negatives, num_candidates=4"),
        (torch.tensor([9]), ValueError, r"num_candidates must have the shape of optimistic, \(2,\); got \(1,\)"),
        (9.0, ValueError, r"num_candidates must be \(tasks,\)"),
        (torch.tensor([9.0, 9.0]), TypeError, "num_candidates must hold integers, got torch.float32"),
    ],
)
def test_bad_candidate_counts_are_named(num_candidates, error, message):
    with pytest.raises(error, match=message):
        Ranks([1, 2], None, 5).full_rank_estimate(num_candidates)


def test_no_estimate_without_negatives():
    with pytest.raises(ValueError, match=r"needs a sampled negative in every task.* task 1 has 0 negatives"):
        Ranks([1, 1], None, [5, 1]).full_rank_estimate(9)
