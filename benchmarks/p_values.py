"""p-values against independent results: accuracy, time, and size for dependent ranking tasks.

python -m benchmarks.p_values accuracy [--json PATH]
python -m benchmarks.p_values clusters
python -m benchmarks.p_values blind [--draws N] [--initializations N] [--json PATH]

- accuracy: enumeration of all ranks of few tasks and queries, binomials in 60 digits, integer
  convolution, and simulations of a million outcomes: how many of 3,000 p-values are within 2% of
  the exact one or three standard errors (below 1e-12: within 0.5% of its logarithm); and the CPU
  time of cases of realistic sizes on one thread;
- clusters: how often `clustered_p_value` is at most 5% under random ranking, if the 4 tasks of a
  cluster share their rank, as those of one target do under a scorer that is blind to the query;
- blind: z-scores and p-values of scorers without skill, compared with the null, on the filtered
  test sets of Nations and Kinships (from pykeen), both sides. *independent*: a random score for
  every candidate of every query (the null, except that relevant items of one query share their
  negatives); *blind*: a random score for every entity, the same in every query; *untrained*: models
  of the case study with random embeddings of dimension 64. Printed are the mean, standard deviation
  and 95% quantile of z(MRR), the share of one-sided p-values of at most 5%, and the standard error
  of this share.
"""

import itertools
import json
import math
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch
from benchmarks.case_study import MODELS, Model, Splits, rank, shipped
from benchmarks.timing import parser_of, sizes, write_json
from torch import Tensor

from torchrankmetrics import KnownTriples, Ranks, evaluate, rank_scores
from torchrankmetrics.definitions import (
    GEOMETRIC_MEAN_RANK,
    MEAN_RANK,
    MEAN_RECIPROCAL_RANK,
    RankDefinition,
    hits_at,
    power_mean_rank,
)
from torchrankmetrics.inference import clustered_p_value
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.null import log_p_value
from torchrankmetrics.null.p_values import p_value, upper_tail
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.queries.significance import query_p_value

DCG = RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))
STEPS = RankDefinition(
    "steps", f=lambda r: (r <= 1).double() + 0.5 * (r <= 10).double() + 0.3 * (r <= 100).double()
)
NOISE = torch.from_numpy(np.random.default_rng(0).uniform(-1e-13, 1e-13, 512))
OWN = tuple(
    RankDefinition(name, f=f, optimum=None, higher_is_better=True)
    for name, f in {
        "plateaus": lambda r: -torch.floor(r / 3),
        "noise": lambda r: (150 - torch.floor(r / 3)) * (1 + NOISE[r.long() % 512]),
        "period": lambda r: torch.sin(math.pi / 2 * r),
        "waves": lambda r: torch.sin(2 * r),
        "rising": lambda r: r.sqrt(),
    }.items()
)
QUERY_METRICS = ("ap", "ap@2", "ndcg", "ndcg@3", "ndcg_exp@2", "dcg", "rr", "recall@2", "success@1")
QUERY_METRICS += ("precision@3", "r_precision", "query_auc", "first_mr", "rbp")
METRICS = (
    MEAN_RECIPROCAL_RANK,
    MEAN_RANK,
    GEOMETRIC_MEAN_RANK,
    hits_at(1),
    hits_at(10),
    DCG,
    STEPS,
)
Cell = tuple[str, float, float, float]  # name, log p, its relative error, exact log p
_DRAWS, _FIRST, _BLOCK = 1_000_000, 100_000, 1000
_RUNS, _TASKS, _CANDIDATES = 2000, 4, 1000
LEVEL = 0.05
_FAR = math.log(1e-12)


def log_of(p: Fraction) -> float:
    """Natural logarithm; digits of p near 1 are kept."""
    return (
        math.log1p(-float(1 - p))
        if p > Fraction(1, 2)
        else math.log(p.numerator) - math.log(p.denominator)
    )


