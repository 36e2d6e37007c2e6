"""Evaluations that end where something is decided: how often they are wrong, and what they save.

    python -m benchmarks.decided [--draws 200] [--epochs 40] [--tables FOLDER] [--data FOLDER] [--json PATH]
    python -m benchmarks.decided --report     simulate nothing, write the committed results into docs

All of MRR at alpha = 5 %; t is the paired difference of all tasks over its standard error if they were drawn.

- errors: share of random orders in which a difference is found though there is none: differences in four simulated
  populations of 1,000 tasks, and those of the checkpoints in --tables (``<graph>.<checkpoint>.npz``), with mean 0.
  Bets and empirical Bernstein look after every query; "t-tests" are made at 50 looks; "fixed 20 %" is one t-test.
- shares: share of the tasks until it is decided, median over orders, and how often the worse model is named; for the
  fixed 20 % of the tasks, how often the worse one has the better value there.
- draws: share of the queries until it is decided, on graphs in --data whose tables are in --tables: tasks drawn one by
  one (a query is scored when the first of its tasks is drawn), queries drawn with the odds of their tasks, and
  queries drawn uniformly, bounded by the largest.
- training: ComplEx on the graphs that PyKEEN ships, validated after every epoch against the best so far: queries scored
  (of both models) for every query of full validation, and the epoch that is chosen.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.calibration import quietly
from benchmarks.case_study import Model, Splits, shipped
from benchmarks.pages import parser_of, replaced, sizes, write_json
from scipy import stats
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from torchrankmetrics import KnownTriples, RankTable, evaluate, rank_sequentially, rank_triples
from torchrankmetrics.theory.inference.sequences import Drawn, log_capital

ALPHA, LOOKS, FIXED = 0.05, 50, 0.2
CHECKPOINTS = (("4g", "3g"), ("50g", "3g"), ("50g", "4g"))
SHARED = Path(__file__).parents[2] / "shared" / "data"
PAGE = Path(__file__).parents[1] / "docs" / "deciding.md"
RESULTS = Path(__file__).parent / "results" / "decided.json"
CAPTIONS = {
    "errors": "A difference is found though there is none, in % of random orders (5 % is allowed):",
    "shares": "Share of the tasks until it is decided, in % (median), and how often the worse model is named, in %:",
    "draws": "Share of the queries until it is decided, in % (median):",
    "training": "Validation after every epoch, of ComplEx:",
}
Row = dict[str, Any]
Array = np.ndarray[Any, np.dtype[np.float64]]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--tables", type=Path, default=SHARED / "ultra")
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--report", action="store_true", help="simulate nothing, write the committed results into docs")
    given = parser.parse_args()
    if given.report:
        PAGE.write_text(reported(PAGE.read_text(), json.loads(RESULTS.read_text())))
        return
    torch.set_num_threads(1)
    if not given.tables.is_dir():
        print(f"{given.tables} is not there: simulated populations only")
    real = list(pairs(given.tables))
    results = {
        "errors": errors(real, given.draws),
        "shares": shares(real, given.draws),
        "draws": draws(given.tables, given.data, given.draws),
        "training": [row for name, splits in graphs().items() for row in training(name, splits, given.epochs)],
    }
    for part, rows in results.items():
        print(f"{CAPTIONS[part]}\n\n{table(rows)}\n")
    write_json(given.json, results)


def reported(page: str, results: dict[str, list[Row]]) -> str:
    for part, rows in results.items():
        begin = f"<!-- begin: python -m benchmarks.decided --report ({part}) -->\n"
        page = replaced(page, f"{CAPTIONS[part]}\n\n{table(rows)}\n", begin)
    return page


def table(rows: list[Row]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = ["" if row.get(key) is None else row[key] for key in columns]
        lines.append("| " + " | ".join(f"{x:.1f}" if isinstance(x, float) else str(x) for x in cells) + " |")
    return "\n".join(lines)


def populations() -> dict[str, Array]:
    """Differences of 1,000 tasks, of mean 0 in [-1, 1]."""
    rng, n = np.random.default_rng(0), 1000
    kinds = {
        "normal, sd 0.05": rng.normal(0, 0.05, n),
        "normal, sd 0.3": rng.normal(0, 0.3, n),
        "most are equal": rng.choice([-1, -0.5, 0, 0.5, 1], n, p=[0.02, 0.05, 0.86, 0.05, 0.02]),
        "a few large ones": np.where(rng.random(n) < 0.01, 0.9, -0.009),
    }
    return {name: (d - d.mean()).clip(-1, 1) for name, d in kinds.items()}


def pairs(folder: Path) -> Iterator[tuple[str, Array]]:
    """Differences of reciprocal ranks between the checkpoints of every graph."""
    for graph in sorted({path.name.rsplit(".", 2)[0] for path in folder.glob("*.npz")}):
        values = {c: reciprocal(RankTable.load(folder / f"{graph}.{c}.npz")) for c in ("3g", "4g", "50g")}
        for a, b in CHECKPOINTS:
            yield f"{graph} {a} - {b}", values[a] - values[b]


def reciprocal(of: RankTable) -> Array:
    values: Array = 1 / of.ranks.realistic.numpy()
    return values


def t_of(d: Array) -> float:
    return float(d.mean() / (d.std() / math.sqrt(len(d)))) if d.std() else 0.0


def by_bets(drawn: Drawn) -> tuple[int, int]:
    """After how many units, and on which side, bets decide; all units and 0 if they do not."""
    bar, end = math.log(2 / ALPHA), len(drawn.values)
    at = [
        int((capital >= bar).argmax()) if (capital >= bar).any() else end
        for capital in (log_capital(drawn, 0.5, above=above) for above in (True, False))
    ]
    return (end, 0) if min(at) >= end - 1 else (min(at) + 1, 1 if at[0] < at[1] else -1)


def bernstein_sequence(drawn: Drawn, alpha: float) -> tuple[Array, Array]:
    """Lower and upper bounds (t,) after each draw, in closed form: the empirical-Bernstein sequence, wider than bets.

    Source: Waudby-Smith and Ramdas 2020 (arXiv 2006.04347), with predictable plug-in bets, for equal sizes.
    """
    x, draw = drawn.values, np.arange(1, len(drawn.values) + 1)
    mean = (0.5 + np.cumsum(x)) / (draw + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (draw + 1)
    mean_before, variance_before = np.append(0.5, mean)[:-1], np.append(0.25, variance)[:-1]
    bet = np.minimum(np.sqrt(2 * math.log(2 / alpha) / (variance_before * draw * np.log(draw + 1))), 0.5)
    scale = np.cumsum(bet * drawn.total / drawn.left[:-1])
    centre = np.cumsum(bet * (x + drawn.seen[:-1] / drawn.left[:-1])) / scale
    loss = np.cumsum((x - mean_before) ** 2 * (-np.log1p(-bet) - bet))
    radius = (math.log(2 / alpha) + loss) / scale
    low = np.maximum(centre - radius, drawn.seen[1:] / drawn.total)
    high = np.minimum(centre + radius, (drawn.seen[1:] + drawn.left[1:]) / drawn.total)
    return np.maximum.accumulate(low), np.minimum.accumulate(high)


def by_bernstein(drawn: Drawn) -> tuple[int, int]:
    low, high = bernstein_sequence(drawn, ALPHA)
    out = (low > 0.5) | (high < 0.5)
    out[-1] = False  # all are known
    return (int(out.argmax()) + 1, 1 if low[out.argmax()] > 0.5 else -1) if out.any() else (len(low), 0)


def by_t_tests(drawn: Drawn, looks: int = LOOKS) -> tuple[int, int]:
    """Equal looks, each with an ordinary t-test of what is there; a single one after the fixed share."""
    d, n = drawn.values - 0.5, len(drawn.values)
    ends = [math.ceil(n * i / looks) for i in range(1, looks)] if looks > 1 else [math.ceil(FIXED * n)]
    for end in ends:
        part = d[:end]
        error = part.std(ddof=1) / math.sqrt(end) if end > 1 else math.inf
        if error and abs(part.mean()) / error > stats.t.ppf(1 - ALPHA / 2, end - 1):
            return end, 1 if part.mean() > 0 else -1
    return n, 0


WAYS: dict[str, Callable[[Drawn], tuple[int, int]]] = {
    "bets": by_bets,
    "Bernstein": by_bernstein,
    "t-tests": by_t_tests,
    "fixed 20 %": lambda drawn: by_t_tests(drawn, 1),
}


def orders(d: Array, number: int) -> Iterator[Drawn]:
    rng = np.random.default_rng(1)
    for _ in range(number):
        yield Drawn((rng.permutation(d) + 1) / 2, np.ones(len(d)), float(len(d)))


def errors(real: list[tuple[str, Array]], number: int) -> list[Row]:
    rows = []
    cases = {name: [(d, number)] for name, d in populations().items()}
    shifted = [(d - d.mean(), max(1, number // 20)) for _, d in real if d.std()]
    if shifted:
        cases[f"ULTRA, {len(shifted)} pairs of checkpoints"] = [(d.clip(-1, 1), repeats) for d, repeats in shifted]
    for name, parts in cases.items():
        drawn = [one for d, repeats in tqdm(parts, desc=name) for one in orders(d, repeats)]
        rows.append({"differences": name, "orders": len(drawn)})
        rows[-1] |= {way: 100 * float(np.mean([ask(one)[1] != 0 for one in drawn])) for way, ask in WAYS.items()}
    return rows


def shares(real: list[tuple[str, Array]], number: int) -> list[Row]:
    rows = []
    for t in (2, 5, 10):
        for name, d in populations().items():
            moved = d + t * d.std() / math.sqrt(len(d))
            if abs(moved).max() <= 1 or name != "a few large ones":
                rows.append(row_of(f"{name}, t = {t}", [moved.clip(-1, 1)], number))
    for low, high in ((2, 4), (4, 7), (7, 14), (14, math.inf)):
        found = [d if t_of(d) > 0 else -d for _, d in real if low <= abs(t_of(d)) < high]
        if found:
            span = f"{low} to {high}" if high < math.inf else f"above {low}"
            rows.append(row_of(f"ULTRA, t = {span}: {len(found)} pairs", found, max(1, number // 20)))
    return rows


def row_of(name: str, parts: list[Array], number: int) -> Row:
    """What the ways do where the first model is better."""
    row: Row = {"differences": name}
    drawn = [one for d in tqdm(parts, desc=name) for one in orders(d, number)]
    for way in ("bets", "Bernstein", "t-tests"):
        found = [(end / len(one.values), side) for one in drawn for end, side in [WAYS[way](one)]]
        row[way] = 100 * float(np.median([share for share, _ in found]))
        row[f"{way}, wrong"] = 100 * float(np.mean([side < 0 for _, side in found]))
    fixed = [one.values[: math.ceil(FIXED * len(one.values))].mean() <= 0.5 for one in drawn]
    row["fixed 20 %, wrong"] = 100 * float(np.mean(fixed))
    return row


def draws(tables: Path, data: Path, number: int) -> list[Row]:
    rows = []
    for graph in ("nations", "kinships", "umls"):
        if not (tables / f"{graph}.3g.npz").exists() or not (data / graph / "test.tsv").exists():
            continue
        triples = np.loadtxt(data / graph / "test.tsv", dtype=np.int64)
        loaded = {c: RankTable.load(tables / f"{graph}.{c}.npz") for c in ("3g", "4g", "50g")}
        columns = loaded["3g"].to_numpy()
        h, r, t = triples[columns["sample_id"].astype(np.int64)].T
        side = columns["side"]
        query = np.unique(np.stack([side, np.where(side == 2, h, t), r], 1), axis=0, return_inverse=True)[1].ravel()
        for a, b in CHECKPOINTS:
            d = reciprocal(loaded[a]) - reciprocal(loaded[b])
            if abs(t_of(d)) < 2:
                continue
            found = np.array([draw(d, query, seed) for seed in range(max(1, number // 10))])
            row: Row = {"graph": f"{graph} {a} - {b}", "tasks": len(d), "queries": int(query.max()) + 1}
            row |= {"largest query": int(np.bincount(query).max()), "t": abs(t_of(d))}
            rows.append(row | dict(zip(("one by one", "by size", "uniform"), 100 * np.median(found, 0), strict=True)))
    return rows


def draw(d: Array, query: np.ndarray[Any, Any], seed: int) -> tuple[float, float, float]:
    """Share of the queries that are scored, by three ways to draw."""
    rng, sizes = np.random.default_rng(seed), np.bincount(query).astype(float)
    means, number = np.bincount(query, d) / sizes, len(sizes)
    order = rng.permutation(len(d))
    singly = by_bets(Drawn((d[order] + 1) / 2, np.ones(len(d)), float(len(d))))[0]
    clock = np.argsort(rng.exponential(size=number) / sizes)
    by_size = by_bets(Drawn((means[clock] + 1) / 2, sizes[clock], float(len(d))))[0]
    plain = rng.permutation(number)
    scaled = (means * sizes / sizes.max())[plain]
    uniform = by_bets(Drawn((scaled + 1) / 2, np.ones(number), float(number)))[0]
    return len(np.unique(query[order[:singly]])) / number, by_size / number, uniform / number


def graphs() -> dict[str, Splits]:
    """What PyKEEN ships."""
    from pykeen.datasets import UMLS

    data = UMLS()
    umls = [part.mapped_triples for part in (data.training, data.validation, data.testing)]
    return {**shipped(), "umls": umls}


class Scorer:
    """A model's scores, and how many queries were asked for."""

    def __init__(self, model: Model) -> None:
        self.model, self.asked = model, 0

    def tails(self, h: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        """(B, N) scores."""
        self.asked += len(h)
        return self.model.compare(self.model.query(h, r, True), self.model.entities)

    def heads(self, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """(B, N) scores."""
        self.asked += len(r)
        return self.model.compare(self.model.query(t, r, False), self.model.entities)


def training(name: str, splits: Splits, epochs: int) -> list[Row]:
    """Each epoch validated in full, by a fixed part, and until it is decided."""
    torch.manual_seed(0)
    entities, relations = sizes(splits)
    model = Model("ComplEx", entities, relations, 32, 0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    known, valid = KnownTriples(*splits, num_entities=entities), splits[1]
    values, fixed = [], []
    part = torch.randperm(len(valid))[: math.ceil(FIXED * len(valid))]
    ways: dict[str, Row] = {"until decided": {"threshold": None}, "better by 0.01": {"threshold": 0.01}}
    state: dict[str, Row] = {way: {"epoch": 0, "best": None, "scorer": None, "asked": 0, "decided": 0} for way in ways}
    for epoch in tqdm(range(epochs), desc=name):
        model.train()
        for batch in splits[0][torch.randperm(len(splits[0]))].split(256):
            h, r, t = batch.T
            losses = [cross_entropy(model.compare(model.query(e, r, d), model.entities), to)
                      for e, to, d in ((h, t, True), (t, h, False))]  # fmt: skip
            optimizer.zero_grad()
            sum(losses).backward()  # type: ignore[union-attr]
            optimizer.step()
        model.eval()
        scorer = Scorer(copy.deepcopy(model))
        ranks = rank_triples(scorer.tails, scorer.heads, valid, known, progress=False)
        queries = scorer.asked
        values.append(evaluate(ranks, metrics=["mrr"])["mrr"])
        fixed.append(evaluate(RankTable(ranks.rows[torch.isin(ranks.sample_id, part)]), metrics=["mrr"])["mrr"])
        for way, options in ways.items():
            best = state[way]
            if best["scorer"] is None:
                best["scorer"] = scorer
                continue
            scorer.asked = best["scorer"].asked = 0
            other = best["scorer"].tails, best["scorer"].heads
            ask = (scorer.tails, scorer.heads, valid, known)
            found, _ = quietly(
                lambda best=best, other=other, ask=ask, options=options: rank_sequentially(  # type: ignore[misc]
                    *ask, baseline=best["best"], score_baseline=other, progress=False, **options
                )
            )
            best["asked"] += scorer.asked + best["scorer"].asked
            best["decided"] += not found.is_exact
            best["best"] = found.table if found.answer else found.baseline
            if found.answer:
                best["epoch"], best["scorer"] = epoch, scorer
    chosen = int(np.argmax(values))
    rows = [row_of_training(name, "full", values, chosen, 1.0, None)]
    rows.append(row_of_training(name, "fixed 20 %", values, int(np.argmax(fixed)), len(part) / len(valid), None))
    for way, found in state.items():
        share, settled = found["asked"] / (queries * epochs), found["decided"]
        rows.append(row_of_training(name, way, values, found["epoch"], share, settled))
    return rows


def row_of_training(name: str, way: str, values: list[float], epoch: int, share: float, settled: int | None) -> Row:
    return {
        "graph": name,
        "validation": way,
        "epochs": len(values),
        "queries, %": 100 * share,
        "epochs that ended early": settled,
        "chosen epoch": epoch + 1,
        "its MRR": f"{values[epoch]:.4f}",
        "best MRR": f"{max(values):.4f}",
    }


if __name__ == "__main__":
    main()
