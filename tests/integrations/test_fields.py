"""Dense retrieval and reranking, each in several forms of scores, against plain loops."""

import numpy as np
import pytest
import torch

import reference_queries
from torchrankmetrics import RankCollection, RankTable, evaluate, rank_embeddings, rank_scores
from torchrankmetrics.integrations.trec import evaluate_run
from torchrankmetrics.ranking import RankAccumulator

pytestmark = pytest.mark.filterwarnings("ignore:relevant items of one query")  # the task metrics are on purpose
METRICS = ["ap", *(name for name in list(reference_queries.NAMES)[::3] if name != "ap")]


@pytest.mark.parametrize("form", ["lists", "pairs", "bool"])
def test_ranks_of_embeddings_and_chunks_carry_their_queries(form):
    generator = torch.Generator().manual_seed(0)
    questions = torch.randint(-4, 5, (12, 3), generator=generator).float()  # exact products, many ties
    passages = torch.randint(-4, 5, (40, 3), generator=generator).float()
    relevant = torch.rand(12, 40, generator=generator) < 0.1
    relevant[:, 3] = True
    lists = [row.nonzero()[:, 0].tolist() for row in relevant]
    target = {"lists": lists, "pairs": relevant.nonzero().T, "bool": relevant}[form]
    scores = questions @ passages.T
    expected = evaluate(scores, relevant, [*METRICS, "mrr"])
    queries = [(row, answers, (), 1.0) for row, answers in zip(scores.tolist(), lists, strict=True)]
    assert expected["ap"] == pytest.approx(reference_queries.mean("ap", queries), abs=1e-12)

    chunked = RankAccumulator(scores[relevant], target, (12, 40))
    for part in scores.split(7, dim=1):
        chunked.update(part)
    for ranks in (rank_embeddings(questions, passages, target), rank_scores(scores, target), chunked.compute()):
        assert evaluate(ranks, metrics=[*METRICS, "mrr"]) == expected
        assert evaluate(RankTable.from_ranks(ranks), metrics=METRICS) == {key: expected[key] for key in METRICS}
        collection = RankCollection([*METRICS, "mrr"], storage="counts")
        collection.update(ranks)
        assert {key: value.item() for key, value in collection.compute().items()} == expected


def test_reranking_flat_padded_and_as_a_run_is_the_same():
    """Every query has candidates of its own, 3 to 9 of them, in another order than their scores."""
    random = np.random.default_rng(0)
    lengths = random.integers(3, 10, 30)
    scores = [random.integers(0, 6, n).astype(float).tolist() for n in lengths]
    answers = [sorted(random.choice(n, random.integers(1, 4), replace=False).tolist()) for n in lengths]
    queries = [(row, own, (), 1.0) for row, own in zip(scores, answers, strict=True)]
    expected = {key: pytest.approx(reference_queries.mean(key, queries), abs=1e-12) for key in METRICS}

    preds = torch.tensor([x for row in scores for x in row])
    target = torch.tensor([j in own for row, own in zip(scores, answers, strict=True) for j in range(len(row))])
    indexes = torch.arange(30).repeat_interleave(torch.from_numpy(lengths))
    assert evaluate(preds, target, METRICS, indexes=indexes) == expected

    padded = torch.full((30, 9), float("inf"))
    for i, row in enumerate(scores):
        padded[i, : len(row)] = torch.tensor(row)
    assert evaluate(padded, answers, METRICS, exclude=padded.isinf()) == expected

    run = {f"q{i}": {f"d{j}": x for j, x in enumerate(row)} for i, row in enumerate(scores)}
    qrels = {f"q{i}": {f"d{j}": 1 for j in own} for i, own in enumerate(answers)}
    listed = {query: len(found) for query, found in run.items()}
    assert evaluate_run(qrels, run, METRICS, num_candidates=listed) == expected
