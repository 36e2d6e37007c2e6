"""Every function that takes scores passes ``backend=`` on, and every backend gives the same ranks."""

import pytest
import torch

from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    Ranks,
    RankTable,
    evaluate,
    rank_embeddings,
    rank_scores,
    rank_triples,
)
from torchrankmetrics.integrations import ogb, pyg
from torchrankmetrics.kg import KnownFacts, rank_alignment, rank_complex_queries, rank_facts
from torchrankmetrics.ranking import RankAccumulator
from torchrankmetrics.sequential import SequentialEvaluation, rank_sequentially

SCORES = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.3, 0.1], [0.0, 1.0, 1.0]])
TARGET = torch.tensor([2, 0, 1])
TRIPLES = torch.tensor([[0, 0, 2], [1, 0, 0], [2, 0, 1]])
KNOWN = KnownTriples(TRIPLES, num_entities=3)
BEST = RankTable.from_ranks(Ranks([1, 1, 1], None, 3), sample_id=torch.arange(3))


def tails(heads, relations):
    return SCORES[heads]


def heads(relations, tails):
    return SCORES.T[tails]


def accumulated(backend):
    ranking = RankAccumulator(SCORES[torch.arange(3), TARGET], TARGET, (3, 3), backend=backend)
    return ranking.rank([SCORES[:, :2], SCORES[:, 2:]])


def updated(backend):
    collection = RankCollection(["mrr"])
    collection.update(SCORES, TARGET, backend=backend)
    return collection.table()


def decided(backend):
    stopping = SequentialEvaluation([0, 1, 2], baseline=BEST, metric="mrr")
    for index in stopping.batches(3):
        stopping.update(SCORES[index], TARGET[index], sample_id=index, backend=backend)
    return stopping.decision


def rows_by_model(backend):
    found = rank_sequentially(
        tails, None, TRIPLES, KNOWN, score_baseline=(tails, None), metric="mrr", backend=backend, progress=False
    )
    return found.table


def of_model(backend):
    def model(head, relation, tail):
        return SCORES[head, tail]

    model.num_nodes = 3
    return pyg.rank_triples(model, TRIPLES, backend=backend, progress=False)


def of_pykeen(backend):
    pykeen = pytest.importorskip("torchrankmetrics.integrations.pykeen")
    evaluator = pykeen.RankCollectionEvaluator(["mrr"], filtered=False, backend=backend)
    evaluator.process_scores_(TRIPLES, "tail", SCORES, SCORES[torch.arange(3), TARGET][:, None])
    return evaluator.collection.table()


CASES = {
    "sequential.triples.rank_sequentially": rows_by_model,
    "sequential.evaluation.SequentialEvaluation.update": decided,
    "metrics.evaluate.evaluate": lambda backend: evaluate(scores=SCORES, target=TARGET, backend=backend),
    "integrations.ogb.Evaluator.eval": lambda backend: (
        ogb.Evaluator("ogbl-wikikg2")
        .eval({"y_pred_pos": SCORES[:, 0], "y_pred_neg": SCORES[:, 1:]}, backend=backend)
        .ranks
    ),
    "integrations.pyg.rank_triples": of_model,
    "integrations.pykeen.RankCollectionEvaluator.__init__": of_pykeen,
    "metrics.metric.RankMetric.update": updated,
    "kg.alignment.rank_alignment": lambda backend: rank_alignment(
        torch.tensor([[0, 2], [1, 0], [2, 1]]), SCORES, backend=backend
    ),
    "kg.triples.rank_complex_queries": lambda backend: rank_complex_queries(
        lambda queries: SCORES[queries], [{2}, {0}, {1}], backend=backend, progress=False
    ),
    "kg.triples.rank_facts": lambda backend: rank_facts(
        lambda heads, relations, times: SCORES[heads],
        None,
        torch.cat([TRIPLES, torch.zeros(3, 1, dtype=torch.int64)], 1),
        KnownFacts(torch.cat([TRIPLES, torch.zeros(3, 1, dtype=torch.int64)], 1), time_aware=True),
        backend=backend,
        progress=False,
    ),
    "kg.triples.rank_triples": lambda backend: rank_triples(
        tails, heads, TRIPLES, KNOWN, backend=backend, progress=False
    ),
    "ranking.accumulator.RankAccumulator.__init__": accumulated,
    "ranking.embeddings.rank_embeddings": lambda backend: rank_embeddings(SCORES, SCORES, TARGET, backend=backend),
    "ranking.ranks.Ranks.from_negatives": lambda backend: Ranks.from_negatives(
        SCORES[:, 0], SCORES[:, 1:], backend=backend
    ),
    "ranking.scores.rank_scores": lambda backend: rank_scores(SCORES, TARGET, backend=backend),
}
# other forms of input, which are sorted first
SORTED = {
    "flat scores": lambda backend: evaluate(
        scores=SCORES[0], target=[0, 1, 0], indexes=[0, 0, 0], metrics=["mrr"], backend=backend
    ),
    "shared negatives": lambda backend: Ranks.from_negatives(SCORES[0], SCORES[1], backend=backend),
    "ragged negatives": lambda backend: Ranks.from_negatives(SCORES[0], list(SCORES), backend=backend),
}


@pytest.mark.parametrize("name", [*CASES, *SORTED])
def test_unknown_backends_raise_and_backends_agree(name):
    call = {**CASES, **SORTED}[name]
    with pytest.raises(ValueError, match="backend must be"):
        call("abacus")
    results = [call(backend) for backend in ("torch", "auto")]
    assert len({repr(getattr(result, "rows", result)) for result in results}) == 1


def test_the_evaluator_of_sampled_candidates_takes_a_backend():
    pykeen = pytest.importorskip("torchrankmetrics.integrations.pykeen")
    from pykeen.datasets import Nations

    factory = Nations().testing
    with pytest.raises(ValueError, match="backend must be"):
        pykeen.SampledRankCollectionEvaluator(factory, backend="abacus")
    assert pykeen.SampledRankCollectionEvaluator(factory, num_negatives=2, backend="torch").backend == "torch"
