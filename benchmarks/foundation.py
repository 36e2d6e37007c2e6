"""ULTRA, a foundation model, and random ranking: 3 published checkpoints, zero-shot on many graphs.

Install torch_geometric and numba. Write the tables:
    python -m benchmarks.foundation --ultra PATH --graphs CHECKOUTS --tables FOLDER [--only ...]
Values of the tables:
    python -m benchmarks.foundation --tables FOLDER [--graphs CHECKOUTS] --json PATH
Float noise:
    python -m benchmarks.foundation --ultra PATH --graphs CHECKOUTS --noise NAME ... --json PATH
Print the results in PATH:
    python -m benchmarks.foundation --report --json PATH

PATH of --ultra is a checkout of github.com/DeepGraphLearning/ULTRA, with the checkpoints 3g, 4g and
50g. CHECKOUTS has clones of the repositories of ``benchmarks/make_datasets.py``, as ``owner/name``.
FOLDER has or gets ``<graph>.<checkpoint>.npz``. Next to the JSON of the values (one object per
table) are those of the checkpoints over graphs (``_across``), of the graphs, if they are given
(``_graphs``), and of the noise (``_noise``).
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from benchmarks.make_datasets import GraphSource, Triple, read_split, sources
from numba import njit
from torch import Tensor

from torchrankmetrics import KnownTriples, RankTable, evaluate, rank_triples
from torchrankmetrics.definitions import MEAN_RECIPROCAL_RANK, hits_at
from torchrankmetrics.null import ExactExpectation
from torchrankmetrics.study import RankStudy

CHECKPOINTS = ("3g", "4g", "50g")
_MODEL = {
    "input_dim": 64,
    "hidden_dims": [64] * 6,
    "message_func": "distmult",
    "aggregate_func": "sum",
}
_MODEL |= {"short_cut": True, "layer_norm": True}  # of config/*/inference.yaml


def graph_names() -> dict[str, str]:
    """What ULTRA can be run on, as its tables are called, and our names of the data sets."""
    names = {
        f"{ours.upper()}-v{v}": f"{of}-v{v}-ind-merged"
        for ours, of in _FAMILIES.items()
        for v in range(1, 5)
    }
    for source in sources():
        if source.name.startswith("ingram-"):
            names[f"ingram-{source.name.removeprefix('ingram-').upper()}"] = source.name
        elif source.layout != "pairs" and source.repository != "kkteru/grail":
            names[source.name] = source.name
    return names


_FAMILIES = {"fb": "fb15k237", "wn": "wn18rr", "nl": "nell995"}


@dataclass(frozen=True, eq=False)
class Graph:
    """Ids (n, 3) of head, relation and tail of each split, numbered as they occur first.

    Relations of GraIL are numbered as they occur in training.
    """

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
            name: torch.stack([order[x[:, 0]], x[:, 1], order[x[:, 2]]], dim=1)
            for name, x in self.splits.items()
        }
        return Graph(splits, self.num_entities, self.num_relations)


def labels_of(name: str, checkouts: Path) -> dict[str, list[Triple]]:
    """Labeled triples by split.

    GraIL's graphs begin with "vocabulary", the training graph, for its relations.
    """
    by_name = {source.name: source for source in sources()}
    source = by_name[graph_names()[name]]
    found = {split: read_split(source, split, checkouts) for split in source.files}
    if source.name.endswith("-ind-merged"):
        training: GraphSource = by_name[source.name.removesuffix("-ind-merged")]
        found = {
            "vocabulary": [
                x for split in ("train", "valid") for x in read_split(training, split, checkouts)
            ]
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

    def __init__(
        self, checkout: Path, checkpoint: str, graph: Graph, digits: int | None = None
    ) -> None:
        models, tasks = _import(checkout)
        from torch_geometric.data import Data

        self.model = models.Ultra(
            {"class": "RelNBFNet", **_MODEL}, {"class": "EntityNBFNet", **_MODEL}
        ).eval()
        state = torch.load(
            checkout / "ckpts" / f"ultra_{checkpoint}.pth", map_location="cpu", weights_only=True
        )
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
        given = torch.stack(
            [self._representation(relation) for relation in relations[:, 0].tolist()]
        )
        scores = self.model.entity_model(self.data, given, batch)
        return scores if self.digits is None else scores.round(decimals=self.digits)

    def _representation(self, relation: int) -> Tensor:
        """Of all relations, given the one that is asked for: the same in all its queries."""
        if relation not in self.representations:
            query = torch.tensor([relation])
            self.representations[relation] = self.model.relation_model(
                self.data.relation_graph, query=query
            )[0]
        return self.representations[relation]


def rank(
    checkout: Path, checkpoint: str, graph: Graph, digits: int | None = None, batch_size: int = 16
) -> RankTable:
    """Zero-shot ranks of the test triples, both sides."""
    with torch.no_grad():
        model = Ultra(checkout, checkpoint, graph, digits)
        return rank_triples(
            model.tails,
            model.heads,
            graph.splits["test"],
            graph.known,
            batch_size=batch_size,
            progress=False,
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
    """ULTRA's models and tasks, with two sums of our own instead of code that must be compiled."""
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
    edges: Tensor,
    types: Tensor,
    weight: Tensor,
    relation: Tensor,
    input: Tensor,
    sum: str = "add",
    mul: str = "mul",
) -> Tensor:
    """Sum weight (E,) x relation (R, D)[type] x input (N, D)[from] over edges (to, from) of a node.

    One after the other in the order of (to, from), so that the result has the same bits everywhere.
    """
    if (sum, mul) != ("add", "mul"):
        raise NotImplementedError(f"the checkpoints sum products, not {sum!r} of {mul!r}")
    to, source = edges
    order = (to * (int(source.max()) + 1) + source).argsort()
    result = torch.zeros_like(input)
    arrays = [x.numpy() for x in (to[order], source[order], types[order], weight[order])]
    _add_messages(
        *arrays, relation.contiguous().numpy(), input.contiguous().numpy(), result.numpy()
    )
    return result


