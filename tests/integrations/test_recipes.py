"""The recipes of docs/change_one_import.md, each with its tool if it is installed."""

import re

import numpy as np
import pytest
import torch

from scripts import ROOT
from torchrankmetrics import RankCollection, evaluate

PAGE = (ROOT / "docs" / "change_one_import.md").read_text()


def recipe(tool):
    """What the block below a heading defines."""
    section = PAGE.split(f"\n### {tool}\n")[1]
    (block, *_) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(block, f"recipe of {tool}", "exec"), names)
    return names


def test_hugging_face_computes_metrics_of_arrays():
    scores = np.array([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]], dtype=np.float32)
    found = recipe("Hugging Face")["compute_metrics"]((scores, np.array([1, 2])))
    assert found == {"mrr": 0.75, "hits_at_1": 0.5, "adjusted_mrr": pytest.approx(5 / 14)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_sentence_transformers_has_the_numbers_of_its_evaluator():
    peer = pytest.importorskip("sentence_transformers")

    class Letters(torch.nn.Module):
        def preprocess(self, texts, **_):
            return {"codes": torch.tensor([[t.count(c) for c in "abcd"] for t in texts]).float()}

        tokenize = preprocess

        def forward(self, features, **_):
            return features | {"sentence_embedding": features["codes"]}

    model = peer.SentenceTransformer(modules=[Letters()], device="cpu")
    # without ties
    corpus = {"u": "abbb", "v": "cda", "w": "ddd", "x": "bbaa", "y": "cabb"}
    queries = {"q": "abc", "r": "dda", "s": "bbd"}
    relevant = {"q": {"v", "x"}, "r": {"w"}, "s": {"y", "w", "u"}}
    evaluator = recipe("sentence-transformers")["RankEvaluator"](
        queries, corpus, relevant, accuracy_at_k=[2], precision_recall_at_k=[2], ndcg_at_k=[3]
    )
    theirs = evaluator(model)
    names = {
        "accuracy@2": "success@2",
        "precision@2": "precision@2",
        "recall@2": "recall@2",
        "ndcg@3": "ndcg@3",
        "mrr@10": "rr@10",
        "map@100": "ap_cap@100",
    }
    found = evaluate(evaluator.table, metrics=list(names.values()))
    expected = [theirs[f"cosine_{name}"] for name in names]
    assert list(found.values()) == pytest.approx(expected, rel=1e-9)


def test_recbole_has_the_numbers_of_its_evaluator(monkeypatch):
    monkeypatch.setattr(np, "float", float, raising=False)  # which RecBole 1.2.1 needs
    peer = pytest.importorskip("recbole.evaluator")
    config = {
        "metrics": ["Recall", "Precision", "MRR", "NDCG", "Hit", "MAP"],
        "topk": [3],
        "eval_args": {"mode": {"valid": "full", "test": "full"}},
        "device": "cpu",
        "metric_decimal_place": 10,
    }
    ours = {"recall": "recall@3", "precision": "precision@3", "mrr": "rr@3"}
    ours |= {"ndcg": "ndcg@3", "hit": "success@3", "map": "ap_cap@3"}
    collection = RankCollection(list(ours.values()))
    collector = recipe("RecBole")["RankCollector"](config, collection)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        scores = torch.rand(8, 20, generator=generator)
        scores[torch.rand(8, 20, generator=generator) < 0.2] = -torch.inf
        is_relevant = (torch.rand(8, 20, generator=generator) < 0.2) & ~scores.isneginf()
        is_relevant[:, 0] = True
        scores[:, 0] = 0.5
        collector.eval_batch_collect(scores, None, *is_relevant.nonzero(as_tuple=True))
    theirs = peer.Evaluator(config).evaluate(collector.get_data_struct())
    values = [value.item() for value in collection.compute().values()]
    assert values == pytest.approx([theirs[f"{name}@3"] for name in ours], rel=1e-6)