def enumerated(random: np.random.Generator) -> Iterator[Cell]:
    """Up to 5 tasks, weights equal or not, a user's functions with plateaus, periods and noise."""
    for n, most in ((1, 400), (2, 60), (3, 30), (3, 8), (4, 8), (5, 7)):
        for definition, kind in itertools.product((*METRICS, *OWN), ("equal", "two", "random")):
            N = random.integers(2, most, n)
            w = {
                "equal": np.ones(n),
                "two": 1.0 + np.arange(n) % 2,
                "random": random.random(n) + 0.1,
            }[kind]
            v = w / w.sum()
            sums = np.zeros(1)
            for size, weight in zip(N.tolist(), v.tolist(), strict=True):
                f = definition.f(torch.arange(1, size + 1, dtype=torch.float64)).double().numpy()
                sums = np.add.outer(sums, weight * f).ravel()
            sign = -1 if definition in (MEAN_RANK, GEOMETRIC_MEAN_RANK) else 1
            near = 1e-10 * np.abs(sums).max()
            for s in random.choice(sums, 10):
                reached = int((sign * sums >= sign * s - near).sum())
                exact = log_of(Fraction(reached, math.prod(N.tolist())))
                value = float(definition.g(torch.tensor(s, dtype=torch.float64)))
                tail = upper_tail(definition, value, N, w)
                yield f"{definition.name} {kind} n={n} most={most}", *tail, exact


def enumerated_queries(random: np.random.Generator) -> Iterator[Cell]:
    """Two queries of 1 to 3 relevant items with labels 1 to 3, by all orders of their labels."""
    for name in QUERY_METRICS:
        definition = parse_name(name).definition
        for _ in range(40):
            N, m = int(random.integers(4, 6)), int(random.integers(1, 4))
            labels = np.zeros((2, N))
            labels[:, :m] = random.integers(1, 4, (2, m))
            samples = [ordered(np.array(list(itertools.permutations(one)))) for one in labels]
            every = np.add.outer(*(definition.values(one) for one in samples))
            sign = 1 if definition.higher_is_better else -1
            chosen = random.integers(0, len(samples[0]), 2)
            near = 1e-10 * np.abs(every).max()
            reached = int((sign * every >= sign * every[tuple(chosen)] - near).sum())
            rows = [
                list(itertools.permutations(one))[i] for one, i in zip(labels, chosen, strict=True)
            ]
            log_p, error = query_p_value(definition, ordered(np.array(rows)))
            exact = log_of(Fraction(reached, every.size))
            yield f"{name} N={N} m={m}", log_p, error / math.exp(log_p), exact


def ordered(labels: np.ndarray[Any, Any]) -> QuerySample:
    """Queries with these labels (Q, N) in the order of their scores."""
    rows, N = labels.shape
    row, place = np.nonzero(labels)
    return QuerySample.ranked(place.reshape(rows, -1) + 1, N, labels[row, place].reshape(rows, -1))


def binomial() -> Iterator[Cell]:
    """Hits by the binomial distribution in 60 digits."""
    mpmath.mp.dps = 60
    for n, (N, k) in itertools.product(
        (1, 10, 60, 200, 2000), ((11, 10), (50, 10), (1000, 3), (14541, 10), (100000, 1))
    ):
        for share in (0.0, 0.001, 0.01, 0.1, 0.3, 0.7, 1.0):
            hits = min(n, max(1, round(n * (k / N + share * (1 - k / N)))))
            p = mpmath.mpf(k) / N
            term = mpmath.binomial(n, hits) * p**hits * (1 - p) ** (n - hits)
            total = term
            for j in range(hits + 1, n + 1):
                term *= mpmath.mpf(n - j + 1) / j * p / (1 - p)
                total += term
            tail = upper_tail(hits_at(k), hits / n, [N] * n)
            yield f"hits_at_{k} n={n} N={N}", *tail, float(mpmath.log(total))


def convolved() -> Iterator[Cell]:
    """The mean rank by convolution of integers."""
    for n, N in ((2, 500), (5, 200), (10, 100), (15, 60), (30, 50), (60, 40), (200, 20)):
        ways = [1]
        for _ in range(n):
            sums = [0, *itertools.accumulate(ways)]
            ways = [
                sums[min(j + 1, len(ways))] - sums[max(0, j - N + 1)]
                for j in range(len(ways) + N - 1)
            ]
        at_most = list(itertools.accumulate(ways))
        for u in sorted(
            {0, 1, 5, 50, *(round(len(ways) * x) for x in (0.02, 0.1, 0.3, 0.5, 0.8))}
            & set(range(len(ways)))
        ):
            exact = log_of(Fraction(at_most[u], N**n))
            yield f"mr n={n} N={N}", *upper_tail(MEAN_RANK, (u + n) / n, [N] * n), exact


