"""Evaluate complex queries on a graph by pattern: 1p, 2p and 2i, with hard and easy answers.

python examples/complex_queries.py [--entities 200] [--queries 100]

The graph is generated. Some of its edges are hidden, and the answers that need a hidden edge are
hard. A link predictor that is right about many edges scores the queries by fuzzy logic: products,
and the maximum over intermediate entities. The same scores are evaluated in two ways:

- the mean over hard answers, as papers report it: each is ranked without the other answers;
- metrics of queries: all hard answers of a query are ranked in one list.
"""

import argparse

import torch
from torch import Tensor

from torchrankmetrics import RankCollection, evaluate
from torchrankmetrics.kg import rank_complex_queries

PATTERNS = ["1p", "2p", "2i"]


def answers(edges: Tensor, pattern: str, anchor: Tensor, relation: Tensor) -> Tensor:
    """Fuzzy truth (queries, entities) of every entity as an answer.

    Edges are (relations, entities, entities).
    """
    first = edges[relation[:, 0], anchor[:, 0]]
    if pattern == "1p":
        return first
    if pattern == "2i":
        return first * edges[relation[:, 1], anchor[:, 1]]
    return (first[:, :, None] * edges[relation[:, 1]]).amax(1)


def main() -> None:
    """Draw a graph, hide edges, ask, rank, and print by pattern."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entities", type=int, default=200)
    parser.add_argument("--queries", type=int, default=100, help="of each pattern")
    given = parser.parse_args()

    torch.manual_seed(0)
    shape = (4, given.entities, given.entities)
    graph = torch.rand(shape) < 6 / given.entities
    known = graph & (torch.rand(shape) < 0.7)
    predicted = torch.where(known, 1.0, torch.rand(shape) * torch.where(graph, 0.9, 0.5))

    scores, hard, easy, pattern = [], [], [], []
    for number, name in enumerate(PATTERNS):
        anchor = torch.randint(0, given.entities, (20 * given.queries, 2))
        if name == "2i":  # two edges that meet: anchors of one common answer
            heads = [graph[:2, :, j].nonzero() for j in range(given.entities)]
            pairs = [h[torch.randint(0, len(h), (2,))] for h in heads if len(h) > 1]
            drawn = torch.stack([pairs[i] for i in torch.randint(0, len(pairs), (len(anchor),))])
            relation, anchor = drawn[:, :, 0], drawn[:, :, 1]
        else:
            relation = torch.randint(0, 4, (len(anchor), 2))
        true, found = (
            answers(edges.float(), name, anchor, relation) > 0 for edges in (graph, known)
        )
        asked = (true & ~found).any(1).nonzero()[: given.queries, 0]  # queries with a hard answer
        scores.append(answers(predicted, name, anchor[asked], relation[asked]))
        hard.append((true & ~found)[asked])
        easy.append((true & found)[asked])
        pattern.append(torch.full((len(asked),), number))
    scores, hard, easy, pattern = (torch.cat(parts) for parts in (scores, hard, easy, pattern))

    table = rank_complex_queries(
        lambda queries: scores[queries],
        hard.nonzero().T,
        easy.nonzero().T,
        pattern=pattern,
        progress=False,
    )
    print("hard answers, each ranked without the others: mean over queries; macro: over patterns")
    print(evaluate(table, metrics=["mrr", "hits@3", "macro_mrr"]))

    collection = RankCollection(["rr", "ap", "ndcg@10", "recall@10"])
    collection.update(scores, hard, exclude=easy, group=pattern)
    print("\nall hard answers of a query in one list, by pattern:")
    print(collection.breakdown(names=PATTERNS))


if __name__ == "__main__":
    main()
