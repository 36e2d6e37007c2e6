"""A recommender: held-out items among all unseen items, against a loop over users."""

import math

import numpy as np
import pytest
import torch

from torchrankmetrics import evaluate

USERS, ITEMS, K = 40, 60, 10
_rng = np.random.default_rng(0)
_history = [_rng.permutation(ITEMS)[:8] for _ in range(USERS)]
SEEN, HELD_OUT = [items[:5].tolist() for items in _history], [items[5:].tolist() for items in _history]
SCORES = torch.from_numpy(_rng.normal(size=(USERS, ITEMS)))
METRICS = ["recall@10", "ndcg@10", "hr@10"]


def reference():
    """Sort the unseen items of every user."""
    recall, ndcg, hit = [], [], []
    for scores, seen, held_out in zip(SCORES.tolist(), SEEN, HELD_OUT, strict=True):
        top = sorted(set(range(ITEMS)) - set(seen), key=lambda item: -scores[item])[:K]
        found = [place for place, item in enumerate(top, 1) if item in held_out]
        recall.append(len(found) / len(held_out))
        best = sum(1 / math.log2(1 + place) for place in range(1, len(held_out) + 1))
        ndcg.append(sum(1 / math.log2(1 + place) for place in found) / best)
        hit.append(float(bool(found)))
    return {"recall_at_10": np.mean(recall), "ndcg_at_10": np.mean(ndcg), "success_at_10": np.mean(hit)}


def as_mask(items):
    mask = torch.zeros(USERS, ITEMS, dtype=torch.bool)
    for row, columns in enumerate(items):
        mask[row, columns] = True
    return mask


@pytest.mark.parametrize(
    "form", [list, as_mask, lambda items: [set(row) for row in items]], ids=["lists", "mask", "sets"]
)
def test_held_out_items_among_unseen_items(form):
    assert evaluate(SCORES, form(HELD_OUT), metrics=METRICS, exclude=form(SEEN)) == pytest.approx(reference())


def test_sparse_matrices_and_scores_of_minus_infinity():
    sparse = pytest.importorskip("scipy.sparse")
    held_out, seen = (sparse.csr_matrix(as_mask(items).numpy()) for items in (HELD_OUT, SEEN))
    assert evaluate(SCORES, held_out, metrics=METRICS, exclude=seen) == pytest.approx(reference())
    masked = SCORES.masked_fill(as_mask(SEEN), -torch.inf)
    assert evaluate(masked, HELD_OUT, metrics=METRICS) == pytest.approx(reference())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exclude": torch.tensor(SEEN)}, r"exclude\.tolist\(\)"),
        ({"seen": SEEN}, "did you mean 'exclude'"),
        ({"k": 10}, r"metrics=\['hits@10', 'ndcg@10'\]"),
        ({"metrics": ["coverage@10"]}, "depends on the recommended items, not on ranks"),
    ],
)
def test_other_spellings_name_the_right_one(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        evaluate(SCORES, HELD_OUT, **{"metrics": METRICS, **options})
