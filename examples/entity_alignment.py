"""Align two knowledge graphs, and show which metrics depend on the size of the test set.

    python examples/entity_alignment.py [FOLDER] [--splits 5] [--sizes 7] [--out FOLDER]

FOLDER contains a pair of graphs such as DBP15k (Sun et al. 2017): triples_1.tsv and triples_2.tsv
(head, relation, tail), entities_1.tsv and entities_2.tsv (one id per line), ref_pairs.tsv (left,
right). Without FOLDER a pair is generated.

30% of the pairs are seeds. The embedding of an entity is the mean of the features of its neighbors
and of their neighbors. The two entities of a seed share their features, which are trained so that
each is the nearest of all entities to the other. An untrained model has random features and no
seeds. Both are tested on random subsets of the other pairs, as in Figure 3 of Berrendorf et al.
2020 (arXiv 2002.06914): the model is the same, and only AMRI is the same at every size.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from torchrankmetrics import evaluate
from torchrankmetrics.kg import rank_alignment

METRICS = (
    "mr",
    "mrr",
    "hits_at_10",
    "amri",
    "adjusted_mrr",
    "adjusted_hits_at_10",
    "z_mr",
    "z_mrr",
    "z_hits_at_10",
)
LABELS = ("MR", "MRR", "H@10", "AMRI", "AMRR", "AH@10", "z(MR)", "z(MRR)", "z(H@10)")
KINDS = ("trained", "untrained")


class Graphs(NamedTuple):
    """Two graphs with entities from 0 in each, their sizes, and all pairs (left, right).

    Triples are (head, relation, tail).
    """

    triples: tuple[Tensor, Tensor]
    sizes: tuple[int, int]
    pairs: Tensor


class Aligner(torch.nn.Module):
    """Embeddings from the features of neighbors, entities of the left graph first."""

    def __init__(self, graphs: Graphs, seeds: Tensor, dim: int) -> None:
        super().__init__()
        self.left = graphs.sizes[0]
        n = sum(graphs.sizes)
        self.features = torch.nn.Parameter(torch.randn(n, dim))
        self.owner = torch.arange(n)  # whose features an entity has
        self.owner[self.left + seeds[:, 1]] = seeds[:, 0]
        head, _, tail = torch.cat(
            [graphs.triples[0], graphs.triples[1] + torch.tensor([self.left, 0, self.left])]
        ).T
        row, column = torch.cat([head, tail]), torch.cat([tail, head])
        weight = 1 / torch.bincount(row, minlength=n)[row].float()
        self.neighbors = sparse(row, column, weight, n)
        self.transposed = sparse(column, row, weight, n)

    def forward(self) -> Tensor:
        """Unit vectors (entities of both graphs, 2 * dim)."""
        one = Propagate.apply(normalize(self.features)[self.owner], self.neighbors, self.transposed)
        two = Propagate.apply(one, self.neighbors, self.transposed)
        return normalize(torch.cat([normalize(one), normalize(two)], 1))


class Propagate(torch.autograd.Function):
    """A sparse product whose gradient is a sparse product as well.

    Torch's own would take the gradient of the matrix, too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        """Give matrix @ x."""
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        """Give the gradient of x."""
        return ctx.transposed @ gradient, None, None


def sparse(row: Tensor, column: Tensor, value: Tensor, size: int) -> Tensor:
    """A square matrix; repeated places add up."""
    matrix = torch.sparse_coo_tensor(
        torch.stack([row, column]), value, (size, size), check_invariants=True
    )
    return matrix.coalesce()


