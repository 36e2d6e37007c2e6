"""Ranks of lists of retrieved ids: hand-made values, brute force on full scores, all id forms."""

import numpy as np
import pytest
import torch

from torchrankmetrics import RankMetricWarning, evaluate, rank_scores
from torchrankmetrics.ranking import ranks_of_lists

NAMES = ["rr", "ap@3", "ndcg@3", "recall@3", "precision@3", "success@1"]
LISTS, RELEVANT = torch.tensor([[4, 2, 0], [1, 3, 2]]), [[0, 4], [5]]


def test_values_by_hand():
    values = evaluate(ranks_of_lists(LISTS, RELEVANT), metrics=NAMES)
    ndcg = (1 + 1 / 2) / (1 + 1 / np.log2(3)) / 2
    by_hand = [1 / 2, (1 + 2 / 3) / 4, ndcg, 1 / 2, 1 / 3, 1 / 2]
    assert list(values.values()) == pytest.approx(by_hand, rel=1e-12)


FORMS = {
    "lists": [[0, 4], [5]],
    "sets": [{4, 0}, {5}],
    "tensors": [torch.tensor([0, 4]), torch.tensor([5])],
    "pairs": (torch.tensor([0, 0, 1]), torch.tensor([0, 4, 5])),
    "labels": [{0: 1, 4: 1, 2: 0}, {5: 1.0}],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("retrieved", [LISTS, LISTS.numpy(), LISTS.int(), LISTS.tolist()])
def test_every_form_is_the_same(form, retrieved):
    ranks = ranks_of_lists(retrieved, FORMS[form], 100)
    assert ranks.columns.tolist() == [[3, 1, 4], [3, 1, 100], [100, 100, 100]]
    assert ranks.gain is None


@pytest.mark.parametrize("k", [0, 1, 4, 9])
def test_lists_are_the_best_columns_of_scores(k):
    """Items that were not retrieved are one tie below the list."""
    generator = torch.Generator().manual_seed(k)
    scores = torch.rand(20, 9, generator=generator)
    label = torch.randint(3, (20, 9), generator=generator).double()
    label[:, 0] = 1
    order = scores.argsort(dim=1, descending=True)
    cut = scores.scatter(1, order[:, k:], -1.0)
    expected = rank_scores(cut, label)
    relevant = [{j: x for j, x in enumerate(row) if x} for row in label.tolist()]
    ranks = ranks_of_lists(order[:, :k], relevant, 9)
    assert torch.equal(ranks.columns, expected.columns)
    assert torch.equal(ranks.gain, expected.gain)
    names = [*NAMES, "ndcg", "ap", "adjusted_ap", "z_ndcg", "query_auc"]
    ours, theirs = (evaluate(one, metrics=names) for one in (ranks, expected))
    assert ours == theirs


def test_what_was_not_retrieved_contributes_nothing_without_num_candidates():
    ranks = ranks_of_lists([[7, 1], [3], []], [[7, 9, 8], [4], [1]])
    values = evaluate(ranks, metrics=["ap", "rr", "recall@100", "ndcg"])
    ideal = sum(1 / np.log2(1 + r) for r in (1, 2, 3))
    assert list(values.values()) == pytest.approx([1 / 9, 1 / 3, 1 / 9, 1 / ideal / 3], abs=1e-15)
    with pytest.raises(ValueError, match="num_candidates"):
        evaluate(ranks, metrics=["adjusted_rr"])


def test_of_a_repeated_id_the_first_place_counts_and_empty_places_are_skipped():
    ranks = ranks_of_lists([[5, 5, 2, 5, 1], [-1, 2, -1, 8, 8]], [[1, 5], [8]], 10)
    assert ranks.columns[:2].tolist() == [[3, 1, 2], [3, 1, 2]]


def test_ids_may_be_large():
    big = (1 << 63) - 1
    assert ranks_of_lists([[big, 0], [big - 1, big]], [[0], [big]]).optimistic.tolist() == [2, 2]


@pytest.mark.parametrize("number", [None, 100], ids=str)
def test_rows_without_a_relevant_item_are_empty_queries(number):
    ranks = ranks_of_lists(LISTS, [[4], []], number)
    assert evaluate(ranks, metrics=["rr"], empty_queries="zero") == {"rr": 0.5}
    with pytest.warns(RankMetricWarning, match="without a relevant item"):
        assert evaluate(ranks, metrics=["rr"]) == {"rr": 1.0}


def test_a_row_without_a_pair_is_not_a_query():
    pairs = ranks_of_lists(LISTS, ([0], [4]))  # a row without a pair is not a query
    assert evaluate(pairs, metrics=["rr"], empty_queries="zero") == {"rr": 1.0}


@pytest.mark.parametrize(
    ("retrieved", "relevant", "number", "error", "message"),
    [
        (LISTS, [[0]], None, ValueError, "one entry for each of 2 queries.*got list of 1"),
        (LISTS, {0: [1], 1: [2]}, None, ValueError, "got dict"),
        (
            LISTS,
            np.array([0, 1]),
            None,
            ValueError,
            r"got ndarray; for one id per query pass relevant\[:, None\].tolist\(\)$",
        ),
        (LISTS, np.array([[0], [1]]), None, ValueError, r"got ndarray; pass relevant.tolist\(\)$"),
        (LISTS, [[0], 3], None, ValueError, r"relevant\[1\] must be a vector of ids, got 3"),
        (LISTS, [[0, 0], [1]], None, ValueError, "once"),
        (LISTS, [[0], [-1]], None, ValueError, "relevant must contain ids of at least 0, got -1"),
        (LISTS, [["a"], ["b"]], None, TypeError, r"relevant\[0\] must contain numbers"),
        (LISTS, [{0: -1}, {1: 1}], None, ValueError, "relevant must contain finite labels"),
        (LISTS, ([0, 2], [1, 1]), None, IndexError, r"rows of relevant must lie in \[0, 2\)"),
        (LISTS, ([0, 1], [1]), None, ValueError, r"\(rows, ids\).*got shapes"),
        (LISTS[0], [[0]], None, ValueError, r"retrieved must be \(B, k\).*pass the ids"),
        ([[1], 2], [[0], [1]], None, ValueError, "a vector of ids for each query"),
        (
            LISTS - 3,
            [[0], [1]],
            None,
            ValueError,
            "retrieved must contain ids of at least 0, got -3",
        ),
        (LISTS.double(), [[0], [1]], None, TypeError, "retrieved must contain integers"),
        (LISTS, RELEVANT, 3, ValueError, "row 1 has 3 in its list and 1 relevant ones outside"),
        (LISTS, RELEVANT, 2.5, TypeError, "num_candidates must be an int"),
    ],
)
def test_bad_lists_raise(retrieved, relevant, number, error, message):
    with pytest.raises(error, match=message):
        ranks_of_lists(retrieved, relevant, number)
