"""Scores of ULTRA's published checkpoints, from a checkout of its repository: no line of it is here.

ULTRA (Galkin et al. 2023, arXiv 2310.04562) imports torch_scatter and compiles a kernel of its own when it first runs.
Neither is needed: the two sums that it asks of them are put in their place before it is imported. PyTorch Geometric
and Numba have to be installed.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from benchmarks.graph_sources import GraphSource, sources
from benchmarks.make_datasets import read_split
from numba import njit
from torch import Tensor

from torchrankmetrics import KnownTriples, RankTable, rank_triples
from torchrankmetrics.datasets.triple_files import Triple

CHECKPOINTS = ("3g", "4g", "50g")
_MODEL = {"input_dim": 64, "hidden_dims": [64] * 6, "message_func": "distmult", "aggregate_func": "sum"}
_MODEL |= {"short_cut": True, "layer_norm": True}  # of config/*/inference.yaml


def graph_names() -> dict[str, str]:
    """What ULTRA can be run on, as its tables are called, and our names of the data sets."""
    names = {f"{ours.upper()}-v{v}": f"{of}-v{v}-ind-merged" for ours, of in _FAMILIES.items() for v in range(1, 5)}
    for source in sources():
        if source.name.startswith("ingram-"):
            names[f"ingram-{source.name.removeprefix('ingram-').upper()}"] = source.name
        elif source.layout != "pairs" and source.repository != "kkteru/grail":
            names[source.name] = source.name
    return names


_FAMILIES = {"fb": "fb15k237", "wn": "wn18rr", "nl": "nell995"}


@dataclass(frozen=True, eq=False)
class Graph:
    """Ids (n, 3) of head, relation, tail of each split, numbered as they occur first; GraIL's relations in training."""

    splits: dict[str, Tensor]
    num_entities: int
    num_relations: int

    @property
    def known(self) -> KnownTriples:
        """What is filtered out: every split, as ULTRA does."""
        return KnownTriples(*self.splits.values(), num_entities=self.num_entities)

    def renumbered(self, seed: int) -> "Graph":
        """The same graph under other numbers of its entities."""
        order = torch.randperm(self.num_entities, generator=torch.Generator().manual_seed(seed))
        splits = {
            name: torch.stack([order[x[:, 0]], x[:, 1], order[x[:, 2]]], dim=1) for name, x in self.splits.items()
        }
        return Graph(splits, self.num_entities, self.num_relations)


def labels_of(name: str, checkouts: Path) -> dict[str, list[Triple]]:
    """Labelled triples by split; of GraIL's graphs "vocabulary" comes first, the training graph, for its relations."""
    by_name = {source.name: source for source in sources()}
    source = by_name[graph_names()[name]]
    found = {split: read_split(source, split, checkouts) for split in source.files}
    if source.name.endswith("-ind-merged"):
        training: GraphSource = by_name[source.name.removesuffix("-ind-merged")]
        found = {
            "vocabulary": [x for split in ("train", "valid") for x in read_split(training, split, checkouts)]
        } | found
    return found


