"""Filtered ranks of a PyG model, against plain loops; OGB's evaluator with chance-adjusted values."""

import numpy as np
import pytest
import torch

from torchrankmetrics import adjust, evaluate

NODES = 12


def test_a_pyg_model_is_ranked_filtered_on_both_sides():
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data
    from torch_geometric.nn.kge import DistMult

    from torchrankmetrics.integrations.pyg import known_triples, rank_triples

    torch.manual_seed(0)
    triples = torch.unique(torch.stack([torch.randint(size, (80,)) for size in (NODES, 3, NODES)], 1), dim=0)
    triples = triples[torch.randperm(len(triples))]
    train, test = (
        Data(edge_index=part[:, [0, 2]].T, edge_type=part[:, 1], num_nodes=NODES)
        for part in (triples[:-15], triples[-15:])
    )
    model = DistMult(NODES, 3, hidden_channels=8)
    values = evaluate(rank_triples(model, test, known_triples(train, test)), metrics=["mrr", "hits@3"])

    facts, ranks = set(map(tuple, triples.tolist())), []
    entity, relation = model.node_emb.weight.detach().double(), model.rel_emb.weight.detach().double()
    for head, kind, tail in triples[-15:].tolist():
        for replace in (0, 2):
            scores = {}
            for node in range(NODES):
                fact = (node, kind, tail) if replace == 0 else (head, kind, node)
                if fact == (head, kind, tail) or fact not in facts:
                    scores[node] = (entity[fact[0]] * relation[kind] * entity[fact[2]]).sum().item()
            own = scores[head if replace == 0 else tail]
            ranks.append(1 + sum(score > own for score in scores.values()))
    ranks = np.array(ranks)
    assert values == pytest.approx({"mrr": (1 / ranks).mean(), "hits_at_3": (ranks <= 3).mean()})


def test_ogb_values_and_chance_adjusted_values():
    from torchrankmetrics.integrations.ogb import Evaluator

    generator = torch.Generator().manual_seed(0)
    positive, negative = torch.rand(50, generator=generator), torch.rand(50, 20, generator=generator)
    scores = {"y_pred_pos": positive, "y_pred_neg": negative}
    result = Evaluator(name="ogbl-citation2").eval(scores)
    mrr = (1 / (1 + (negative > positive[:, None]).sum(1))).mean().item()
    assert result["mrr_list"].mean().item() == pytest.approx(mrr)
    adjusted = {"mrr": mrr, "adjusted_mrr": adjust(mrr, "mrr", 21)}
    assert result.evaluate(["mrr", "adjusted_mrr"]) == pytest.approx(adjusted)
    assert evaluate(result, metrics=["mrr", "adjusted_mrr"]) == pytest.approx(adjusted)
    ogb = pytest.importorskip("ogb.linkproppred")
    assert torch.equal(result["mrr_list"], ogb.Evaluator("ogbl-citation2").eval(scores)["mrr_list"])
