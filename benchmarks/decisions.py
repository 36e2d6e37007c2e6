"""p-values with dependent ranking tasks, and margins: do the tests keep their size?

    python -m benchmarks.decisions [--draws 200] [--parts nulls,margins] [--json PATH]    simulate, and print the tables
    python -m benchmarks.decisions --report                                             write them into the docs

- nulls: share of p <= 5 % on the filtered test sets of Nations and Kinships (there a third of the draws), both sides,
  MRR: against uniform ranks, against 19 reference runs that are blind, and with errors clustered by query, by answer,
  or by both; for scorers that cannot know the answer (see benchmarks.blind_scorers), and for one that does a little:
  independent scores, those of test triples higher by half a standard deviation.
- margins: samples of 100 and 500 tasks from the populations of benchmarks.calibration; a share of the ranks of the
  first model is made the worst, so that it is worse by the margin (size), or none is (power): share called equivalent,
  called not inferior, and called equal by the plain way, a p-value above 5 %.

The populations are drawn five times as often as the graphs.
"""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.calibration import POPULATIONS, population, quietly
from benchmarks.case_study import Model, Splits, shipped
from benchmarks.pages import parser_of, replaced, sizes, write_json
from tqdm import tqdm

from torchrankmetrics import KnownTriples, Ranks, compare, evaluate, rank_triples
from torchrankmetrics.inference import (
    clustered_p_value,
    equivalence,
)

LEVEL, REFERENCES, FLIPS, NUM_CANDIDATES = 0.05, 19, 999, 14_505
OF_GRAPHS, MOST_SEEDS = 5, 40
ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "decisions.json"
CAPTIONS = {
    "nulls": "Share of p at most 5 % on the filtered test sets, in % (± is the standard error):",
    "margins": "With a margin of 3.3 standard errors, in % (5 % of wrong calls are allowed at the margin):",
}
PAGES = dict.fromkeys(CAPTIONS, "comparing.md") | {"nulls": "significance.md"}
Row = dict[str, Any]
Scorers = tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--parts", default=",".join(CAPTIONS))
    parser.add_argument("--report", action="store_true", help="simulate nothing, write the committed results into docs")
    given = parser.parse_args()
    if given.report:
        report(json.loads(RESULTS.read_text()))
        return
    torch.set_num_threads(1)
    results = simulated(given.draws, given.parts.split(","))
    for part, rows in results.items():
        print(table(part, rows) + "\n")
    if given.json:
        known = json.loads(given.json.read_text()) if given.json.exists() else {}
        write_json(given.json, known | results)  # parts that were not simulated stay as they are


def simulated(draws: int, parts: list[str]) -> dict[str, list[Row]]:
    """The rows of each part, the graphs drawn so often and the populations more often."""
    many = OF_GRAPHS * draws
    ways: dict[str, Callable[[], list[Row]]] = {
        "nulls": lambda: nulls(draws),
        "margins": lambda: margins(many),
    }
    return {part: ways[part]() for part in parts}


def report(results: dict[str, list[Row]]) -> None:
    """Write the tables into the pages that tell of them."""
    for part, page in PAGES.items():
        path = ROOT / "docs" / page
        begin = f"<!-- begin: python -m benchmarks.decisions --report ({part}) -->\n"
        path.write_text(replaced(path.read_text(), f"{CAPTIONS[part]}\n\n{table(part, results[part])}\n", begin))


def share(values: Any) -> Row:
    """A share and its standard error."""
    mean = float(np.mean(values))
    return {"share": mean, "error": math.sqrt(max(mean * (1 - mean), 0.25 / len(values)) / len(values))}


