"""Retrieval runs: from files of qrels and runs, and from embeddings, to a table with significance.

python examples/beir_run.py [--queries 200] [--documents 5000] [--folder FOLDER]

The data are generated. The script writes FOLDER/qrels/test.tsv (BEIR), bm25.run.gz (TREC) and
rerank.json there, as retrieval toolkits do, and reads them again. A third system is evaluated from
its embeddings, without a run.
"""

import argparse
import gzip
import json
import tempfile
from pathlib import Path

import torch

from torchrankmetrics import RankTable, rank_embeddings
from torchrankmetrics.integrations.trec import rank_run, read_qrels
from torchrankmetrics.study import RankStudy

METRICS = ["ndcg@10", "recall@100", "rr@10"]
DEPTH = 100


def write_files(
    folder: Path, questions: torch.Tensor, passages: torch.Tensor, labels: dict[int, dict[int, int]]
) -> None:
    """Write the labels and two runs of the best 100 documents."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    lines = [
        f"q{q:06}\td{d:06}\t{label}" for q, judged in labels.items() for d, label in judged.items()
    ]
    (folder / "qrels" / "test.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n"
    )
    runs = []
    for noise in (8.0, 6.0):
        scores, documents = (
            questions @ passages.T + noise * torch.randn(len(questions), len(passages))
        ).topk(DEPTH)
        pairs = zip(documents.tolist(), scores.tolist(), strict=True)
        runs.append(
            {
                f"q{q:06}": {f"d{d:06}": s for d, s in zip(*pair, strict=True)}
                for q, pair in enumerate(pairs)
            }
        )
    with gzip.open(folder / "bm25.run.gz", "wt") as file:
        for query, found in runs[0].items():
            for rank, (document, score) in enumerate(found.items(), 1):
                file.write(f"{query} Q0 {document} {rank} {score:.6f} bm25\n")
    (folder / "rerank.json").write_text(json.dumps(runs[1]))


def main() -> None:
    """Generate files, read them, and print a table and its LaTeX source."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())

    torch.manual_seed(0)
    questions, passages = torch.randn(given.queries, 64), torch.randn(given.documents, 64)
    relevant = torch.randperm(given.documents)[: 2 * given.queries].view(-1, 2)
    pairs = enumerate(relevant.tolist())
    labels = {q: dict(sorted({highly: 2, somewhat: 1}.items())) for q, (highly, somewhat) in pairs}
    for column, closeness in enumerate((0.4, 0.3)):
        passages[relevant[:, column]] += closeness * questions
    write_files(folder, questions, passages, labels)

    qrels, size = read_qrels(folder / "qrels" / "test.tsv"), given.documents
    study = RankStudy()
    for name in ("bm25.run.gz", "rerank.json"):
        table = rank_run(qrels, folder / name, num_candidates=size)
        study.add(table, model=name.partition(".")[0], dataset="generated")
    # tasks in the order of rank_run, by query and document, have its sample ids
    ranks = rank_embeddings(questions, passages, list(labels.values()))
    table = RankTable.from_ranks(ranks, sample_id=table.sample_id)
    study.add(table, model="embeddings", dataset="generated")
    print(study.table(METRICS))
    print(study.table("ndcg@10").to_latex())


if __name__ == "__main__":
    main()
