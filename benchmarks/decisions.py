"""Nulls that keep dependence, margins, plans and bounds of sampled ranks: do they keep what they promise?

    python -m benchmarks.decisions [--draws 200] [--json PATH]     simulate, and print the tables
    python -m benchmarks.decisions --report                        write them into the docs

- dealt: share of p <= 5 % on the filtered test sets of Nations and Kinships, both sides, MRR: against uniform ranks,
  against triples dealt anew (199 deals), and with errors clustered by query, by answer, or by both; for scorers that
  cannot know the answer (see benchmarks.blind_scorers), and for one that does a little: independent scores, those of
  test triples higher by half a standard deviation.
- margins: samples of 100 and 500 tasks from the populations of benchmarks.calibration; the second model has some of its
  ranks made the worst, so that the difference is the margin (size), or not (power): share called equivalent.
- superiority: coverage of its 95 % interval in the same populations.
- plans: power promised by a pilot of 200 tasks for the tasks it asks for, and the share of tests that found it.
- bounds: coverage and mean width of full_bounds of level 95 % from 100 of 1,000 negatives.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.calibration import POPULATIONS, population, quietly, replaced
from benchmarks.case_study import Model, Splits, shipped
from tqdm import tqdm

from torchrankmetrics import KnownTriples, Ranks, compare, evaluate, rank_answers, rank_triples
from torchrankmetrics.inference import equivalence, full_bounds, plan, superiority
from torchrankmetrics.significance import clustered_p_value, permutation_p_value

LEVEL, DEALS, FLIPS, NUM_CANDIDATES = 0.05, 199, 999, 14_505
ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "decisions.json"
PAGES = {"dealt": "significance.md", "margins": "comparing.md", "superiority": "comparing.md", "plans": "comparing.md"}
PAGES["bounds"] = "sampled.md"
CAPTIONS = {
    "dealt": "Share of p at most 5 % on the filtered test sets, in % (± is the standard error):",
    "margins": "Share called equivalent, in %, with a margin of 3.3 standard errors (5 % is allowed at the margin):",
    "superiority": "Coverage of the 95 % interval of superiority, in %:",
    "plans": "What tests found with the tasks that a pilot of 200 asked for, for a power of 80 %:",
    "bounds": "How often bounds of level 95 % held, in %, and how wide they were:",
}
Row = dict[str, Any]
Scorers = tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--report", action="store_true", help="simulate nothing, write the committed results into docs")
    given = parser.parse_args()
    if given.report:
        results = json.loads(RESULTS.read_text())
        for part, page in PAGES.items():
            path = ROOT / "docs" / page
            begin = f"<!-- begin: python -m benchmarks.decisions --report ({part}) -->\n"
            shown = f"{CAPTIONS[part]}\n\n{table(part, results[part])}\n"
            path.write_text(replaced(path.read_text(), shown, begin))
        return
    torch.set_num_threads(1)
    results = {
        "dealt": dealt(given.draws),
        "margins": margins(given.draws),
        "superiority": coverage(given.draws),
        "plans": plans(given.draws),
        "bounds": bounds(given.draws),
    }
    for part, rows in results.items():
        print(table(part, rows) + "\n")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def share(values: Any) -> Row:
    """A share and its standard error."""
    mean = float(np.mean(values))
    return {"share": mean, "error": math.sqrt(max(mean * (1 - mean), 0.25 / len(values)) / len(values))}


def dealt(draws: int) -> list[Row]:
    """How often p is at most 5 %."""
    rows = []
    for graph, splits in shipped().items():
        torch.manual_seed(0)
        sources = {"independent": noise(splits, 0.0), "blind": blind(splits)}
        sources |= {f"untrained {kind}": untrained(splits, kind) for kind in ("ComplEx", "TransE")}
        sources["knows a little"] = noise(splits, 0.5)
        number = draws if len(splits[2]) < 500 else max(1, draws // 3)  # a draw costs the square of a relation
        for scorer, source in sources.items():
            found = [p_values(splits, next(source), draw) for draw in tqdm(range(number), desc=f"{graph} {scorer}")]
            for null in found[0]:
                rejected = [one[null] <= LEVEL for one in found]
                rows.append({"graph": graph, "scorer": scorer, "null": null, "draws": number, **share(rejected)})
    return rows


def p_values(splits: Splits, scorers: Scorers, seed: int) -> dict[str, float]:
    """P of MRR by every null."""
    entities, relations = (int(torch.cat(splits)[:, columns].max()) + 1 for columns in ([0, 2], [1]))
    h, r, t = splits[2].T
    query = torch.cat([h * relations + r, (entities + t) * relations + r]).numpy()
    answer = torch.cat([t, h]).numpy()

    def all_p() -> dict[str, float]:
        others, known = (KnownTriples(*splits[:k], num_entities=entities) for k in (2, 3))
        answers = rank_answers(*scorers, splits[2], others, progress=False)
        ranks = rank_triples(*scorers, splits[2], known, progress=False)
        return {
            "uniform": evaluate(ranks.ranks, metrics=["p_mrr"])["p_mrr"],
            "dealt": permutation_p_value(answers, "mrr", permutations=DEALS, seed=seed),
            "by query": clustered_p_value(ranks, "mrr", cluster=query),
            "by answer": clustered_p_value(ranks, "mrr", cluster=answer),
            "by both": clustered_p_value(ranks, "mrr", cluster=query, second_cluster=answer),
        }

    return quietly(all_p)[0]


def noise(splits: Splits, skill: float) -> Iterator[Scorers]:
    """A score of its own for every triple; those of the test triples are higher by so much."""
    entities, relations = (int(torch.cat(splits)[:, columns].max()) + 1 for columns in ([0, 2], [1]))
    h, r, t = splits[2].T
    while True:
        tails, heads = torch.randn(entities, relations, entities), torch.randn(entities, relations, entities)
        tails[h, r, t] += skill
        heads[t, r, h] += skill
        yield (lambda h, r, of=tails: of[h, r]), (lambda r, t, of=heads: of[t, r])


def blind(splits: Splits) -> Iterator[Scorers]:
    entities = int(torch.cat(splits)[:, [0, 2]].max()) + 1
    while True:
        score = torch.rand(entities)
        yield (lambda h, r, of=score: of.expand(len(h), -1)), (lambda r, t, of=score: of.expand(len(t), -1))


def untrained(splits: Splits, kind: str) -> Iterator[Scorers]:
    entities, relations = (int(torch.cat(splits)[:, columns].max()) + 1 for columns in ([0, 2], [1]))
    while True:
        model = Model(kind, entities, relations, 64, 0.2).eval()
        yield (
            lambda h, r, of=model: of.compare(of.query(h, r, True), of.entities),
            lambda r, t, of=model: of.compare(of.query(t, r, False), of.entities),
        )


def margins(draws: int) -> list[Row]:
    """Share of samples whose models are called equivalent."""
    rows = []
    for name in POPULATIONS:
        pool = population(name, equal=True)
        for size in (100, 500):
            rng = np.random.default_rng([7, size, POPULATIONS.index(name)])
            for metric, f in (("mrr", np.reciprocal), ("hits@10", lambda r: (r <= 10) * 1.0)):
                x = f(pool.astype(float))
                margin = 3.3 * float((x[:, 0] - x[:, 1]).std()) / math.sqrt(size)  # power is about 90 %
                # a share of the tasks has its second rank made the worst, so that the truth is the margin
                moved = margin / float(x[:, 1].mean() - f(np.array([float(NUM_CANDIDATES)]))[0])
                if moved > 1:
                    continue  # no second model is so much worse
                for kind in ("size", "power"):
                    called = []
                    for _ in tqdm(range(draws), desc=f"{metric} {name} {size} {kind}"):
                        drawn = pool[rng.integers(0, len(pool), size)]
                        if kind == "size":
                            worse = rng.random(size) < moved
                            drawn = np.stack([drawn[:, 0], np.where(worse, NUM_CANDIDATES, drawn[:, 1])], 1)
                        a, b = (Ranks(column.copy(), None, NUM_CANDIDATES) for column in drawn.T)
                        ask = partial(equivalence, a, b, metric, margin=margin, permutations=FLIPS)
                        found = quietly(ask)[0]
                        called.append(found.equivalent)
                    about = {"metric": metric, "population": name, "tasks": size, "kind": kind, "draws": draws}
                    rows.append(about | {"margin": margin} | share(called))
    return rows


def coverage(draws: int) -> list[Row]:
    """How often the interval of superiority holds the truth."""
    rows = []
    for name in POPULATIONS:
        pool = population(name, equal=False)
        gap = pool[:, 1] - pool[:, 0]
        truth = float(((gap > 0) + 0.5 * (gap == 0)).mean())
        for size in (30, 100, 500):
            rng = np.random.default_rng([8, size, POPULATIONS.index(name)])
            held = []
            for _ in range(draws):
                drawn = pool[rng.integers(0, len(pool), size)]
                found = superiority(*(Ranks(column.copy(), None, NUM_CANDIDATES) for column in drawn.T))
                held.append(found.low <= truth <= found.high)
            rows.append({"population": name, "tasks": size, "truth": truth, "draws": draws, **share(held)})
    return rows


def plans(draws: int) -> list[Row]:
    """Power that a pilot promises, and what tests find."""
    rows = []
    for name in POPULATIONS:
        pool = population(name, equal=False)
        x = 1 / pool
        truth = float((x[:, 0] - x[:, 1]).mean())
        rng = np.random.default_rng([9, POPULATIONS.index(name)])
        asked, found = [], []
        for draw in tqdm(range(draws), desc=f"plan {name}"):
            pilot = (Ranks(c.copy(), None, NUM_CANDIDATES) for c in pool[rng.integers(0, len(pool), 200)].T)
            tasks = plan(*pilot, "mrr").tasks_for(truth, 0.8)
            asked.append(tasks)
            drawn = pool[rng.integers(0, len(pool), int(min(tasks, 1e6)))]
            a, b = (Ranks(c.copy(), None, NUM_CANDIDATES) for c in drawn.T)
            result = quietly(partial(compare, a, b, "mrr", permutations=FLIPS, seed=draw))[0]
            found.append(result.p_value <= LEVEL)
        quartiles = np.quantile(asked, [0.25, 0.5, 0.75]).round().astype(int).tolist()
        rows.append({"population": name, "difference": truth, "tasks": quartiles, "draws": draws, **share(found)})
    return rows


def bounds(draws: int) -> list[Row]:
    """How often the bounds hold the full value, and how wide they are."""
    rows, N, m, size = [], 1001, 100, 2000
    for name in POPULATIONS:
        pool = np.minimum(population(name, equal=True)[:, 0], N)
        rng = np.random.default_rng([10, POPULATIONS.index(name)])
        held: dict[str, list[bool]] = {}
        width: dict[str, list[float]] = {}
        for _ in tqdm(range(min(draws, 50)), desc=f"bounds {name}"):
            full = pool[rng.integers(0, len(pool), size)]
            ranks = Ranks(1 + rng.hypergeometric(full - 1, N - full, m), None, m + 1)
            for metric in ("mr", "mrr", "hits@10"):
                found = full_bounds(ranks, metric, num_candidates=N)
                truth = evaluate(full, N, [metric])[found.metric]
                held.setdefault(found.metric, []).append(found.low <= truth <= found.high)
                width.setdefault(found.metric, []).append(found.high - found.low)
        for metric, values in held.items():
            about = {"population": name, "metric": metric, "width": float(np.mean(width[metric]))}
            rows.append(about | {"draws": len(values), **share(values)})
    return rows


def table(part: str, rows: list[Row]) -> str:
    """Write a Markdown table of one part."""
    percent = lambda row: f"{100 * row['share']:.1f} ± {100 * row['error']:.1f}"  # noqa: E731
    if part == "dealt":
        nulls = list(dict.fromkeys(row["null"] for row in rows))
        cells: dict[tuple[str, ...], dict[str, str]] = {}
        for row in rows:
            cells.setdefault((row["graph"], row["scorer"], str(row["draws"])), {})[row["null"]] = percent(row)
        head = ["graph", "scorer", "draws", *nulls]
        body = [[*key, *(found[null] for null in nulls)] for key, found in cells.items()]
    elif part == "margins":
        head = ["metric", "population", "tasks", "margin", "called equivalent at the margin", "without a difference"]
        pair = zip(rows[::2], rows[1::2], strict=True)
        body = [
            [a["metric"], a["population"], str(a["tasks"]), f"{a['margin']:.3f}", percent(a), percent(b)]
            for a, b in pair
        ]
    elif part == "superiority":
        head = ["population", "tasks", "truth", "coverage"]
        body = [[row["population"], str(row["tasks"]), f"{row['truth']:.3f}", percent(row)] for row in rows]
    elif part == "plans":
        head = ["population", "difference of MRR", "tasks asked for (quartiles)", "found"]
        body = [
            [row["population"], f"{row['difference']:.4f}", ", ".join(map(str, row["tasks"])), percent(row)]
            for row in rows
        ]
    else:
        head = ["population", "metric", "mean width", "held"]
        body = [[row["population"], row["metric"], f"{row['width']:.3f}", percent(row)] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
