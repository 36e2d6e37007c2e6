"""Evaluate a torch_geometric.nn.kge model with rank_triples, and compare with its own test().

    python examples/pyg_kge.py [--dataset kinships|nations|umls] [--model complex|distmult|transe]

``KGEModel.test`` ranks tails only, one triple at a time, among all entities (known positives count
as mistakes). Equal scores are in the arbitrary order of ``argsort``, and the mean rank starts at 0.
"""

import argparse

import torch
from pykeen.datasets import get_dataset
from torch import Tensor
from torch_geometric.nn.kge import ComplEx, DistMult, KGEModel, TransE

from torchrankmetrics import KnownTriples, evaluate
from torchrankmetrics.integrations.pyg import rank_triples

MODELS = {"complex": ComplEx, "distmult": DistMult, "transe": TransE}
METRICS = ["mr", "mrr", "hits@10", "amri", "adjusted_mrr"]


def train(model: KGEModel, triples: Tensor, epochs: int) -> None:
    """The loop of PyG's own example."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for batch in model.loader(*triples.T, batch_size=1000, shuffle=True):
            optimizer.zero_grad()
            model.loss(*batch).backward()
            optimizer.step()


def main() -> None:
    """Train, and print both evaluations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=("kinships", "nations", "umls"), default="kinships")
    parser.add_argument("--model", choices=MODELS, default="complex")
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()

    torch.set_num_threads(1)  # matrices this small lose more to threads than they gain
    torch.manual_seed(0)
    dataset = get_dataset(dataset=args.dataset)
    splits = [
        part.mapped_triples for part in (dataset.training, dataset.validation, dataset.testing)
    ]
    test = splits[2]
    model = MODELS[args.model](dataset.num_entities, dataset.num_relations, hidden_channels=50)
    train(model, splits[0], args.epochs)
    model.eval()

    mean_rank, mrr, hits = model.test(*test.T, batch_size=20_000, log=False)
    raw, filtered = (rank_triples(model, test, known) for known in (None, KnownTriples(*splits)))

    print(f"{args.model} on {args.dataset}, {len(test)} test triples")
    print(f"{'':44}{'mean rank':>10}{'MRR':>9}{'hits@10':>9}{'AMRI':>9}{'adj. MRR':>9}")
    print(
        f"{'model.test(): tails, raw, ranks from 0':44}{mean_rank:10.4f}"
        f"{mrr:9.4f}{hits:9.4f}{'-':>9}{'-':>9}"
    )
    for label, table in (
        ("the same ranks from 1", raw.select(side="tail")),
        ("known positives are filtered", filtered.select(side="tail")),
        ("heads", filtered.select(side="head")),
        ("both sides", filtered),
    ):
        values = list(evaluate(table, metrics=METRICS).values())
        print(f"{label:44}{values[0]:10.4f}" + "".join(f"{value:9.4f}" for value in values[1:]))

    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)  # all scores are equal
    print("\na constant model, ranks of the first and of the last entity:")
    for name, entity in (("first", 0), ("last", dataset.num_entities - 1)):
        triple = torch.tensor([[0, 0, entity]])
        by_order = model.test(*triple.T, batch_size=20_000, log=False)[0] + 1
        realistic = evaluate(rank_triples(model, triple).select(side="tail"), metrics=["mr"])["mr"]
        print(
            f"{name:8}model.test() {by_order:6.1f}   realistic {realistic:6.1f} of "
            f"{dataset.num_entities}"
        )


if __name__ == "__main__":
    main()
