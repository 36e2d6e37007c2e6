"""Which metrics stay when easy candidates are added to a fixed set of hard ones? The opposite of drawing uniformly.

    python -m benchmarks.hard_negatives [--fb15k237 FOLDER] [--json PATH]

Ranks of one scorer on the same tasks, from the hard negatives alone to all candidates:

- simulated: 13 hard negatives, a share u ~ Beta(0.3, 1) of which scores higher than the true answer; every further
  negative scores below it;
- FB15k-237, folder of train.tsv, valid.tsv, test.tsv (integer ids): hard negatives are the candidates of the right
  type, those seen in training on that side of the relation; 0 %, 1 %, 10 % and 100 % of the others are added. The
  scorer, relation frequency, both sides, filtered by all splits, gives the others all the same score, 0.
"""

from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.comparable import frequencies, frequency_ranks
from benchmarks.pages import parser_of, write_json

from torchrankmetrics import Ranks, evaluate, rank_triples

METRICS = ("mrr", "hits_at_1", "hits_at_10", "mr", "auc", "adjusted_mrr", "adjusted_hits_at_10", "adjusted_gmr", "amri")
METRICS += ("adjusted_auc", "tie_rate")
SIMULATED = (14, 100, 1000, 40_000)
SHARES = (0.0, 0.01, 0.1, 1.0)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--fb15k237", type=Path)
    given = parser.parse_args()
    results = {"simulated": simulated()}
    if given.fb15k237:
        results["FB15k-237"] = typed(given.fb15k237)
    write_json(given.json, results)
    for name, rows in results.items():
        print(f"\n{name}, {rows[0]['tasks']} tasks\n\n{table(rows)}")


def simulated(num_tasks: int = 20_000) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rank = 1 + rng.binomial(13, rng.beta(0.3, 1, num_tasks))
    return [measured(Ranks(rank, None, N)) for N in SIMULATED]


def typed(folder: Path) -> list[dict[str, Any]]:
    counts, test, known = frequencies(folder)
    seen = (counts > 0).float()
    of_type = rank_triples(lambda h, r: seen[1][r], lambda r, t: seen[0][r], test, known).ranks
    full = frequency_ranks(folder)
    # a true answer of the right type ties with the other candidates of that type, one of another type is below them all
    right = of_type.optimistic == 1
    hard = right * (of_type.pessimistic - 1) + ~right * (of_type.optimistic - 1)
    easy = full.num_candidates - 1 - hard
    rows = []
    for share in SHARES:
        added = (share * easy.double()).round().long()
        ties = ~right * (easy - added)  # easy ones are level with a true answer that is no typed candidate either
        rows.append(measured(Ranks(full.optimistic, full.pessimistic - ties, 1 + hard + added)))
    return rows


def measured(ranks: Ranks) -> dict[str, Any]:
    values = evaluate(ranks, metrics=METRICS)
    return {"candidates": ranks.num_candidates.double().mean().item(), "tasks": len(ranks), "values": values}


def table(rows: list[dict[str, Any]]) -> str:
    """Write a Markdown table: a line per metric, a column per mean number of candidates."""
    lines = ["| metric | " + " | ".join(f"N = {row['candidates']:,.0f}" for row in rows) + " |"]
    lines += ["|---|" + "--:|" * len(rows)]
    lines += [f"| `{key}` | " + " | ".join(f"{row['values'][key]:.3f}" for row in rows) + " |" for key in METRICS]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
