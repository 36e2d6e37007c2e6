"""PyG: models against KGEModel.test() and brute force, Data, LinkPred metrics, the example."""

import math
import re

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.metrics import (
    LinkPredHitRatio,
    LinkPredMRR,
    LinkPredNDCG,
    LinkPredPrecision,
    LinkPredRecall,
)
from torch_geometric.nn.kge import ComplEx, DistMult, RotatE, TransE

from reference_ranks import Graph, lines, rank
from scripts import EXAMPLES, fork_script
from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    evaluate,
    rank_scores,
    rank_triples as kg_rank_triples,
)
from torchrankmetrics.integrations.pyg import known_triples, rank_triples, ranks_of_predictions

PYG = {
    "success": LinkPredHitRatio,
    "recall": LinkPredRecall,
    "precision": LinkPredPrecision,
    "ndcg": LinkPredNDCG,
    "rr": LinkPredMRR,
}
EXAMPLE = EXAMPLES / "pyg_kge.py"


@pytest.fixture(scope="module")
def triples():
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(size, (60,), generator=generator) for size in (9, 2, 9)]
    return torch.unique(torch.stack(columns, 1), dim=0)


@pytest.mark.parametrize("kind", [ComplEx, DistMult, RotatE, TransE])
def test_raw_tails_are_those_of_model_test_plus_one(triples, kind):
    torch.manual_seed(1)
    model = kind(9, 2, hidden_channels=8)
    mean_rank, mrr, hits = model.test(*triples.T, batch_size=100, k=3, log=False)
    values = evaluate(
        rank_triples(model, triples).select(side="tail"), metrics=["mr", "mrr", "hits@3"]
    )
    assert list(values.values()) == pytest.approx([mean_rank + 1, mrr, hits], rel=1e-6)


def test_both_sides_filtered_by_brute_force(triples):
    torch.manual_seed(1)
    model = DistMult(9, 2, hidden_channels=8)
    model.node_emb.weight.data = model.node_emb.weight.data.sign()  # ties
    model.rel_emb.weight.data = model.rel_emb.weight.data.sign()
    table = rank_triples(model, triples, KnownTriples(triples), progress=False)

    def row_of(side, query):
        made = [(*query, e) if side == "tail" else (e, *query) for e in range(9)]
        return model(*torch.tensor(made).T).tolist()

    expected = Graph(triples.tolist()).lines(triples.tolist(), row_of, range(9))
    assert lines(table.ranks) == expected
    assert any(low < high for low, high, _ in expected)


@pytest.mark.parametrize(
    ("kind", "p_norm"),
    [(ComplEx, 1), (DistMult, 1), (RotatE, 1), (TransE, 1), (TransE, 2), (TransE, 3)],
)
def test_ranks_by_embeddings_are_those_of_single_triples(triples, kind, p_norm):
    torch.manual_seed(2)
    options = {"p_norm": float(p_norm)} if kind is TransE else {}
    model = kind(40, 2, hidden_channels=8, **options).double()
    known = KnownTriples(triples, num_entities=40)
    single = kg_rank_triples(
        None, None, triples, known, score_hrt=lambda x: model(*x.T).detach(), num_entities=40
    )
    table = rank_triples(model, triples, known, progress=False)
    assert torch.equal(table.ranks.columns, single.ranks.columns)
    assert torch.equal(table.ranks.optimistic, table.ranks.pessimistic)


@pytest.mark.filterwarnings("ignore:.*targets are not candidates of their relation")
def test_candidates_may_depend_on_the_relation(triples):
    model = DistMult(9, 2, hidden_channels=8)
    known = KnownTriples(triples, num_entities=9)
    candidates = {0: (None, [0, 1, 2, 3]), 1: ([4, 5], None)}
    table = rank_triples(model, triples, known, candidates=candidates, progress=False)
    sides = ("tail", "head")
    expected = [known.num_candidates(triples, side, candidates=candidates) for side in sides]
    assert torch.equal(table.ranks.num_candidates, torch.cat(expected))


