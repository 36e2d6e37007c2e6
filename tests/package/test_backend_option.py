"""Functions of scores pass ``backend=`` on, and every backend gives the same ranks."""

from functools import partial

import pytest
import torch

from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    Ranks,
    evaluate,
    rank_embeddings,
    rank_scores,
    rank_triples,
)
from torchrankmetrics.integrations import ogb
from torchrankmetrics.kg import KnownFacts, rank_alignment, rank_complex_queries, rank_facts
from torchrankmetrics.ranking import RankAccumulator

SCORES = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.3, 0.1], [0.0, 1.0, 1.0]])
TARGET = torch.tensor([2, 0, 1])
FACTS = torch.tensor([[0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 1, 0]])


def accumulated(backend):
    ranking = RankAccumulator(SCORES[torch.arange(3), TARGET], TARGET, (3, 3), backend=backend)
    for chunk in (SCORES[:, :2], SCORES[:, 2:]):
        ranking.update(chunk)
    return ranking.compute()


def updated(backend):
    collection = RankCollection(["mrr"])
    collection.update(SCORES, TARGET, backend=backend)
    return collection.table()


def of_pykeen(backend):
    pykeen = pytest.importorskip("torchrankmetrics.integrations.pykeen")
    evaluator = pykeen.RankCollectionEvaluator(["mrr"], filtered=False, backend=backend)
    evaluator.process_scores_(
        FACTS[:, :3], "tail", SCORES, SCORES[torch.arange(3), TARGET][:, None]
    )
    return evaluator.collection.table()


def of_ogb(backend):
    predictions = {"y_pred_pos": SCORES[:, 0], "y_pred_neg": SCORES[:, 1:]}
    return ogb.Evaluator("ogbl-wikikg2").eval(predictions, backend=backend).ranks


def scored(query, *_):
    return SCORES[query]


# function, and its arguments before backend=
CASES = {
    "evaluate": (evaluate, SCORES, TARGET),
    "flat scores": (
        partial(evaluate, indexes=[0, 0, 0], metrics=["mrr"]),
        SCORES[0],
        torch.tensor([0, 1, 0]),
    ),
    "ogb": (of_ogb,),
    "pykeen": (of_pykeen,),
    "RankMetric.update": (updated,),
    "RankAccumulator": (accumulated,),
    "rank_alignment": (rank_alignment, torch.tensor([[0, 2], [1, 0], [2, 1]]), SCORES),
    "rank_complex_queries": (
        partial(rank_complex_queries, progress=False),
        scored,
        [{2}, {0}, {1}],
    ),
    "rank_facts": (
        partial(rank_facts, progress=False),
        scored,
        None,
        FACTS,
        KnownFacts(FACTS, time_aware=True),
    ),
    "rank_triples": (
        partial(rank_triples, progress=False),
        scored,
        None,
        FACTS[:, :3],
        KnownTriples(FACTS[:, :3]),
    ),
    "rank_embeddings": (rank_embeddings, SCORES, SCORES, TARGET),
    "rank_scores": (rank_scores, SCORES, TARGET),
    "Ranks.from_negatives": (Ranks.from_negatives, SCORES[:, 0], SCORES[:, 1:]),
    "shared negatives": (Ranks.from_negatives, SCORES[0], SCORES[1]),
    "ragged negatives": (Ranks.from_negatives, SCORES[0], list(SCORES)),
}


@pytest.mark.parametrize(
    ("function", "arguments"), [(f, rest) for f, *rest in CASES.values()], ids=CASES
)
def test_unknown_backends_raise_and_backends_agree(function, arguments):
    with pytest.raises(ValueError, match="backend must be"):
        function(*arguments, backend="abacus")
    results = [function(*arguments, backend=backend) for backend in ("torch", "auto")]
    assert len({repr(getattr(result, "rows", result)) for result in results}) == 1
