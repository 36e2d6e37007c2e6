"""A new metric of one line: base value, chance-adjusted index and z-score, against enumeration of all ranks."""

import itertools

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, RankDefinition, RankMetric, evaluate

LOG = RankDefinition("inverse_log_rank", f=lambda rank: 1 / torch.log2(rank + 1))
RANKS, CANDIDATES = [1, 3, 2], [4, 5, 3]


def test_every_view_of_a_new_metric():
    values = evaluate(RANKS, num_candidates=CANDIDATES, metrics=[LOG], views=("base", "adjusted_index", "z_score"))
    base = np.mean([1 / np.log2(rank + 1) for rank in RANKS])
    outcomes = itertools.product(*(range(1, number + 1) for number in CANDIDATES))
    null = np.array([np.mean([1 / np.log2(rank + 1) for rank in ranks]) for ranks in outcomes])
    expected = [base, (base - null.mean()) / (1 - null.mean()), (base - null.mean()) / null.std()]
    keys = ["inverse_log_rank", "adjusted_inverse_log_rank", "z_inverse_log_rank"]
    assert values == pytest.approx(dict(zip(keys, expected, strict=True)))


def test_in_a_training_loop_beside_other_metrics():
    scores, target = torch.rand(8, 20, generator=torch.Generator().manual_seed(0)), torch.arange(8)
    collection, metric = RankCollection(["mrr", LOG], prefix="val/"), RankMetric(LOG)
    for part in (slice(0, 5), slice(5, 8)):
        collection.update(scores[part], target[part])
        metric.update(scores[part], target[part])
    ranks = 1 + (scores > scores[range(8), target][:, None]).sum(1).double()
    expected = (1 / torch.log2(ranks + 1)).mean()
    assert torch.isclose(collection.compute()["val/inverse_log_rank"], expected)
    assert torch.isclose(metric.compute(), expected)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RankMetric(lambda rank: 1 / rank), r"write RankDefinition\('my_metric', f=function\)"),
        (lambda: RankCollection({"own": lambda rank: 1 / rank}), r"write RankDefinition\('my_metric', f=function\)"),
        (lambda: RankDefinition("cut", f=lambda rank: 1 / rank if rank <= 10 else 0), r"torch\.where\(r <= 10"),
        (lambda: RankDefinition("log", f=lambda rank: 1 / __import__("math").log2(rank + 1)), r"torch\.log2"),
        (lambda: RankDefinition("My metric", f=lambda rank: 1 / rank), r"must match \[a-z\]"),
    ],
)
def test_other_spellings_name_the_right_one(build, message):
    with pytest.raises((TypeError, ValueError), match=message):
        build()