@njit  # type: ignore[untyped-decorator]
def _add_messages(
    to: Any, source: Any, types: Any, weight: Any, relation: Any, input: Any, result: Any
) -> None:
    for edge in range(len(to)):
        i, j, r, w = to[edge], source[edge], types[edge], weight[edge]
        for d in range(input.shape[1]):
            result[i, d] += w * (relation[r, d] * input[j, d])


RESULTS = Path(__file__).parent / "results" / "foundation.json"
VALUES = ("mrr", "hits_at_10", "amri", "adjusted_mrr", "adjusted_hits_at_10", "p_mrr", "tie_rate")
AVERAGED = ("mrr", "adjusted_mrr", "amri", "hits_at_10")
PRETRAINED = {
    "3g": ("fb15k237", "wn18rr", "codex-m"),
    "4g": ("fb15k237", "wn18rr", "codex-m", "nell-995"),
}
# numbers in the place of labels: nothing can be looked up elsewhere
UNLABELLED = ("hm-1k", "hm-3k", "hm-5k")
PAIRS = (("4g", "3g"), ("50g", "3g"), ("50g", "4g"))
SEEDS, DIGITS = range(5), (None, 4)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ultra", type=Path, metavar="PATH")
    parser.add_argument("--graphs", type=Path, metavar="CHECKOUTS")
    parser.add_argument("--tables", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=graph_names(),
        help="these graphs; without: all",
    )
    parser.add_argument("--checkpoints", nargs="+", choices=CHECKPOINTS, default=CHECKPOINTS)
    parser.add_argument(
        "--noise", nargs="+", metavar="NAME", choices=graph_names(), help="renumber their entities"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", default=RESULTS)
    parser.add_argument(
        "--report", action="store_true", help="run nothing, print the tables of what --json holds"
    )
    given = parser.parse_args()
    needed = {
        "--ultra": given.ultra or not given.noise,
        "--graphs": given.graphs or not given.ultra,
    }
    needed |= {"--tables": given.tables or given.noise or given.report}
    if missing := [option for option, there in needed.items() if not there]:
        parser.error(f"{' and '.join(missing)} must be given")
    if given.noise:
        write(beside(given.json, "noise"), noise(given.ultra, given.graphs, given.noise))
    elif given.ultra:
        given.tables.mkdir(parents=True, exist_ok=True)
        for name, checkpoint, table in tables(
            given.ultra, given.graphs, given.only or [*graph_names()], given.checkpoints
        ):
            table.save(given.tables / f"{name}.{checkpoint}.npz")
            print(
                f"{name} {checkpoint}: mrr {evaluate(table, metrics=['mrr'])['mrr']:.4f}",
                flush=True,
            )
    elif not given.report:
        study = RankStudy.open(given.tables / "{dataset}.{model}.npz")
        write(given.json, values(study))
        write(beside(given.json, "across"), across(study))
        if given.graphs:
            known = [name for name in study.datasets if name in graph_names()]
            write(beside(given.json, "graphs"), [facts(name, given.graphs) for name in known])
    if given.report:
        print(report(json.loads(given.json.read_text(encoding="utf-8"))))


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def beside(path: Path, part: str) -> Path:
    return path.with_name(f"{path.stem}_{part}{path.suffix}")


# --- values of tables
# -------------------------------------------------------------------------------------------------


def values(study: RankStudy) -> list[dict[str, Any]]:
    """An object per table."""
    order = study.datasets.index, study.models.index
    runs = sorted(study.runs.values(), key=lambda run: (order[0](run.dataset), order[1](run.model)))
    return [row_of(run.load(), run.dataset, run.model) for run in runs]


def row_of(table: RankTable, graph: str, checkpoint: str) -> dict[str, Any]:
    found = evaluate(table, metrics=[*VALUES, "z_mrr"])
    bounds = evaluate(
        table, metrics=["mrr", "hits_at_10"], rank_types=["optimistic", "pessimistic"]
    )
    sides = evaluate(table, metrics=["mrr", "hits_at_10", "amri"], sides=["head", "tail"])
    counts = table.ranks.num_candidates
    random = {
        f"random_{d.name}": ExactExpectation().moments(d, counts).mean
        for d in (MEAN_RECIPROCAL_RANK, hits_at(10))
    }
    about = {"graph": graph, "checkpoint": checkpoint, "tasks": table.num_tasks}
    about |= {"mean_candidates": counts.double().mean().item(), "max_candidates": int(counts.max())}
    return about | found | bounds | sides | random


def across(study: RankStudy) -> dict[str, Any]:
    """Averages of the checkpoints over graphs, which are the sample.

    Both sides of a triple are drawn together.
    """
    summary = study.summary(AVERAGED, cluster="sample_id")
    rows = [
        {"metric": metric, "checkpoint": model, "mean": row.value, "low": row.low, "high": row.high}
        | {
            "mean_rank": row.mean_rank,
            "best": row.best,
            "won": row.won,
            "better_than_random": row.better_than_random,
        }
        for (metric, model), row in summary.rows.items()
    ]
    return {"graphs": len(study.datasets), "rows": rows, "differences": list(differences(study))}


def differences(study: RankStudy) -> Iterable[dict[str, Any]]:
    pairs = [pair for pair in PAIRS if {*pair} <= {*study.models}]
    for metric in ("mrr", "amri"):
        for a, b in pairs:
            found = study.difference(a, b, metric, cluster="sample_id")
            yield {
                "metric": metric,
                "of": f"{a} - {b}",
                "better": sum(row.difference > 0 and row.p_adjusted <= 0.05 for row in found.rows),
                "worse": sum(row.difference < 0 and row.p_adjusted <= 0.05 for row in found.rows),
                "here": [found.here.difference, found.here.low, found.here.high],
                "by_graph": {
                    row.dataset: [row.difference, row.low, row.high, row.p_adjusted]
                    for row in found.rows
                },
            }


# --- the graphs themselves
# --------------------------------------------------------------------------------------------


def facts(name: str, checkouts: Path) -> dict[str, Any]:
    """Facts of a graph without a model: constants, a count, tests that were training elsewhere."""
    labelled = labels_of(name, checkouts)
    labelled.pop("vocabulary", None)
    graph, test = load_graph(name, checkouts), labelled["test"]
    tails = answers(triple for triples in labelled.values() for triple in triples)
    constant = [relation for relation, found in tails.items() if len(found) == 1]
    relations = {relation for _, relation, _ in test}
    table = frequency_table(graph)
    return {
        "graph": name,
        "dataset": graph_names()[name],
        "entities": graph.num_entities,
        "test_relations": len(relations),
        "constant_tails": len(relations & {*constant}),
        "constant_tail_tasks": sum(relation in constant for _, relation, _ in test) / len(test),
        "frequency": evaluate(table, metrics=["mrr", "hits_at_10", "amri"]),
        "seen": {
            c: None if name in UNLABELLED else seen(test, of, checkouts)
            for c, of in PRETRAINED.items()
        },
    }


def answers(triples: Iterable[Triple]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for _, relation, tail in triples:
        found.setdefault(relation, set()).add(tail)
    return found


def frequency_table(graph: Graph) -> RankTable:
    """Rank only by how often an entity is head or tail of the relation in the facts."""
    counts = torch.zeros(2, graph.num_relations, graph.num_entities)
    train = graph.splits["train"]
    for side, column in enumerate((0, 2)):
        counts[side].index_put_(
            (train[:, 1], train[:, column]), torch.ones(len(train)), accumulate=True
        )
    test = graph.splits["test"]
    return rank_triples(
        lambda h, r: counts[1][r], lambda r, t: counts[0][r], test, graph.known, progress=False
    )


def seen(test: list[Triple], names: Iterable[str], checkouts: Path) -> float:
    """Share of test triples that are facts of graphs that a checkpoint was trained on.

    All splits of NELL-995 are taken: ULTRA's has another split of the same triples. GraIL writes
    its labels with colons where others do not.
    """
    facts_of = [training_facts(name, checkouts) for name in names]
    return sum(any(plain(triple) in one for one in facts_of) for triple in test) / len(test)


@cache
def training_facts(name: str, checkouts: Path) -> set[Triple]:
    labelled = labels_of(name, checkouts)
    return {
        plain(x)
        for split, triples in labelled.items()
        for x in triples
        if name == "nell-995" or split == "train"
    }


def plain(triple: Triple) -> Triple:
    head, relation, tail = (
        label.replace(":", "_") if label.startswith("concept") else label for label in triple
    )
    return head, relation, tail


# --- noise
# ----------------------------------------------------------------------------------------------


def noise(checkout: Path, checkouts: Path, names: list[str]) -> list[dict[str, Any]]:
    """The same graph with renumbered entities: other orders of sums; scores rounded or not."""
    rows = []
    for name in names:
        graph = load_graph(name, checkouts)
        for checkpoint in CHECKPOINTS:
            for digits in DIGITS:
                for seed in SEEDS:
                    table = rank(checkout, checkpoint, graph.renumbered(seed), digits)
                    found = evaluate(table, metrics=["mrr", "tie_rate"])
                    found |= evaluate(
                        table, metrics=["mrr"], rank_types=["optimistic", "pessimistic"]
                    )
                    rows.append(
                        {"graph": name, "checkpoint": checkpoint, "digits": digits, "seed": seed}
                        | found
                    )
    return rows


# --- the page's tables
# ------------------------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]]) -> str:
    """A line per graph: random ranking, then MRR and AMRI of every checkpoint, in Markdown."""
    names = list(dict.fromkeys(row["graph"] for row in rows))
    by = {(row["graph"], row["checkpoint"]): row for row in rows}
    heads = ["graph", "tasks", "candidates", "MRR of random ranking"]
    heads += [f"{metric} {checkpoint}" for metric in ("MRR", "AMRI") for checkpoint in CHECKPOINTS]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    for name in names:
        one = next(row for row in rows if row["graph"] == name)
        cells = [
            name,
            f"{one['tasks']:,}",
            f"{one['mean_candidates']:,.0f}",
            f"{one['random_mrr']:.4f}",
        ]
        for metric in ("mrr", "amri"):
            found = [by.get((name, checkpoint)) for checkpoint in CHECKPOINTS]
            cells += ["" if row is None else f"{row[metric]:.3f}" for row in found]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