def nulls(draws: int) -> list[Row]:
    """How often p is at most 5 %."""
    rows = []
    for graph, splits in shipped().items():
        torch.manual_seed(0)
        sources = {"independent": noise(splits, 0.0), "blind": blind(splits)}
        sources |= {f"untrained {kind}": untrained(splits, kind) for kind in ("ComplEx", "TransE")}
        sources["knows a little"] = noise(splits, 0.5)
        number = draws if len(splits[2]) < 500 else max(1, draws // 3)
        uniform = Uniform()
        for scorer, source in sources.items():
            drawn = tqdm(range(number), desc=f"{graph} {scorer}")
            found = [rejections(splits, next(source), uniform) for _ in drawn]
            for null in found[0]:
                rejected = [one[null] for one in found]
                rows.append({"graph": graph, "scorer": scorer, "null": null, "draws": number, **share(rejected)})
    return rows


class Uniform:
    """Whether the MRR of ranks among the same candidates has p <= 5 %; asked only where earlier answers do not tell."""

    def __init__(self) -> None:
        self.kept, self.rejected = -math.inf, math.inf  # the largest value that was, the smallest that was

    def rejects(self, ranks: Ranks) -> bool:
        """Whether these ranks have."""
        value = evaluate(ranks, metrics=["mrr"])["mrr"]
        if self.kept < value < self.rejected:
            if evaluate(ranks, metrics=["p_mrr"])["p_mrr"] <= LEVEL:
                self.rejected = value
            else:
                self.kept = value
        return value >= self.rejected


def rejections(splits: Splits, scorers: Scorers, uniform: Uniform) -> dict[str, bool]:
    """Whether each null is rejected by MRR."""
    entities, relations = sizes(splits)
    h, r, t = splits[2].T
    query = torch.cat([h * relations + r, (entities + t) * relations + r]).numpy()
    answer = torch.cat([t, h]).numpy()
    ignorant = blind(splits)

    def all_p() -> dict[str, float]:
        known = KnownTriples(*splits, num_entities=entities)
        ranks = rank_triples(*scorers, splits[2], known, progress=False)
        blind_runs = (rank_triples(*next(ignorant), splits[2], known, progress=False) for _ in range(REFERENCES))
        mrr, *others = (evaluate(run, metrics=["mrr"])["mrr"] for run in (ranks, *blind_runs))
        return {
            "uniform": 0.0 if uniform.rejects(ranks.ranks) else 1.0,
            "blind runs": (1 + sum(other >= mrr for other in others)) / (1 + REFERENCES),
            "by query": clustered_p_value(ranks, "mrr", cluster=query),
            "by answer": clustered_p_value(ranks, "mrr", cluster=answer),
            "by both": clustered_p_value(ranks, "mrr", cluster=query, second_cluster=answer),
        }

    return {null: p <= LEVEL for null, p in quietly(all_p)[0].items()}


def noise(splits: Splits, skill: float) -> Iterator[Scorers]:
    """A score of its own for every triple; those of the test triples are higher by so much."""
    entities, relations = sizes(splits)
    h, r, t = splits[2].T
    while True:
        tails, heads = torch.randn(entities, relations, entities), torch.randn(entities, relations, entities)
        tails[h, r, t] += skill
        heads[t, r, h] += skill
        yield (lambda h, r, of=tails: of[h, r]), (lambda r, t, of=heads: of[t, r])


def blind(splits: Splits) -> Iterator[Scorers]:
    entities = sizes(splits)[0]
    while True:
        score = torch.rand(entities)
        yield (lambda h, r, of=score: of.expand(len(h), -1)), (lambda r, t, of=score: of.expand(len(t), -1))


def untrained(splits: Splits, kind: str) -> Iterator[Scorers]:
    entities, relations = sizes(splits)
    while True:
        model = Model(kind, entities, relations, 64, 0.2).eval()
        yield (
            lambda h, r, of=model: of.compare(of.query(h, r, True), of.entities),
            lambda r, t, of=model: of.compare(of.query(t, r, False), of.entities),
        )


def margins(draws: int) -> list[Row]:
    """Share of samples whose models are called equivalent, not inferior, and equal by the plain way."""
    rows = []
    for name in POPULATIONS:
        pool = population(name, equal=True)
        for size in (100, 500):
            rng = np.random.default_rng([7, size, POPULATIONS.index(name)])
            for metric, f in (("mrr", np.reciprocal), ("hits@10", lambda r: (r <= 10) * 1.0)):
                x = f(pool.astype(float))
                margin = 3.3 * float((x[:, 0] - x[:, 1]).std()) / math.sqrt(size)  # power is about 90 %
                # a share of the tasks has its first rank made the worst, so that the truth is the margin
                moved = margin / float(x[:, 0].mean() - f(np.array([float(NUM_CANDIDATES)]))[0])
                if moved > 1:
                    continue  # no first model is so much worse
                for kind in ("size", "power"):
                    called: dict[str, list[bool]] = {"equivalent": [], "not inferior": [], "plain": []}
                    for _ in tqdm(range(draws), desc=f"{metric} {name} {size} {kind}"):
                        drawn = pool[rng.integers(0, len(pool), size)]
                        if kind == "size":
                            worse = rng.random(size) < moved
                            drawn = np.stack([np.where(worse, NUM_CANDIDATES, drawn[:, 0]), drawn[:, 1]], 1)
                        pair = ranks_of(drawn)
                        found = quietly(partial(equivalence, *pair, metric, margin=margin, permutations=FLIPS))[0]
                        called["equivalent"].append(found.equivalent)
                        called["not inferior"].append(found.not_inferior)
                        p_value = quietly(partial(compare, *pair, metric, permutations=FLIPS))[0].p_value
                        called["plain"].append(p_value > LEVEL)
                    about = {"metric": metric, "population": name, "tasks": size, "kind": kind, "margin": margin}
                    rows += [about | {"called": way, "draws": draws} | share(told) for way, told in called.items()]
    return rows


def ranks_of(drawn: np.ndarray) -> list[Ranks]:
    """Ranks of the models in the columns."""
    return [Ranks(column.copy(), None, NUM_CANDIDATES) for column in drawn.T]


def table(part: str, rows: list[Row]) -> str:
    """Write a Markdown table of one part."""
    draws = str(max(row["draws"] for row in rows))
    if part == "nulls":
        nulls = list(dict.fromkeys(row["null"] for row in rows))
        head = ["graph", "scorer", "draws", *nulls]
        body = wide(rows, ("graph", "scorer", "draws"), "null")
    else:
        head = ["metric", "population", "tasks", "margin"]
        head += [
            f"{way}, {true}"
            for true in ("worse by the margin", "no difference")
            for way in ("equivalent", "not inferior", "p > 5 %")
        ]
        told = [row | {"margin": f"{row['margin']:.3f}", "column": f"{row['kind']} {row['called']}"} for row in rows]
        body = wide(told, ("metric", "population", "tasks", "margin"), "column")
    lines = [head, ["---"] * len(head), *body]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text if part == "nulls" else f"{text}\n\n{int(draws):,} draws a line."


def wide(rows: list[Row], key: tuple[str, ...], column: str) -> list[list[str]]:
    """A line per key with the shares of its rows, in the order in which they come."""
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        lines.setdefault(tuple(str(row[name]) for name in key), {})[row[column]] = percent(row)
    return [[*names, *shares.values()] for names, shares in lines.items()]


def percent(row: Row) -> str:
    """A share with its standard error."""
    return f"{100 * row['share']:.1f} ± {100 * row['error']:.1f}"


if __name__ == "__main__":
    main()