def load_graph(name: str, checkouts: Path) -> Graph:
    """Number the triples of a graph."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    splits = {}
    for split, triples in labels_of(name, checkouts).items():
        numbered = []
        for head, relation, tail in triples:
            r = relations.setdefault(relation, len(relations))
            if split != "vocabulary":
                h = entities.setdefault(head, len(entities))
                numbered.append((h, r, entities.setdefault(tail, len(entities))))
        if split != "vocabulary":
            splits[split] = torch.tensor(numbered)
    return Graph(splits, len(entities), len(relations))


class Ultra:
    """A checkpoint on a graph: scores of all entities, as ``rank_triples`` asks for them.

    Args:
        checkout: of ULTRA's repository.
        checkpoint: one of ``CHECKPOINTS``.
        graph: to predict in.
        digits: scores are rounded to so many decimals; None: as they are.
    """

    def __init__(self, checkout: Path, checkpoint: str, graph: Graph, digits: int | None = None) -> None:
        models, tasks = _import(checkout)
        from torch_geometric.data import Data

        self.model = models.Ultra({"class": "RelNBFNet", **_MODEL}, {"class": "EntityNBFNet", **_MODEL}).eval()
        state = torch.load(checkout / "ckpts" / f"ultra_{checkpoint}.pth", map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        head, relation, tail = graph.splits["train"].T
        self.data = tasks.build_relation_graph(
            Data(
                edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
                edge_type=torch.cat([relation, relation + graph.num_relations]),
                num_nodes=graph.num_entities,
                num_relations=2 * graph.num_relations,
            )
        )
        self.everyone = torch.arange(graph.num_entities)
        self.digits = digits
        self.representations: dict[int, Tensor] = {}

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """(B,), (B,) -> (B, N)."""
        return self._scores(heads[:, None], relations[:, None], self.everyone)

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """(B,), (B,) -> (B, N)."""
        return self._scores(self.everyone, relations[:, None], tails[:, None])

    def _scores(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        batch = torch.stack(torch.broadcast_tensors(heads, tails, relations), dim=-1)
        given = torch.stack([self._representation(relation) for relation in relations[:, 0].tolist()])
        scores = self.model.entity_model(self.data, given, batch)
        return scores if self.digits is None else scores.round(decimals=self.digits)

    def _representation(self, relation: int) -> Tensor:
        """Of all relations, given the one that is asked for: the same in all its queries."""
        if relation not in self.representations:
            query = torch.tensor([relation])
            self.representations[relation] = self.model.relation_model(self.data.relation_graph, query=query)[0]
        return self.representations[relation]


def rank(checkout: Path, checkpoint: str, graph: Graph, digits: int | None = None, batch_size: int = 16) -> RankTable:
    """Zero-shot ranks of the test triples, both sides."""
    with torch.no_grad():
        model = Ultra(checkout, checkpoint, graph, digits)
        return rank_triples(
            model.tails, model.heads, graph.splits["test"], graph.known, batch_size=batch_size, progress=False
        )


def tables(
    checkout: Path, checkouts: Path, names: list[str], checkpoints: list[str]
) -> Iterator[tuple[str, str, RankTable]]:
    """Rank tables of all names and checkpoints."""
    for name in names:
        graph = load_graph(name, checkouts)
        for checkpoint in checkpoints:
            yield name, checkpoint, rank(checkout, checkpoint, graph)


def _import(checkout: Path) -> tuple[Any, Any]:
    """ULTRA's models and tasks, with two sums of ours in the place of what would have to be compiled."""
    if not (checkout / "ultra" / "models.py").exists():
        raise FileNotFoundError(f"{checkout} is no checkout of ULTRA: it has no ultra/models.py")
    if "ultra.models" not in sys.modules:
        scatter = ModuleType("torch_scatter")
        scatter.scatter = scatter.scatter_add = _sum_by_index  # type: ignore[attr-defined]
        sys.modules["torch_scatter"] = scatter
        kernel = ModuleType("ultra.rspmm")
        kernel.generalized_rspmm = sum_of_messages  # type: ignore[attr-defined]
        sys.modules["ultra.rspmm"] = kernel
        sys.path.insert(0, str(checkout))
    from ultra import models, tasks

    return models, tasks


def _sum_by_index(source: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(int(index.max()) + 1, dtype=source.dtype).index_add_(0, index, source)


def sum_of_messages(
    edges: Tensor, types: Tensor, weight: Tensor, relation: Tensor, input: Tensor, sum: str = "add", mul: str = "mul"
) -> Tensor:
    """Sum over the edges (to, from) of a node: weight (E,) x relation (R, D)[type] x input (N, D)[from].

    One after the other in the order of (to, from), so that the result has the same bits everywhere.
    """
    if (sum, mul) != ("add", "mul"):
        raise NotImplementedError(f"the checkpoints sum products, not {sum!r} of {mul!r}")
    to, source = edges
    order = (to * (int(source.max()) + 1) + source).argsort()
    result = torch.zeros_like(input)
    arrays = [x.numpy() for x in (to[order], source[order], types[order], weight[order])]
    _add_messages(*arrays, relation.contiguous().numpy(), input.contiguous().numpy(), result.numpy())
    return result


@njit  # type: ignore[untyped-decorator]
def _add_messages(to: Any, source: Any, types: Any, weight: Any, relation: Any, input: Any, result: Any) -> None:
    for edge in range(len(to)):
        i, j, r, w = to[edge], source[edge], types[edge], weight[edge]
        for d in range(input.shape[1]):
            result[i, d] += w * (relation[r, d] * input[j, d])