def simulated(random: np.random.Generator) -> Iterator[tuple[str, float, float, float, float]]:
    """Name, log p and its error, and a share of 1e6 simulated outcomes with its standard error.

    The values to reach are quantiles of other outcomes.
    """
    for n, least, most in (
        (3, 1000, 10**5),
        (30, 20, 14_541),
        (60, 10**5, 10**6),
        (301, 20, 14_541),
    ):
        N = np.rint(np.exp(random.uniform(math.log(least), math.log(most), n))).astype(np.int64)
        group = random.integers(0, max(2, n // 10), n)
        weights = {
            "equal": np.ones(n),
            "macro": 1 / np.bincount(group)[group],
            "random": random.exponential(size=n),
        }
        v = np.stack([w / w.sum() for w in weights.values()], axis=1)
        tables = [
            d.f(torch.arange(1, most + 1, dtype=torch.float64)).double().numpy() for d in METRICS
        ]
        means = np.empty((len(METRICS), _DRAWS + _FIRST, len(weights)))
        for begin in range(0, _DRAWS + _FIRST, _BLOCK):
            index = (random.random((min(_BLOCK, _DRAWS + _FIRST - begin), n)) * N).astype(np.int32)
            for table, some in zip(tables, means, strict=True):
                some[begin : begin + len(index)] = table[index] @ v
        for definition, some in zip(METRICS, means, strict=True):
            for (kind, w), sums in zip(weights.items(), some.T, strict=True):
                sign = -1 if definition in (MEAN_RANK, GEOMETRIC_MEAN_RANK) else 1
                for share in (0.9, 0.3, 0.02, 0.001):
                    s = sign * float(np.quantile(sign * sums[:_FIRST], 1 - share, method="lower"))
                    reached = float((sign * sums[_FIRST:] >= sign * s - 1e-10 * abs(s)).mean())
                    value = float(definition.g(torch.tensor(s, dtype=torch.float64)))
                    tail = upper_tail(definition, value, N, w)
                    error = math.sqrt(reached * (1 - reached) / _DRAWS)
                    yield f"{definition.name} {kind} n={n}", *tail, reached, error


def seconds(random: np.random.Generator) -> Iterator[tuple[str, float]]:
    """CPU time of cases of realistic sizes."""
    counts = np.unique(
        np.rint(np.exp(random.uniform(math.log(20), math.log(14541), 340))).astype(int)
    )[:319]
    far = random.integers(10**6, 2_500_000, 19_500)
    groups = 1 / np.bincount(group := random.integers(0, 74, 40_000) ** 2 // 74)[group]
    for name, N, weight in (
        ("100 tasks", random.choice(counts, 100), None),
        ("40,000 tasks, 319 N", random.choice(counts, 40_000), None),
        ("40,000 tasks, macro weights", random.choice(counts, 40_000), groups),
        ("2,000 random weights", random.choice(counts, 2000), random.exponential(size=2000)),
        ("20,000 random weights", random.choice(counts, 20_000), random.exponential(size=20_000)),
        ("1.2M tasks, 19,500 N", random.choice(far, 1_200_000), None),
        (
            "1.2M random weights, 19,500 N",
            random.choice(far, 1_200_000),
            random.exponential(size=1_200_000),
        ),
    ):
        for definition in (
            MEAN_RECIPROCAL_RANK,
            MEAN_RANK,
            GEOMETRIC_MEAN_RANK,
            hits_at(10),
            power_mean_rank(2),
        ):
            ranks = np.ceil(N * random.random(len(N)) ** 1.2)
            mean = np.average(definition.f(torch.from_numpy(ranks)).numpy(), weights=weight)
            value = float(definition.g(torch.tensor(mean, dtype=torch.float64)))
            times = []
            for _ in range(3):
                begin = time.process_time()
                log_p_value(definition, value, N, weight)
                times.append(time.process_time() - begin)
            yield f"{definition.name}: {name}", sorted(times)[1]


def is_near(log_p: float, error: float, exact: float) -> bool:
    """Within 2% or three stated errors of p; within 0.5% of log p, or three errors, below 1e-12."""
    if exact < _FAR:
        return abs(log_p - exact) <= max(0.005 * abs(exact), 3 * error)
    return abs(math.expm1(log_p - exact)) <= max(0.02, 3 * error)


def accuracy(path: Path | None) -> None:
    """Print the largest errors and the times, and write all cells."""
    random = np.random.default_rng(0)
    cells = {
        "enumeration of tasks": [*enumerated(random)],
        "enumeration of queries": [*enumerated_queries(random)],
        "binomial": [*binomial()],
        "integers": [*convolved()],
    }
    for name, some in cells.items():
        near = sum(is_near(*cell[1:]) for cell in some)
        worst = max(abs(math.expm1(got - exact)) for _, got, _, exact in some if exact >= _FAR)
        print(f"{name}: {near} of {len(some)} near, largest relative error of p {worst:.1e}")
    outcomes = [*simulated(random)]
    log_p, stated, share, error = np.array([cell[1:] for cell in outcomes if cell[-1] > 0]).T
    both = np.hypot(error / share, stated)
    apart = np.abs(np.exp(log_p) / share - 1)
    near = int((apart <= np.maximum(0.02, 3 * stated) + 3 * error / share).sum())
    print(
        f"simulation: {near} of {len(share)} near, {np.mean(apart < 3 * both):.1%} within three "
        f"standard errors, largest stated error {stated.max():.1e}, median {np.median(stated):.1e}"
    )
    times = dict(seconds(random))
    for name, second in times.items():
        print(f"{name}: {1000 * second:.0f} ms")
    if path is not None:
        path.write_text(
            json.dumps({"log_p": cells, "simulated": outcomes, "seconds": times}, indent=0) + "\n"
        )


def clusters() -> None:
    """Print the share of p <= 5% for each metric and number of clusters."""
    random = np.random.default_rng(0)
    for metric in ("mr", "mrr", "hits@10"):
        for clusters in (20, 100, 1000):
            cluster = np.repeat(np.arange(clusters), _TASKS)
            ranks = random.integers(1, _CANDIDATES + 1, (_RUNS, clusters))[:, cluster]
            p = [
                clustered_p_value(Ranks(one, None, _CANDIDATES), metric, cluster=cluster)
                for one in ranks
            ]
            print(f"{metric}, {clusters} clusters: {np.mean(np.array(p) <= 0.05):.1%}")


def blind(draws: int, initializations: int, path: Path | None) -> None:
    """Print and write z-scores and shares of small p-values of scorers without skill."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for graph, splits in shipped().items():
        sources = {
            kind: (queries(splits, kind == "blind"), draws) for kind in ("independent", "blind")
        }
        sources |= {
            f"untrained {kind}": (untrained(splits, kind), initializations) for kind in MODELS
        }
        for scorer, (source, number) in sources.items():
            rows.append(measured(graph, scorer, [next(source) for _ in range(number)]))
            print(*rows[-1].values(), flush=True)
    write_json(path, rows)


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
        scores = (
            torch.rand(1 if blind else len(unique), entities)
            .expand(len(unique), -1)[query]
            .split(len(h))
        )
        parts = [
            rank_scores(s, y, exclude=x) for s, y, x in zip(scores, target, candidates, strict=True)
        ]
        ranks, counts = (
            torch.cat([getattr(part, name) for part in parts])
            for name in ("optimistic", "num_candidates")
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


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=["accuracy", "clusters", "blind"])
    parser.add_argument("--draws", type=int, default=2000, help="of the scorers without a model")
    parser.add_argument("--initializations", type=int, default=200, help="of every model")
    given = parser.parse_args()
    if given.part == "accuracy":
        accuracy(given.json)
    elif given.part == "clusters":
        clusters()
    else:
        blind(given.draws, given.initializations, given.json)


if __name__ == "__main__":
    main()