def train(model: Aligner, seeds: Tensor, sizes: tuple[int, int], steps: int) -> None:
    """Seeds find each other among other seeds and random entities: softmax in both directions."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        embeddings = model()
        left, right = embeddings.split(sizes)
        batch = seeds[torch.randperm(len(seeds))[:1500]]
        loss = torch.zeros(())
        for here, there, own, other in ((left, right, 0, 1), (right, left, 1, 0)):
            drawn = torch.randint(len(there), (min(3000, len(there)),))
            scores = 15 * here[batch[:, own]] @ there[torch.cat([batch[:, other], drawn])].T
            scores[:, len(batch) :].masked_fill_(drawn == batch[:, other, None], -torch.inf)
            loss = loss + cross_entropy(scores, torch.arange(len(batch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_by_size(
    model: Aligner, test: Tensor, graphs: Graphs, sizes: list[int]
) -> list[dict[str, float]]:
    """Metrics of the first pairs of a shuffled test set in both directions.

    The candidates are the entities of these pairs.
    """
    with torch.no_grad():
        left, right = model().split(graphs.sizes)
    tables = [rank_alignment(test[:size], left, right, similarity="dot") for size in sizes]
    return [evaluate(table, metrics=list(METRICS)) for table in tables]


def run_split(
    graphs: Graphs, seed: int, sizes: list[int], given: argparse.Namespace
) -> dict[str, Any]:
    """Draw seeds, train, and test the trained and the untrained model."""
    torch.manual_seed(seed)
    pairs = graphs.pairs[torch.randperm(len(graphs.pairs))]
    seeds, test = pairs[: len(pairs) - sizes[-1]], pairs[len(pairs) - sizes[-1] :]
    before = time.perf_counter()
    untrained, trained = Aligner(graphs, seeds[:0], given.dim), Aligner(graphs, seeds, given.dim)
    train(trained, seeds, graphs.sizes, given.steps)
    seconds = time.perf_counter() - before
    result = {
        kind: test_by_size(model, test, graphs, sizes)
        for kind, model in zip(KINDS, (trained, untrained), strict=True)
    }
    with torch.no_grad():
        left, right = trained().split(graphs.sizes)
    whole = {
        candidates: evaluate(
            rank_alignment(test, left, right, candidates=candidates),
            metrics=["hits@1", "mrr", "amri"],
            sides=["tail", "head"],
        )
        for candidates in ("test", "all")
    }
    print(
        f"split {seed}: {len(seeds)} seeds, trained {seconds:.0f} s; H@1 of {len(test)} left "
        f"entities {whole['test']['tail_hits_at_1']:.3f} among test entities, "
        f"{whole['all']['tail_hits_at_1']:.3f} among all; of right ones "
        f"{whole['test']['head_hits_at_1']:.3f} and {whole['all']['head_hits_at_1']:.3f}",
        flush=True,
    )
    return {"seed": seed, "whole": whole, **result}


def tabulate(sizes: list[int], splits: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over splits; ratio of means at the largest and smallest size."""
    lines = []
    for kind in KINDS:
        values = by_metric(splits, kind)  # (splits, sizes, metrics)
        mean, spread = values.mean(0), values.std(0, ddof=min(1, len(splits) - 1))
        cells = [
            [f"{m:.4g} ± {s:.1g}" for m, s in zip(*row, strict=True)]
            for row in zip(mean, spread, strict=True)
        ]
        lines += ["", f"{kind:>9} " + " ".join(f"{label:>16}" for label in LABELS)]
        lines += [
            f"{size:>9} " + " ".join(f"{cell:>16}" for cell in row)
            for size, row in zip(sizes, cells, strict=True)
        ]
        if kind == "trained":
            factors = mean[-1] / mean[0]
            lines.append(f"{'times':>9} " + " ".join(f"{factor:>16.3g}" for factor in factors))
    return "\n".join(lines)


