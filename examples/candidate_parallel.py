"""Rank among candidates sharded over processes: every process gets the ranks of one process.

    torchrun --nproc-per-node 2 examples/candidate_parallel.py

The graph is arithmetic, (h, r, h + r mod 997), and so is the model: entities are points on circles,
and a relation rotates them. The embeddings are in a file that is mapped into memory: a process
reads its shard, and the rows of its queries.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from torch import Tensor, distributed

from torchrankmetrics import KnownTriples, RankCollection, RankTable, rank_triples
from torchrankmetrics.kg import EmbeddingScorer

NUM_ENTITIES, NUM_RELATIONS, CIRCLES = 997, 5, 8


def points(numbers: Tensor) -> Tensor:
    """Where numbers lie on each circle: cosines, then sines."""
    angles = 2 * math.pi / NUM_ENTITIES * numbers[:, None] * torch.arange(1, CIRCLES + 1) ** 2
    return torch.cat([angles.cos(), angles.sin()], 1)


def turned(embeddings: Tensor, by: Tensor) -> Tensor:
    """Embeddings turned by points."""
    (x, y), (cos, sin) = embeddings.chunk(2, 1), by.chunk(2, 1)
    return torch.cat([x * cos - y * sin, x * sin + y * cos], 1)


def evaluate(
    entities: Tensor, mine: slice, test: Tensor, known: KnownTriples, **options: object
) -> RankTable:
    """Rank both sides of the test triples among a slice of the entities, or all of them."""
    candidates = entities[mine]
    return rank_triples(
        EmbeddingScorer(lambda h, r: turned(entities[h], points(r)), candidates),
        EmbeddingScorer(lambda r, t: turned(entities[t], points(-r)), candidates),
        test,
        known,
        progress=False,
        **options,
    )


def main() -> None:
    """Write the embeddings, rank among slices, then on the first process among all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder",
        type=Path,
        default=tempfile.gettempdir(),
        help="for the file, seen by all processes",
    )
    path = Path(parser.parse_args().folder, "candidate_parallel_entities.bin")
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    if rank == 0:  # in earnest: what training has saved
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(NUM_ENTITIES, 2 * CIRCLES, generator=generator)
        path.write_bytes((points(torch.arange(NUM_ENTITIES)) + 0.5 * noise).numpy().tobytes())
    distributed.barrier()
    entities = torch.from_file(str(path), shared=True, size=NUM_ENTITIES * 2 * CIRCLES).view(
        NUM_ENTITIES, -1
    )

    head, relation = torch.meshgrid(
        torch.arange(NUM_ENTITIES), torch.arange(NUM_RELATIONS), indexing="ij"
    )
    triples = torch.stack([head, relation, (head + relation) % NUM_ENTITIES], -1).flatten(0, 1)
    known, test = KnownTriples(triples, num_entities=NUM_ENTITIES), triples[::10]
    mine = slice(rank * NUM_ENTITIES // size, (rank + 1) * NUM_ENTITIES // size)
    table = evaluate(entities, mine, test, known, process_group=distributed.group.WORLD)
    if rank == 0:
        print(
            f"{len(table)} tasks, {mine.stop - mine.start} of {NUM_ENTITIES} candidates on this "
            "process"
        )
        # all have all ranks
        collection = RankCollection(["mrr", "hits_at_10", "adjusted_mrr"], sync_on_compute=False)
        collection.update(table)
        print("  ".join(f"{key} {value.item():.3f}" for key, value in collection.compute().items()))
        alone = evaluate(entities, slice(None), test, known)
        print(f"ranks equal the ranks of one process: {torch.equal(table.rows, alone.rows)}")
    distributed.barrier()
    if rank == 0:
        path.unlink()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
