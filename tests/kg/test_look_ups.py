"""Look-ups of known positives that lack the target, so ranks are not filtered as users think."""

import pickle
import warnings

import pytest
import torch

from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    RankMetricWarning,
    rank_embeddings,
    rank_scores,
)
from torchrankmetrics.kg import KnownFacts, KnownPositives, rank_triples
from torchrankmetrics.ranking import RankAccumulator

# entities 0 to 3 have the relation 0 to 4; a model scores the known heads best, then the target 0
TRIPLES = torch.tensor([[0, 0, 4], [1, 0, 4], [2, 0, 4], [3, 0, 4]])
H, R, T = TRIPLES[:1].T
SCORES = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]])
MISSING = (
    "look-up of known positives does not contain the target of 1 of 1 ranking tasks: .*known.heads"
)


def known(order=(0, 1, 2)):
    return KnownTriples(TRIPLES[:, order], num_entities=5)


FACTS = torch.cat([TRIPLES, torch.zeros(4, 1).long()], 1)
WRONG = {
    "reciprocal relation": lambda: known().tails(T, R + 1),
    "another order of columns": lambda: known(order=(0, 2, 1)).heads(R, T),
    "missing split": lambda: KnownTriples(TRIPLES[1:], num_entities=5).heads(R, T),
    "another time": lambda: KnownFacts(FACTS).heads(R, T, torch.tensor([1])),
}


def accumulate(exclude):
    ranks = RankAccumulator(SCORES[:, 0], H, (1, 5), exclude=exclude)
    ranks.update(SCORES)
    ranks.compute()


ENTRIES = {
    "rank_scores": lambda known: rank_scores(SCORES, H, exclude=known),
    "update": lambda known: RankCollection("mrr").update(SCORES, H, exclude=known),
    "embeddings": lambda known: rank_embeddings(torch.ones(1, 1), SCORES.T, H, exclude=known),
    "accumulator": accumulate,
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_look_up_without_the_target_is_a_warning(fault, entry):
    exclude = WRONG[fault]()
    with pytest.warns(RankMetricWarning, match=MISSING):
        ENTRIES[entry](exclude)


@pytest.mark.parametrize(
    ("target", "exclude", "rank"),
    [
        (H, known().heads(R, T), 1),
        (TRIPLES[:, 0].unsqueeze(0).tolist(), known().heads(R, T), 1),
        ([[0, 1]], known().heads(R, T), 1),
        (torch.tensor([2]), KnownTriples(TRIPLES).relations(H, T), None),
        (H, KnownTriples().heads(R, T), 4),  # no known triples: raw ranks on purpose
        # of a user, items of the training set
        (H, KnownPositives(torch.zeros(3).long(), torch.tensor([1, 2, 3]))(R), 1),
    ],
)
def test_right_look_ups_and_seen_items_do_not_warn(target, exclude, rank):
    scores = SCORES if rank else SCORES[:, :3]
    if rank is None:
        target = torch.tensor([0])
    found = rank_scores(scores, target, exclude=exclude)
    assert rank is None or found.pessimistic.tolist()[0] == rank


def test_look_ups_of_one_object_warn_once_whatever_the_batches():
    look_up, metric = known(), RankCollection("mrr")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in (1, 2, 3):
            exclude = look_up.tails(T.expand(size), R.expand(size) + 1)
            metric.update(SCORES.expand(size, -1), H.expand(size), exclude=exclude)
        assert len(caught) == 1
        exclude = pickle.loads(pickle.dumps(known().tails(T, R + 1)))  # from a worker of a loader
        metric.update(SCORES, H, exclude=exclude)
        assert len(caught) == 2
    assert metric.compute()["mrr"] == 0.25  # filtered: 1


def test_counts_of_candidates_of_unknown_triples_are_a_warning():
    assert known().num_candidates(TRIPLES[:1], "head").tolist() == [2]
    with pytest.warns(RankMetricWarning, match=MISSING):
        assert known(order=(0, 2, 1)).num_candidates(TRIPLES[:1], "head").tolist() == [5]


def test_rank_triples_warns_once_of_all_triples():
    with pytest.warns(RankMetricWarning) as caught:
        rank_triples(None, lambda r, t: SCORES.expand(len(r), -1), TRIPLES[:2], known((0, 2, 1)))
    (only,) = caught
    assert "2 of 2 evaluated triples are not in known" in str(only.message)
