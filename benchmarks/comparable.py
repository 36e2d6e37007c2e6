"""Which rank metrics are comparable? All metrics and views if only the number of candidates varies.

Simulated ranks only:
    python -m benchmarks.comparable [--json PATH]
And two real sets:
    python -m benchmarks.comparable --fb15k237 FOLDER --dbp15k FOLDER --json PATH
Print the tables of PATH:
    python -m benchmarks.comparable --report --json PATH

Every task is ranked among all its candidates once. Then m of its negatives are drawn without
replacement, so the numbers of negatives above, equal to and below the target are multivariate
hypergeometric. This gives the ranks of the same scorer on the same tasks among m + 1 candidates.
The scorers have no training and no free parameter:

- simulated: a share of 10^-u of the negatives scores higher than the target, u uniform on [0, 4];
- FB15k-237, folder of train.tsv, valid.tsv, test.tsv (integer ids): how often a candidate occurs
  with the relation in training, both sides, filtered by all splits;
- DBP15k, folder of triples_1.tsv, triples_2.tsv, ref_pairs.tsv: cosine of vectors that two steps
  along the edges of a graph collect from the first 30% of the pairs; the rest are ranked against
  each other, left to right.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import parser_of, read_ids, read_splits, write_json
from scipy.sparse import csr_matrix

from torchrankmetrics import KnownTriples, Ranks, evaluate, rank_scores, rank_triples
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import parse_name

METRICS = ("mr", "mrr", "auc", "hits_at_1", "hits_at_10", "imr", "hmr", "gmr", "igmr")
METRICS += ("power_mean_rank_2", "power_mean_rank_0p5", "median_rank", "inverse_median_rank")
VIEWS = ("base", "normalized", "adjusted_index", "z_score")
SIZES = (14, 100, 1000, 10_000)
SIMULATED = (14, 100, 1000, 40_000)
KEYS = {
    (metric, view): Measure(parse_name(metric).definition, view).key
    for metric in METRICS
    for view in VIEWS
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--fb15k237", type=Path)
    parser.add_argument("--dbp15k", type=Path)
    parser.add_argument(
        "--report",
        action="store_true",
        help="measure nothing, print the tables of what --json holds",
    )
    given = parser.parse_args()
    if given.report:
        results = json.loads(given.json.read_text(encoding="utf-8"))
    else:
        results = {"simulated": simulated()}
        if given.fb15k237:
            results["FB15k-237"] = subsampled(frequency_ranks(given.fb15k237), SIZES)
        if given.dbp15k:
            results["DBP15k zh-en"] = subsampled(propagation_ranks(given.dbp15k), SIZES)
        write_json(given.json, results)
    for name, rows in results.items():
        print(f"\n{name}, {rows[0]['tasks']} tasks\n\n{table(rows)}")


def simulated(num_tasks: int = 20_000) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    better = 10.0 ** rng.uniform(-4, 0, num_tasks)
    return [measured(Ranks(1 + rng.binomial(N - 1, better), None, N)) for N in SIMULATED]


def subsampled(full: Ranks, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    optimistic, pessimistic, N = (
        x.numpy() for x in (full.optimistic, full.pessimistic, full.num_candidates)
    )
    better, tied = optimistic - 1, pessimistic - optimistic
    rows = []
    for size in sizes:
        above = rng.hypergeometric(better, N - 1 - better, size - 1)
        level = rng.hypergeometric(tied, N - 1 - better - tied, size - 1 - above)
        rows.append(measured(Ranks(1 + above, 1 + above + level, size)))
    return [*rows, measured(full)]


def frequency_ranks(folder: Path) -> Ranks:
    counts, test, known = frequencies(folder)
    return rank_triples(lambda h, r: counts[1][r], lambda r, t: counts[0][r], test, known).ranks


def frequencies(folder: Path) -> tuple[torch.Tensor, torch.Tensor, KnownTriples]:
    """Counts (2, R, N) in training; test triples; all triples.

    The counts are how often an entity is head (0) or tail (1) of a relation.
    """
    train, valid, test = read_splits(folder)
    everything = torch.cat([train, valid, test])
    num_entities, num_relations = (
        int(everything[:, [0, 2]].max()) + 1,
        int(everything[:, 1].max()) + 1,
    )
    counts = torch.zeros(2, num_relations, num_entities)
    for side, column in enumerate((0, 2)):
        counts[side].index_put_(
            (train[:, 1], train[:, column]), torch.ones(len(train)), accumulate=True
        )
    return counts, test, KnownTriples(train, valid, test, num_entities=num_entities)


def propagation_ranks(folder: Path) -> Ranks:
    pairs = read_ids(folder / "ref_pairs.tsv").numpy()
    size = int(pairs.max()) + 1
    graphs = [read_ids(folder / f"triples_{i}.tsv").numpy() for i in (1, 2)]
    size = max(size, *(int(graph[:, [0, 2]].max()) + 1 for graph in graphs))
    seeds, test = np.split(pairs, [int(0.3 * len(pairs))])
    features = []
    for graph, side in zip(graphs, (0, 1), strict=True):
        ends = np.concatenate([graph[:, [0, 2]], graph[:, [2, 0]]]).T
        edges = csr_matrix((np.ones(ends.shape[1]), tuple(ends)), shape=(size, size))
        step = csr_matrix(edges.multiply(1 / np.maximum(edges.sum(1), 1)))
        collected = csr_matrix(
            (np.ones(len(seeds)), (seeds[:, side], np.arange(len(seeds)))), shape=(size, len(seeds))
        )
        collected = (collected + step @ collected + step @ (step @ collected))[
            test[:, side]
        ].toarray()
        features.append(torch.nn.functional.normalize(torch.from_numpy(collected).float(), dim=1))
    batches = [
        rank_scores(features[0][rows] @ features[1].T, rows)
        for rows in torch.arange(len(test)).split(512)
    ]
    return Ranks(
        *(
            torch.cat([getattr(b, x) for b in batches])
            for x in ("optimistic", "pessimistic", "num_candidates")
        )
    )


def measured(ranks: Ranks) -> dict[str, Any]:
    values = evaluate(ranks, metrics=[*KEYS.values(), "tie_rate"])
    return {
        "candidates": ranks.num_candidates.double().mean().item(),
        "tasks": len(ranks),
        "values": values,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Write a Markdown table: a line per metric and view, a column per number of candidates."""
    sizes = [f"{row['candidates']:,.0f}" for row in rows]
    lines = [
        "| metric | view | " + " | ".join(f"N = {size}" for size in sizes) + " |",
        "|---|---|" + "--:|" * len(rows),
    ]
    for metric in METRICS:
        for view in VIEWS:
            values = [row["values"][KEYS[metric, view]] for row in rows]
            lines.append(
                f"| `{metric}` | {view.replace('_', ' ')} | " + " | ".join(map(text, values)) + " |"
            )
    return "\n".join(lines)


def text(value: float) -> str:
    digits = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:.{digits}f}".replace("-0.000", "0.000")


if __name__ == "__main__":
    main()
