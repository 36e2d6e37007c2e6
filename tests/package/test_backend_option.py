"""Functions of scores pass ``backend=`` on, and every backend gives the same ranks."""

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


def quiet(backend):
    return {"backend": backend, "progress": False}


def accumulated(backend):
    ranking = RankAccumulator(SCORES[torch.arange(3), TARGET], TARGET, (3, 3), backend=backend)
    return ranking.rank([SCORES[:, :2], SCORES[:, 2:]])


def updated(backend):
    collection = RankCollection(["mrr"])
    collection.update(SCORES, TARGET, backend=backend)
    return collection.table()


def of_pykeen(backend):
    pykeen = pytest.importorskip("torchrankmetrics.integrations.pykeen")
    evaluator = pykeen.RankCollectionEvaluator(["mrr"], filtered=False, backend=backend)
    evaluator.process_scores_(FACTS[:, :3], "tail", SCORES, SCORES[torch.arange(3), TARGET][:, None])
    return evaluator.collection.table()


CASES = {
    "evaluate": lambda backend: evaluate(scores=SCORES, target=TARGET, backend=backend),
    "ogb": lambda backend: (
        ogb.Evaluator("ogbl-wikikg2")
        .eval({"y_pred_pos": SCORES[:, 0], "y_pred_neg": SCORES[:, 1:]}, backend=backend)
        .ranks
    ),
    "pykeen": of_pykeen,
    "RankMetric.update": updated,
    "rank_alignment": lambda backend: rank_alignment(torch.tensor([[0, 2], [1, 0], [2, 1]]), SCORES, backend=backend),
    "rank_complex_queries": lambda backend: rank_complex_queries(
        lambda queries: SCORES[queries], [{2}, {0}, {1}], **quiet(backend)
    ),
    "rank_facts": lambda backend: rank_facts(
        lambda heads, relations, times: SCORES[heads],
        None,
        FACTS,
        KnownFacts(FACTS, time_aware=True),
        backend=backend,
        progress=False,
    ),
    "rank_triples": lambda backend: rank_triples(
        lambda heads, relations: SCORES[heads],
        None,
        FACTS[:, :3],
        KnownTriples(FACTS[:, :3]),
        backend=backend,
        progress=False,
    ),
    "RankAccumulator": accumulated,
    "rank_embeddings": lambda backend: rank_embeddings(SCORES, SCORES, TARGET, backend=backend),
    "Ranks.from_negatives": lambda backend: Ranks.from_negatives(SCORES[:, 0], SCORES[:, 1:], backend=backend),
    "shared negatives": lambda backend: Ranks.from_negatives(SCORES[0], SCORES[1], backend=backend),
    "ragged negatives": lambda backend: Ranks.from_negatives(SCORES[0], list(SCORES), backend=backend),
    "flat scores": lambda backend: evaluate(
        scores=SCORES[0], target=[0, 1, 0], indexes=[0, 0, 0], metrics=["mrr"], backend=backend
    ),
    "rank_scores": lambda backend: rank_scores(SCORES, TARGET, backend=backend),
}


@pytest.mark.parametrize("name", CASES)
def test_unknown_backends_raise_and_backends_agree(name):
    with pytest.raises(ValueError, match="backend must be"):
        CASES[name]("abacus")
    results = [CASES[name](backend) for backend in ("torch", "auto")]
    assert len({repr(getattr(result, "rows", result)) for result in results}) == 1
