"""z-scores and p-values of scorers without skill, compared with the null.

python -m benchmarks.blind_scorers [--draws N] [--initialisations N] [--json PATH]

Filtered test sets of Nations and Kinships (from pykeen), both sides, and three kinds of scorers:

- independent: a random score for every candidate of every query. This is the null, except that relevant items of one
  query share their negatives;
- blind: a random score for every entity, the same in every query;
- untrained models of the case study: random embeddings, dimension 64.

Printed are the mean, standard deviation and 95% quantile of z(MRR), the share of one-sided p-values of at most 5%, and
the standard error of this share.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from benchmarks.case_study import MODELS, Model, Splits, rank, shipped
from benchmarks.timing import parser_of, sizes, write_json
from torch import Tensor

from torchrankmetrics import KnownTriples, evaluate, rank_scores
from torchrankmetrics.definitions.tasks import MEAN_RECIPROCAL_RANK
from torchrankmetrics.null.p_values import p_value

LEVEL = 0.05


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=2000, help="of the scorers without a model")
    parser.add_argument("--initialisations", type=int, default=200, help="of every model")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for graph, splits in shipped().items():
        sources = {kind: (queries(splits, kind == "blind"), given.draws) for kind in ("independent", "blind")}
        sources |= {f"untrained {kind}": (untrained(splits, kind), given.initialisations) for kind in MODELS}
        for scorer, (source, draws) in sources.items():
            rows.append(measured(graph, scorer, [next(source) for _ in range(draws)]))
            print(*rows[-1].values(), flush=True)
    write_json(given.json, rows)


def queries(splits: Splits, blind: bool) -> Iterator[tuple[float, float]]:
    """z(MRR) and p of one draw after the other; both sides of a triple are tasks of two queries."""
    entities, relations = sizes(splits)
    h, r, t = splits[2].T
    known = KnownTriples(*splits, num_entities=entities)
    # answers of one query have the scores of that query
    keys = torch.cat([r * entities + h, (relations + r) * entities + t])
    unique, query = torch.unique(keys, return_inverse=True)
    candidates = [known.tails(h, r), known.heads(r, t)]
    target = [t, h]
    while True:
        scores = torch.rand(1 if blind else len(unique), entities).expand(len(unique), -1)[query].split(len(h))
        parts = [rank_scores(s, y, exclude=x) for s, y, x in zip(scores, target, candidates, strict=True)]
        ranks, counts = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("optimistic", "num_candidates")
        )
        yield judged(ranks, counts)


def untrained(splits: Splits, kind: str) -> Iterator[tuple[float, float]]:
    entities, relations = sizes(splits)
    while True:
        ranks = rank(Model(kind, entities, relations, 64, 0.2), splits).ranks
        yield judged(ranks.realistic, ranks.num_candidates)


def judged(ranks: Tensor, counts: Tensor) -> tuple[float, float]:
    values = evaluate(ranks, counts, ["mrr", "z_mrr"])
    return values["z_mrr"], p_value(MEAN_RECIPROCAL_RANK, values["mrr"], counts.numpy())


def measured(graph: str, scorer: str, draws: list[tuple[float, float]]) -> dict[str, Any]:
    z, p = np.array(draws).T
    size = float((p <= LEVEL).mean())
    return {
        "graph": graph,
        "scorer": scorer,
        "draws": len(draws),
        "mean_z": float(z.mean()),
        "sd_z": float(z.std(ddof=1)),
        "z_95": float(np.quantile(z, 0.95)),
        "rejected": size,
        "error": math.sqrt(size * (1 - size) / len(draws)),
    }


if __name__ == "__main__":
    main()
