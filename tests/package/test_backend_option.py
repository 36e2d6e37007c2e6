"""``backend=`` goes in wherever scores do, and every way gives the same ranks."""

import ast
import inspect
import re

import pytest
import torch
from test_signatures import signatures

from torchrankmetrics import (
    KnownFacts,
    KnownTriples,
    RankAccumulator,
    RankCollection,
    Ranks,
    RankTable,
    SequentialEvaluation,
    evaluate,
    rank_alignment,
    rank_complex_queries,
    rank_embeddings,
    rank_facts,
    rank_scores,
    rank_sequentially,
    rank_triples,
)
from torchrankmetrics.integrations import ogb, pyg

SCORES = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.3, 0.1], [0.0, 1.0, 1.0]])
TARGET = torch.tensor([2, 0, 1])
TRIPLES = torch.tensor([[0, 0, 2], [1, 0, 0], [2, 0, 1]])
KNOWN = KnownTriples(TRIPLES, num_entities=3)
BEST = RankTable.from_ranks(Ranks([1, 1, 1], None, 3), sample_id=torch.arange(3))
# what takes scores and compares none of them by itself
ELSEWHERE = {
    "audit.auditor.audit": "calls an evaluator",
    "integrations.pykeen_evaluator.RankCollectionEvaluator.process_scores_": "PyKEEN calls it: see __init__",
    "integrations.pykeen_filter.CandidateFilter.exclude": "looks for NaN",
    "evaluation.adjust.adjust": "takes a value",
    "theory.tails.significance.log_p_value": "takes a value",
    "integrations.trec.rank_run": "places documents in lists",
    "plots.breakdowns.by_dataset": "knows z-scores only",
    "protocols.embedding_scorer.EmbeddingScorer.__init__": "goes to rank_triples",
    "protocols.long_tables.rank_long_table": "sorts the rows of a table",
    "ranking.counting.chosen": "tells the way",
    "evaluation.rank_table.RankTable.from_numpy": "is told that scores were NaN",
    "ranking.accumulator.RankAccumulator.update": "as told at the beginning",
    "ranking.certified.candidates.Candidates.__init__": "goes to rank_embeddings",
    "ranking.certified.tiles.Tile.__init__": "goes to rank_embeddings",
}


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
    "deciding.triples.rank_sequentially": rows_by_model,
    "deciding.until_decided.SequentialEvaluation.update": decided,
    "evaluation.evaluate.evaluate": lambda backend: evaluate(scores=SCORES, target=TARGET, backend=backend),
    "integrations.ogb.Evaluator.eval": lambda backend: (
        ogb.Evaluator("ogbl-wikikg2")
        .eval({"y_pred_pos": SCORES[:, 0], "y_pred_neg": SCORES[:, 1:]}, backend=backend)
        .ranks
    ),
    "integrations.pyg.rank_triples": of_model,
    "integrations.pykeen_evaluator.RankCollectionEvaluator.__init__": of_pykeen,
    "metrics.store.TakesBatches.update": updated,
    "protocols.alignment.rank_alignment": lambda backend: rank_alignment(
        torch.tensor([[0, 2], [1, 0], [2, 1]]), SCORES, backend=backend
    ),
    "protocols.complex_queries.rank_complex_queries": lambda backend: rank_complex_queries(
        lambda queries: SCORES[queries], [{2}, {0}, {1}], backend=backend, progress=False
    ),
    "protocols.facts.rank_facts": lambda backend: rank_facts(
        lambda heads, relations, times: SCORES[heads],
        None,
        torch.cat([TRIPLES, torch.zeros(3, 1, dtype=torch.int64)], 1),
        KnownFacts(torch.cat([TRIPLES, torch.zeros(3, 1, dtype=torch.int64)], 1), time_aware=True),
        backend=backend,
        progress=False,
    ),
    "protocols.triples.rank_triples": lambda backend: rank_triples(
        tails, heads, TRIPLES, KNOWN, backend=backend, progress=False
    ),
    "ranking.accumulator.RankAccumulator.__init__": accumulated,
    "ranking.chunks.rank_embeddings": lambda backend: rank_embeddings(SCORES, SCORES, TARGET, backend=backend),
    "ranking.ranks.Ranks.from_negatives": lambda backend: Ranks.from_negatives(
        SCORES[:, 0], SCORES[:, 1:], backend=backend
    ),
    "ranking.scores.rank_scores": lambda backend: rank_scores(SCORES, TARGET, backend=backend),
}
# the same doors, where what comes in is sorted
SORTED = {
    "flat scores": lambda backend: evaluate(
        scores=SCORES[0], target=[0, 1, 0], indexes=[0, 0, 0], metrics=["mrr"], backend=backend
    ),
    "shared negatives": lambda backend: Ranks.from_negatives(SCORES[0], SCORES[1], backend=backend),
    "ragged negatives": lambda backend: Ranks.from_negatives(SCORES[0], list(SCORES), backend=backend),
}


def takes_scores(name: str, node: ast.FunctionDef, names: dict[str, object]) -> bool:
    """Whether the name of an argument, or what is said of it, speaks of scores or embeddings."""
    arguments = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    documented = names.get(name.split(".")[-2]) if node.name == "__init__" else None
    said = inspect.cleandoc(getattr(documented, "__doc__", None) or ast.get_docstring(node) or "")
    about = re.search(r"^Args:\n((?:    .*\n|\n)*)", said + "\n", re.MULTILINE)
    spoken = re.search(r"\bscores?\b|\bembeddings\b|higher is better", about[1] if about else "")
    return bool(spoken or [name for name in arguments if re.search(r"^preds$|scores?\b|embeddings", name)])


def test_counting_goes_in_wherever_scores_do():
    found = signatures()
    with_option = {name for name, (node, _) in found.items() if "backend" in [one.arg for one in node.args.kwonlyargs]}
    with_scores = {name for name, read in found.items() if takes_scores(name, *read)}
    assert with_scores - with_option == ELSEWHERE.keys()
    assert with_option <= CASES.keys()


@pytest.mark.parametrize("name", [*CASES, *SORTED])
def test_another_way_of_counting_is_refused_by_its_name_and_every_way_gives_the_same(name):
    call = {**CASES, **SORTED}[name]
    with pytest.raises(ValueError, match="backend must be"):
        call("abacus")
    ways = [call(way) for way in ("torch", "auto")]
    assert len({repr(getattr(found, "rows", found)) for found in ways}) == 1


def test_an_evaluator_of_sampled_candidates_takes_it_too():
    pykeen = pytest.importorskip("torchrankmetrics.integrations.pykeen")
    from pykeen.datasets import Nations

    factory = Nations().testing
    with pytest.raises(ValueError, match="backend must be"):
        pykeen.SampledRankCollectionEvaluator(factory, backend="abacus")
    assert pykeen.SampledRankCollectionEvaluator(factory, num_negatives=2, backend="torch").backend == "torch"
