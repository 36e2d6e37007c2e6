"""A plain loop on several processes: the values equal the values of one process, bit for bit.

    torchrun --nproc-per-node 2 examples/ddp_plain.py

The graph is arithmetic: (h, r, h + r mod 29). Each process ranks its share of the test triples;
nothing is padded, so the shares may differ in size and no ``sample_id`` is needed.
"""

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from torchrankmetrics import KnownTriples, RankCollection

NUM_ENTITIES, NUM_RELATIONS = 29, 5


class TransE(nn.Module):
    """TransE (Bordes et al. 2013), scored against every entity."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.entities = nn.Embedding(NUM_ENTITIES, dim)
        self.relations = nn.Embedding(NUM_RELATIONS, dim)

    def forward(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores (B, NUM_ENTITIES) of all tails: -|h + r - t|."""
        return -torch.cdist(self.entities(heads) + self.relations(relations), self.entities.weight)


def graph() -> tuple[Tensor, Tensor]:
    """Triples for training and for the test."""
    head, relation = torch.meshgrid(
        torch.arange(NUM_ENTITIES), torch.arange(NUM_RELATIONS), indexing="ij"
    )
    triples = torch.stack([head, relation, (head + relation) % NUM_ENTITIES], -1).flatten(0, 1)
    triples = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))]
    return triples[:100], triples[100:]


@torch.no_grad()
def evaluate(
    model: nn.Module, triples: Tensor, known: KnownTriples, ranks: RankCollection
) -> dict[str, float]:
    """Rank the tails of triples in batches."""
    for batch in triples.split(8):
        h, r, t = batch.unbind(1)
        ranks.update(model(h, r), t, exclude=known.tails(h, r))
    return {key: value.item() for key, value in ranks.compute().items()}


def main() -> None:
    """Train, evaluate every process on its share, then the first one alone on everything."""
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TransE()
    training, test = graph()
    known = KnownTriples(training, test, num_entities=NUM_ENTITIES)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(30):
        h, r, t = training[rank::size].unbind(1)
        optimizer.zero_grad()
        cross_entropy(parallel(h, r), t).backward()
        optimizer.step()

    together = evaluate(model, test[rank::size], known, RankCollection())
    if rank == 0:
        alone = evaluate(model, test, known, RankCollection(sync_on_compute=False))
        print(f"{len(test)} test triples on {size} processes, {len(test[rank::size])} of them here")
        print("  ".join(f"{key} {value:.3f}" for key, value in together.items()))
        print(f"values equal the values of one process: {together == alone}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