def test_other_models_score_single_triples(triples):
    class Shifted(DistMult):
        def forward(self, head_index, rel_type, tail_index):
            return super().forward(head_index, rel_type, tail_index) + (tail_index == 0) * 1e6

    class WithoutEmbeddings(torch.nn.Module):
        num_nodes = 9

        def forward(self, head_index, rel_type, tail_index):
            return -tail_index

    torch.manual_seed(3)
    for model in (Shifted(9, 2, hidden_channels=8), WithoutEmbeddings()):
        table = rank_triples(model, triples, progress=False).select(side="tail")
        assert bool((table.ranks.optimistic[triples[:, 2] == 0] == 1).all())


def data_of(triples, **more):
    return Data(edge_index=triples[:, [0, 2]].T, edge_type=triples[:, 1], **more)


@pytest.mark.parametrize("form", ["Data", "pair", "tuple", "array tuple", "(n, 3)"])
def test_every_form_of_triples_is_the_same(triples, form):
    h, r, t = triples.T
    source = {
        "Data": data_of(triples, num_nodes=9),
        "pair": (torch.stack([h, t]), r),
        "tuple": (h, r, t),
        "array tuple": (h.numpy(), r.numpy(), t.numpy()),
        "(n, 3)": triples,
    }[form]
    known, expected = known_triples(source, num_entities=9), KnownTriples(triples, num_entities=9)
    assert torch.equal(known.tails(h, r).pairs(), expected.tails(h, r).pairs())
    assert torch.equal(known.heads(r, t).pairs(), expected.heads(r, t).pairs())
    model = DistMult(9, 2, hidden_channels=4)
    assert torch.equal(
        rank_triples(model, source, known).rows, rank_triples(model, triples, expected).rows
    )


def test_data_have_the_number_of_nodes(triples):
    assert known_triples(data_of(triples, x=torch.zeros(12, 1))).num_entities == 12
    with pytest.raises(ValueError, match="have \\[12, 20\\] nodes; pass num_entities"):
        known_triples(data_of(triples, num_nodes=20), data_of(triples, num_nodes=12))
    assert known_triples(
        data_of(triples, num_nodes=20), data_of(triples, num_nodes=12), num_entities=20
    )


