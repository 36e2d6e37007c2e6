"""Case study of Hoyt et al. 2022 (arXiv 2203.07544, section 4.3, Figure 1) with p-values.

Nations and Kinships, which come with pykeen:
    python -m benchmarks.case_study [--json PATH] [--plot PATH]
Graphs, folders of train.tsv, valid.tsv and test.tsv:
    python -m benchmarks.case_study FOLDER ... --epochs N --json PATH
Print the results in PATH:
    python -m benchmarks.case_study --report --json PATH [--plot PATH]

ComplEx, RotatE, TransE and TuckER, trained in both directions with a softmax over all entities
(with more entities over the target and --negatives sampled ones), and an untrained ComplEx.
Filtered by all splits, both sides. With --json every run is added to the file and replaces an
earlier run of the same graph and model.

The benchmark tests at 5% whether results on small graphs are better than random ranking: for these
models, and for those of the paper by their published MRR. p-values assume independent tasks;
relevant items of one query are dependent.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from benchmarks.timing import read_splits, sizes
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout

from torchrankmetrics import KnownTriples, RankTable, evaluate, rank_triples
from torchrankmetrics.definitions.tasks import MEAN_RANK, MEAN_RECIPROCAL_RANK
from torchrankmetrics.null.p_values import log_p_value

MODELS = ("ComplEx", "RotatE", "TransE", "TuckER")
UNTRAINED = "untrained"
LEVEL = 0.05
SMALL = 1000  # entities
METRICS = (
    "mrr",
    "adjusted_mrr",
    "z_mrr",
    "mr",
    "amri",
    "z_mr",
    "hits@1",
    "hits@10",
    "adjusted_hits_at_10",
)
# from collated/collated.tsv of github.com/pykeen/ranking-metrics-manuscript: the same 402 and 2148
# tasks as here
PUBLISHED = {
    "nations": {"ComplEx": 0.4304, "RotatE": 0.5116, "TransE": 0.4027, "TuckER": 0.7556},
    "kinships": {"ComplEx": 0.6618, "RotatE": 0.7686, "TransE": 0.4385, "TuckER": 0.8635},
}
Splits = list[Tensor]


class Model(torch.nn.Module):
    """A query (entity, relation, direction) becomes a vector that is compared with every entity.

    The comparison is a product or a distance.
    """

    def __init__(
        self, kind: str, num_entities: int, num_relations: int, dim: int, drop: float
    ) -> None:
        super().__init__()
        self.kind, self.dropout = kind, drop
        scale = 0.3 if kind == "ComplEx" else 1 / math.sqrt(dim)
        self.entities = torch.nn.Parameter(scale * torch.randn(num_entities, dim))
        width = dim // 2 if kind == "RotatE" else min(dim, 32) if kind == "TuckER" else dim
        self.relations = torch.nn.Parameter(
            (1 if kind == "RotatE" else scale) * torch.randn(num_relations, width)
        )
        if kind == "TuckER":
            self.core = torch.nn.Parameter(torch.randn(width, dim, dim) / math.sqrt(dim))
        self.log_scale = torch.nn.Parameter(
            torch.tensor(math.log(5.0) if self.by_distance else 0.0)
        )

    @property
    def by_distance(self) -> bool:
        """Whether entities are compared with a query by their distance."""
        return self.kind in ("TransE", "RotatE")

    def query(self, entity: Tensor, relation: Tensor, forwards: bool) -> Tensor:
        """Vectors (B, dim) that the missing entity should be like.

        This is the tail of (entity, relation, ?), or the head of (?, relation, entity).
        """
        e, r = dropout(self.entities[entity], self.dropout, self.training), self.relations[relation]
        if self.kind == "TransE":
            return e + r if forwards else e - r
        if self.kind == "TuckER":
            core = (r @ self.core.flatten(1)).view(-1, *self.core.shape[1:])
            return torch.einsum("bi,bij->bj" if forwards else "bj,bij->bi", e, core)
        left = torch.complex(*e.chunk(2, 1))
        right = (
            torch.polar(torch.ones_like(r), r)
            if self.kind == "RotatE"
            else torch.complex(*r.chunk(2, 1))
        )
        product = left * (right if forwards else right.conj())
        return torch.cat([product.real, product.imag], 1)

    def compare(self, query: Tensor, entities: Tensor, *, paired: bool = False) -> Tensor:
        """Scores (B, n) from (B, dim) and (n, dim); ``paired``: (B, 1) from n = B.

        Distances are without |query|^2, which does not change the order.
        """
        product = (query * entities).sum(1, keepdim=True) if paired else query @ entities.T
        if not self.by_distance:
            return product
        size = entities.square().sum(1)
        return self.log_scale.exp() * (2 * product - (size[:, None] if paired else size))


def train(
    model: Model, triples: Tensor, epochs: int, batch_size: int, negatives: int, lr: float
) -> None:
    num_entities = len(model.entities)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=lr, initial_accumulator_value=1e-6)
    for epoch in range(epochs):
        total = 0.0
        for batch in triples[torch.randperm(len(triples))].split(batch_size):
            h, r, t = batch.T
            loss = torch.zeros(())
            for entity, answer, forwards in ((h, t, True), (t, h, False)):
                query = model.query(entity, r, forwards)
                if num_entities <= negatives:
                    loss = loss + cross_entropy(model.compare(query, model.entities), answer)
                    continue
                drawn = torch.randint(num_entities, (negatives,))
                own = model.compare(query, model.entities[answer], paired=True)
                wrong = model.compare(query, model.entities[drawn]).masked_fill(
                    drawn == answer[:, None], -math.inf
                )
                loss = loss + cross_entropy(torch.cat([own, wrong], 1), torch.zeros_like(answer))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        if epoch % max(1, epochs // 10) == 0 or epoch == epochs - 1:
            print(f"  epoch {epoch + 1}: loss {total / len(triples):.3f}", flush=True)


def rank(model: Model, splits: Splits) -> RankTable:
    model.eval()
    known = KnownTriples(*splits, num_entities=len(model.entities))
    with torch.no_grad():
        return rank_triples(
            lambda h, r: model.compare(model.query(h, r, True), model.entities),
            lambda r, t: model.compare(model.query(t, r, False), model.entities),
            splits[2],
            known,
        )


def summarize(table: RankTable, published: float | None) -> dict[str, Any]:
    """Values, z-scores, and log10 of p-values."""
    counts = table.ranks.num_candidates
    values = evaluate(table, metrics=list(METRICS))
    values = {key: value for key, value in values.items() if math.isfinite(value)}
    for definition in (MEAN_RECIPROCAL_RANK, MEAN_RANK):
        name = definition.name
        log_p = log_p_value(definition, values[name], counts.numpy())
        values[f"log10_p_{name}"] = log_p / math.log(10)
    if published is not None:
        log_p = log_p_value(MEAN_RECIPROCAL_RANK, published, counts.numpy())
        values |= {"published_mrr": published, "log10_p_published_mrr": log_p / math.log(10)}
    return {
        "tasks": len(table),
        "candidates": [int(counts.min()), float(counts.double().mean()), int(counts.max())],
        **values,
    }


def study(name: str, splits: Splits, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    entities, relations = sizes(splits)
    torch.manual_seed(given.seed)
    epochs = 0 if kind == UNTRAINED else given.epochs
    model = Model(
        MODELS[0] if kind == UNTRAINED else kind, entities, relations, given.dim, given.dropout
    )
    print(f"{name}, {kind}: {epochs} epochs on {len(splits[0])} triples", flush=True)
    before = time.perf_counter()
    train(model, splits[0], epochs, given.batch_size, given.negatives, given.lr)
    seconds = time.perf_counter() - before
    setting = {
        key: getattr(given, key)
        for key in ("dim", "lr", "batch_size", "negatives", "dropout", "seed")
    }
    return {
        "graph": name,
        "entities": entities,
        "model": kind,
        **summarize(rank(model, splits), PUBLISHED.get(name, {}).get(kind)),
        "epochs": epochs,
        "training_seconds": round(seconds, 1),
        **setting,
    }


def report(runs: list[dict[str, Any]]) -> None:
    print(
        f"\n{'graph':12} {'model':10} {'MRR':>7} {'AMRR':>7} {'AMRI':>7} {'z(MRR)':>9} "
        f"{'p(MRR)':>12} {'p(MR)':>12}  "
        "different from random"
    )
    for run in runs:
        print(
            f"{run['graph']:12} {run['model']:10} {run['mrr']:7.4f} {run['adjusted_mrr']:7.4f} "
            f"{run['amri']:7.4f} {run['z_mrr']:9.2f} {power(run['log10_p_mrr']):>12} "
            f"{power(run['log10_p_mr']):>12}  {'yes' if significant(run) else 'no'}"
        )
    small = [run for run in runs if run["entities"] <= SMALL and run["model"] != UNTRAINED]
    for whose, key in (("trained here", "mrr"), ("of the paper", "published_mrr")):
        asked = [run for run in small if key in run]
        if not asked:
            continue
        print(
            f"\nGraphs of up to {SMALL} entities, models {whose}: is the MRR significantly "
            "different from random?"
        )
        for run in asked:
            answer = (
                f"p = {power(run[f'log10_p_{key}'])}: {'yes' if significant(run, key) else 'no'}"
            )
            print(f"  {run['graph']:10} {run['model']:8} {run[key]:.4f}  {answer}")
        not_different = sum(not significant(run, key) for run in asked)
        answer = "yes" if 2 * not_different > len(asked) else "no"
        print(f"  Most are not: {answer}, {not_different} of {len(asked)} are not.")


def significant(run: dict[str, Any], key: str = "mrr") -> bool:
    return bool(run[f"log10_p_{key}"] <= math.log10(LEVEL))


def power(log10: float) -> str:
    return f"{10**log10:.3g}" if log10 > -300 else f"1e{log10:.0f}"


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    graphs = list(dict.fromkeys(run["graph"] for run in runs))
    kinds = [kind for kind in (UNTRAINED, *MODELS) if any(run["model"] == kind for run in runs)]
    figure, panels = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    for panel, (key, title) in zip(
        panels,
        {"mrr": "MRR", "adjusted_mrr": "AMRR", "z_mrr": "z(MRR), p-value above"}.items(),
        strict=True,
    ):
        for i, kind in enumerate(kinds):
            mine = [run for run in runs if run["model"] == kind]
            place = [
                graphs.index(run["graph"]) + (i - (len(kinds) - 1) / 2) * 0.8 / len(kinds)
                for run in mine
            ]
            color = "0.6" if kind == UNTRAINED else f"C{i}"
            panel.bar(place, [run[key] for run in mine], 0.75 / len(kinds), label=kind, color=color)
            if key == "z_mrr":
                for x, run in zip(place, mine, strict=True):
                    panel.annotate(
                        f"{power(run['log10_p_mrr'])}",
                        (x, max(run[key], 0)),
                        (0, 3),
                        textcoords="offset points",
                        ha="center",
                        rotation=90,
                        fontsize=7,
                    )
        panel.axhline(0, color="black", linewidth=0.6)
        panel.set_xticks(range(len(graphs)), graphs)
        panel.set_title(title)
    panels[2].set_yscale("symlog", linthresh=2)
    z = [run["z_mrr"] for run in runs]
    panels[2].set_ylim(min(-2, 2 * min(z)), 100 * max(z))  # room for the p-values
    panels[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"drawn: {path}")


def shipped() -> dict[str, Splits]:
    from pykeen.datasets import Kinships, Nations

    return {
        name: [part.mapped_triples for part in (data.training, data.validation, data.testing)]
        for name, data in (("nations", Nations()), ("kinships", Kinships()))
    }


def add(path: Path | None, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of a file; the given ones replace earlier ones; graphs by size, models in order."""
    merged = {
        (run["graph"], run["model"]): run
        for run in (json.loads(path.read_text()) if path and path.exists() else [])
    }
    merged |= {(run["graph"], run["model"]): run for run in runs}
    order = (UNTRAINED, *MODELS)
    result = sorted(
        merged.values(), key=lambda run: (run["entities"], run["graph"], order.index(run["model"]))
    )
    if path and runs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--models", nargs="+", choices=(*MODELS, UNTRAINED), default=[UNTRAINED, *MODELS]
    )
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument(
        "--negatives", type=int, default=1024, help="drawn entities in the softmax of larger graphs"
    )
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    if given.report and (given.json is None or not given.json.exists()):
        parser.error(f"--report needs --json with a file of runs, got {given.json}")
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    if not given.report:
        graphs = {folder.name: read_splits(folder) for folder in given.folders} or shipped()
        for name, splits in graphs.items():
            for kind in given.models:
                runs.append(study(name, splits, kind, given))
                add(given.json, runs)
    runs = add(given.json, runs)
    report(runs)
    if given.plot:
        draw(runs, given.plot)


if __name__ == "__main__":
    main()