def by_metric(splits: list[dict[str, Any]], kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Values (splits, sizes, metrics)."""
    return np.array(
        [[[values[name] for name in METRICS] for values in split[kind]] for split in splits]
    )


def draw(sizes: list[int], splits: list[dict[str, Any]], path: Path) -> None:
    """Draw one panel per metric: mean over the splits, and the range they span."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(3, 3, figsize=(11, 8), sharex=True, layout="constrained")
    for i, (panel, label) in enumerate(zip(panels.flat, LABELS, strict=True)):
        for kind, color in zip(KINDS, ("C0", "0.5"), strict=True):
            values = by_metric(splits, kind)[:, :, i]
            panel.plot(sizes, values.mean(0), "o-", color=color, label=kind, markersize=3)
            panel.fill_between(
                sizes, values.min(0), values.max(0), color=color, alpha=0.3, linewidth=0
            )
        panel.set_title(label)
        panel.set_xscale("log")
        panel.set_xticks(sizes, [str(size) for size in sizes], fontsize=7)
        panel.minorticks_off()
        if label == "MR":
            panel.set_yscale("log")
        if 3 <= i < 6:
            panel.set_ylim(-0.1, 1.05)
        panel.grid(alpha=0.3)
    for panel in panels[-1]:
        panel.set_xlabel("test pairs")
    panels[0, 0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def read(folder: Path) -> Graphs:
    """Read a pair of graphs, and number the entities of each from 0."""
    tables = {
        name: torch.from_numpy(
            np.loadtxt(folder / f"{name}.tsv", dtype=np.int64, delimiter="\t", ndmin=2)
        )
        for name in ("entities_1", "entities_2", "triples_1", "triples_2", "ref_pairs")
    }
    ids = [tables[f"entities_{i}"][:, 0].sort().values for i in (1, 2)]

    def number(values: Tensor, graph: int) -> Tensor:
        place = torch.searchsorted(ids[graph], values.contiguous()).clamp(max=len(ids[graph]) - 1)
        if (ids[graph][place] != values).any():
            raise ValueError(
                f"{folder} has triples or pairs of entities that entities_{graph + 1}.tsv has not"
            )
        return place

    triples = []
    for graph in (0, 1):
        head, relation, tail = tables[f"triples_{graph + 1}"].T
        triples.append(torch.stack([number(head, graph), relation, number(tail, graph)], 1))
    pairs = torch.stack([number(tables["ref_pairs"][:, graph], graph) for graph in (0, 1)], 1)
    return Graphs((triples[0], triples[1]), (len(ids[0]), len(ids[1])), pairs)


def make_up(size: int = 600) -> Graphs:
    """Two views of a random graph: each lacks a fifth of its triples, the right is renumbered."""
    generator = torch.Generator().manual_seed(0)
    popular = (size * torch.rand(6 * size, 2, generator=generator) ** 2).long()  # a few hubs
    relation = torch.randint(0, 5, (6 * size, 1), generator=generator)
    triples = torch.cat([popular[:, :1], relation, popular[:, 1:]], 1)
    left, right = (triples[torch.rand(len(triples), generator=generator) < 0.8] for _ in range(2))
    new = torch.randperm(size, generator=generator)
    right = torch.stack([new[right[:, 0]], right[:, 1], new[right[:, 2]]], 1)
    return Graphs((left, right), (size, size), torch.stack([torch.arange(size), new], 1))


def main() -> None:
    """Train and test every split, print the table, draw the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sizes", type=int, default=7, help="test sizes over a decade")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument(
        "--out", type=Path, default=Path("logs"), help="folder for the plot and the values"
    )
    given = parser.parse_args()

    torch.set_num_threads(1)
    graphs = make_up() if given.folder is None else read(given.folder)
    largest = len(graphs.pairs) - int(0.3 * len(graphs.pairs))
    sizes = [round(size) for size in np.geomspace(largest / 10, largest, given.sizes)]
    splits = [run_split(graphs, seed, sizes, given) for seed in range(given.splits)]
    print(tabulate(sizes, splits))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "entity_alignment.json").write_text(
        json.dumps({"sizes": sizes, "splits": splits}, indent=1) + "\n"
    )
    draw(sizes, splits, given.out / "entity_alignment.png")
    print(f"\ndrawn: {given.out / 'entity_alignment.png'}")


if __name__ == "__main__":
    main()
