"""Dense retrieval: rank several relevant passages of 200 questions among a million, in chunks.

python examples/dense_retrieval.py [--queries 200] [--passages 1000000] [--dim 64]

The embeddings are generated: a relevant passage is its question with noise. `rank_embeddings` never
stores the matrix of scores. The last evaluation shows where ties come from: scores in bfloat16 tie,
but the bfloat16 embeddings themselves do not, because their scores are computed in float64.
"""

import argparse

import torch

from torchrankmetrics import RankCollection, rank_embeddings, rank_scores

METRICS = ["rr@10", "ndcg@10", "recall@100", "success@10", "ap", "mrr"]


def main() -> None:
    """Embed, rank and print both summaries."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    given = parser.parse_args()

    torch.manual_seed(0)
    questions = torch.randn(given.queries, given.dim)
    passages = torch.randn(given.passages, given.dim)
    # one to five relevant passages for each question: pairs of (question, passage)
    row = torch.arange(given.queries).repeat_interleave(torch.randint(1, 6, (given.queries,)))
    relevant = torch.stack([row, torch.randperm(given.passages)[: len(row)]])
    passages[relevant[1]] = 0.45 * questions[row] + 0.9 * passages[relevant[1]]

    pairs = tuple(relevant)
    narrow = questions.bfloat16(), passages.bfloat16()
    evaluations = {
        "float32 embeddings": rank_embeddings(questions, passages, pairs),
        "bfloat16 embeddings": rank_embeddings(*narrow, pairs),
        "bfloat16 scores": rank_scores(narrow[0] @ narrow[1].T, pairs),
    }
    for name, ranks in evaluations.items():
        collection = RankCollection(METRICS)
        collection.update(ranks)
        print(f"\n{given.queries} questions, {given.passages:,} passages, {name}")
        print(collection.summary())


if __name__ == "__main__":
    main()
