"""Five models, three seeds, four graphs: train, rank, and write one page that others can verify.

    python examples/study.py [--graph FOLDER ...] [--seeds 3] [--epochs 12] [--out study]

Nations, Kinships and UMLS come with PyKEEN. A folder with train.tsv, valid.tsv and test.tsv, of ids
or labels, is one more graph: for example FB15k-237 or WN18RR. The models are small and trained for
minutes, not for a leaderboard. A score is the product or the distance of the embeddings of a query
(head, relation) and of an entity. Relations have a second embedding for their inverses, and the
loss is a softmax over all entities or over 512 of them. The page is study/report.html, the ranks
are below study/runs.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pykeen.datasets import get_dataset
from pykeen.triples import TriplesFactory
from torch import Tensor, nn

from torchrankmetrics import KnownTriples, rank_triples
from torchrankmetrics.study import RankStudy

Query = Callable[[Tensor, Tensor], Tensor]


def translate(h: Tensor, r: Tensor) -> Tensor:
    """TransE: the head moved by the relation."""
    return h + r


def multiply(h: Tensor, r: Tensor) -> Tensor:
    """DistMult: elementwise products."""
    return h * r


def complex_product(h: Tensor, r: Tensor) -> Tensor:
    """ComplEx: products of complex numbers, real parts first."""
    a, b = (
        torch.view_as_complex(torch.stack(h.chunk(2, -1), -1)),
        torch.view_as_complex(torch.stack(r.chunk(2, -1), -1)),
    )
    return torch.cat([(a * b).real, (a * b).imag], -1)


def rotate(h: Tensor, r: Tensor) -> Tensor:
    """RotatE: complex numbers turned by the angles that half of the relation holds."""
    angle = r.chunk(2, -1)[0]
    return complex_product(h, torch.cat([angle.cos(), angle.sin()], -1))


def transform(h: Tensor, r: Tensor) -> Tensor:
    """RESCAL: the head times a matrix of the relation."""
    return (h.unsqueeze(1) @ r.unflatten(-1, (h.shape[-1], h.shape[-1]))).squeeze(1)


# the query of each model, and whether near is better than far
MODELS: dict[str, tuple[Query, bool]] = {
    "TransE": (translate, True),
    "DistMult": (multiply, False),
    "ComplEx": (complex_product, False),
    "RotatE": (rotate, True),
    "RESCAL": (transform, False),
}


class Model(nn.Module):
    """Scores of all entities as answers to queries (head, relation).

    Relation r + num_relations is the inverse of r.
    """

    def __init__(self, name: str, num_entities: int, num_relations: int, dim: int) -> None:
        super().__init__()
        self.query, self.near = MODELS[name]
        self.num_relations = num_relations
        size = dim * dim if name == "RESCAL" else dim
        self.entity = nn.Parameter(torch.randn(num_entities, dim) / dim**0.5)
        self.relation = nn.Parameter(torch.randn(2 * num_relations, size) / dim**0.5)

    def forward(self, entity: Tensor, relation: Tensor, answers: Tensor | None = None) -> Tensor:
        """Scores (B, N) of all entities, or of those given as (N,) ids."""
        query = self.query(self.entity[entity], self.relation[relation])
        others = self.entity if answers is None else self.entity[answers]
        product = query @ others.T
        return (
            2 * product - (others**2).sum(1) - (query**2).sum(1, keepdim=True)
            if self.near
            else product
        )

    def tails(self, h: Tensor, r: Tensor) -> Tensor:
        """Scores (B, N) of tails."""
        return self(h, r)

    def heads(self, r: Tensor, t: Tensor) -> Tensor:
        """Scores (B, N) of heads."""
        return self(t, r + self.num_relations)


def train(model: Model, triples: Tensor, epochs: int, num_entities: int) -> None:
    """Softmax over all entities, or over the answers of the batch and 512 others, with Adam."""
    h, r, t = triples.T
    both = torch.cat([triples, torch.stack([t, r + model.num_relations, h], 1)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        for batch in both[torch.randperm(len(both))].split(1024 if len(both) > 50_000 else 256):
            if num_entities <= 2048:
                answers, target = None, batch[:, 2]
            else:
                own = torch.cat([batch[:, 2], torch.randint(num_entities, (512,))])
                answers, place = own.unique(return_inverse=True)
                target = place[: len(batch)]
            loss = nn.functional.cross_entropy(model(batch[:, 0], batch[:, 1], answers), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def graphs(folders: list[Path]) -> dict[str, list[Tensor]]:
    """Triples of train, valid and test by graph."""
    found = {}
    for name in ("nations", "kinships", "umls"):
        data = get_dataset(dataset=name)
        found[name] = [
            part.mapped_triples for part in (data.training, data.validation, data.testing)
        ]
    for folder in folders:
        first = TriplesFactory.from_path(folder / "train.tsv")
        labels = {
            "entity_to_id": dict(first.entity_to_id),
            "relation_to_id": dict(first.relation_to_id),
        }
        parts = [first.mapped_triples]
        # what training has not seen has no embedding: PyKEEN leaves it out
        for split in ("valid", "test"):
            parts.append(TriplesFactory.from_path(folder / f"{split}.tsv", **labels).mapped_triples)
        found[folder.name] = parts
    return found


def main() -> None:
    """Train what is not there yet, rank, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--graph", type=Path, action="append", default=[], help="a folder of one more graph"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("study"))
    args = parser.parse_args()
    pattern = str(args.out / "runs" / "{dataset}" / "{model}" / "{seed}.npz")
    start = time.perf_counter()
    for dataset, (training, validation, testing) in graphs(args.graph).items():
        num_entities = (
            int(max(part[:, [0, 2]].max() for part in (training, validation, testing))) + 1
        )
        num_relations = int(training[:, 1].max()) + 1
        known = KnownTriples(training, validation, testing, num_entities=num_entities)
        for name in MODELS:
            for seed in range(args.seeds):
                path = Path(pattern.format(dataset=dataset, model=name, seed=seed))
                if path.exists():
                    continue
                torch.manual_seed(seed)
                model = Model(name, num_entities, num_relations, args.dim)
                train(
                    model,
                    training,
                    args.epochs if len(training) < 50_000 else max(args.epochs // 4, 1),
                    num_entities,
                )
                table = rank_triples(model.tails, model.heads, testing, known, progress=False)
                path.parent.mkdir(parents=True, exist_ok=True)
                table.save(path)
        print(
            f"{dataset}: {len(MODELS)} models, {args.seeds} seeds "
            f"({time.perf_counter() - start:.0f} s so far)",
            flush=True,
        )

    start = time.perf_counter()
    study = RankStudy.open(pattern)
    print(f"\n{study}")
    print(study.table("mrr").with_layout(intervals=False))
    print(f"\n{study.summary(['mrr', 'adjusted_mrr', 'amri'])}")
    study.report(args.out / "report.html", ["mrr", "hits@10"], title="Five small models")
    print(
        f"\n{args.out / 'report.html'}: {time.perf_counter() - start:.1f} s for all tables and the "
        "page"
    )


if __name__ == "__main__":
    main()