def predictions(seed, sources=8, destinations=12, k=5, several=True):
    """Scores without ties, their top k, and true edges: one a source, or any number."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(sources, destinations, generator=generator)
    if several:
        edges = (torch.rand(sources, destinations, generator=generator) < 0.25).nonzero().T
        edges = edges[:, torch.randperm(edges.shape[1], generator=generator)]
    else:
        edges = torch.stack(
            [torch.arange(sources), torch.randint(destinations, (sources,), generator=generator)]
        )
    return scores, scores.topk(k, dim=1).indices, edges


@pytest.mark.parametrize("k", [0, 1, 5, 12])
def test_top_k_is_a_ranking_with_ties_below(k):
    for seed in range(2):
        scores, top, edges = predictions(seed, k=k)
        below = torch.ones_like(scores, dtype=torch.bool).scatter_(1, top, False)
        cut = scores.masked_fill(below, -1).tolist()
        gone = [set(edges[1, edges[0] == row].tolist()) for row in range(8)]
        expected = [rank(cut[row], column, gone[row])[:3] for row, column in edges.T.tolist()]
        for form in (edges, tuple(edges)):
            assert lines(ranks_of_predictions(top, form, 12)) == expected
    full = ranks_of_predictions(scores.topk(12, dim=1).indices, edges, 12)
    pairs = tuple(edges)
    assert torch.equal(full.columns, rank_scores(scores, pairs, exclude=pairs).columns)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 4, 12])
def test_one_edge_a_source_has_the_numbers_of_pyg(seed, k):
    _, top, edges = predictions(seed, k=k, several=False)
    ours = RankCollection([f"hits@{k}", "mrr"], rank_types=["pessimistic"])
    # so many that what is not listed has no share in MRR
    ours.update(ranks_of_predictions(top, edges, 1 << 40))
    found = {key: value.item() for key, value in ours.compute().items()}
    theirs = [metric(k=k) for metric in (LinkPredHitRatio, LinkPredRecall, LinkPredMRR)]
    for metric in theirs:
        metric.update(top, edges)
    hits, recall, mrr = (metric.compute().item() for metric in theirs)
    assert found[f"pessimistic_hits_at_{k}"] == pytest.approx(hits) == pytest.approx(recall)
    assert found["pessimistic_mrr"] == pytest.approx(mrr, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 3, 12])
def test_several_edges_a_source_have_the_numbers_of_pyg(seed, k):
    _, top, edges = predictions(seed, k=k)
    values = evaluate(ranks_of_predictions(top, edges, 12), metrics=[f"{x}@{k}" for x in PYG])
    for (name, metric), value in zip(PYG.items(), values.values(), strict=True):
        theirs = metric(k=k)
        theirs.update(top, edges)
        assert value == pytest.approx(theirs.compute().item(), rel=1e-6), name


def test_two_edges_of_one_source_by_hand():
    """The ideal DCG of two edges among three places is 1 + 1 / log2(3)."""
    ranks = ranks_of_predictions([[3, 7, 5]], [[0, 0], [7, 9]], 20)
    values = evaluate(ranks, metrics=["ndcg@3", "recall@3", "precision@3", "mrr"])
    gain = 1 / math.log2(3)
    expected = [gain / (1 + gain), 1 / 2, 1 / 3, (1 / 2 + 1 / 11) / 2]
    assert list(values.values()) == pytest.approx(expected, rel=1e-12)


TASKS, SMALL = torch.tensor([[0, 0, 9]]), DistMult(9, 2, hidden_channels=4)
TOP, EDGES, P = torch.tensor([[0, 1]]), torch.tensor([[0], [1]]), torch.ones(2)
BAD = {
    "no model": (
        lambda: rank_triples(torch.nn.Linear(2, 2), TASKS),
        TypeError,
        "model must be a KGEModel.* got Linear",
    ),
    "few nodes": (
        lambda: rank_triples(SMALL, TASKS),
        IndexError,
        "nodes of the model, in \\[0, 9\\), got 9",
    ),
    "no source": (lambda: known_triples(), ValueError, "sources is empty"),
    "no type": (
        lambda: known_triples(Data(edge_index=EDGES)),
        TypeError,
        "sources\\[0\\] must have edge_type",
    ),
    "index": (
        lambda: known_triples((EDGES.T, EDGES[0])),
        ValueError,
        "edge_index of sources\\[0\\] must be \\(2, n",
    ),
    "twice": (
        lambda: ranks_of_predictions([[1, 1]], EDGES, 3),
        ValueError,
        "pred_index_mat must contain no destination",
    ),
    "listed": (
        lambda: ranks_of_predictions(TOP, EDGES, 1),
        IndexError,
        "pred_index_mat must lie in \\[0, 1\\)",
    ),
    "shape": (lambda: ranks_of_predictions(TOP[0], EDGES, 3), ValueError, "pred_index_mat must be"),
    "edges": (
        lambda: ranks_of_predictions(TOP, EDGES.T, 3),
        ValueError,
        "edge_label_index must be",
    ),
    "weight": (
        lambda: ranks_of_predictions(TOP, EDGES, 3, edge_label_weight=P),
        ValueError,
        "weight must be \\(1,\\)",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input_raises(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.slow
def test_example_explains_the_difference(tmp_path):
    printed = fork_script(EXAMPLE, "--dataset", "nations", "--epochs", "2", cwd=tmp_path)
    rows = re.findall(r"^(.{44})((?: +[\d.-]+)+)$", printed, flags=re.MULTILINE)
    rows = {label.strip(): [float(x) for x in values.split() if x != "-"] for label, values in rows}
    assert len(rows) == 5
    theirs, raw, tails, heads, both = rows.values()
    assert raw[:3] == pytest.approx([theirs[0] + 1, *theirs[1:]], abs=2e-4)
    assert tails[0] < raw[0]
    assert both[:3] == pytest.approx(
        [(a + b) / 2 for a, b in zip(tails, heads, strict=True)][:3], abs=2e-4
    )
    nothing = re.findall(r"model.test\(\) +([\d.]+) +realistic +([\d.]+) of 14", printed)
    assert [realistic for _, realistic in nothing] == ["7.5", "7.5"]
    assert nothing[0][0] != nothing[1][0]
