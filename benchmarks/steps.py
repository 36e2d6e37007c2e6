"""Evaluation steps: counting, look-up, exclusion, embeddings, update, compute, index, commands.

python -m benchmarks.steps [--full] [--threads N] [--json PATH] [--data FOLDER] [--tasks N]

The first compute of an epoch computes the null moments; later epochs over the same candidate counts
reuse them.

The last case is a whole filtered evaluation of both sides: DistMult, d = 200, on Kinships (from
pykeen). Embeddings are small integers, so that all methods compute the same scores for any order of
the sums. With --data or --tasks only this case runs: FOLDER has train.tsv, valid.tsv and test.tsv
of integer ids (head, relation, tail), and N random test triples are evaluated. PyKEEN takes minutes
for all of FB15k-237.
"""

import importlib.util
import logging
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import after, arguments, line, read_splits, report, together
from scipy.stats import ttest_rel

from torchrankmetrics import KnownTriples, RankCollection, Ranks, compare, rank_scores, rank_triples
from torchrankmetrics.definitions import (
    GEOMETRIC_MEAN_RANK,
    MEAN_RANK,
    MEAN_RECIPROCAL_RANK,
    hits_at,
)
from torchrankmetrics.null import log_p_value
from torchrankmetrics.null.expectation.exact import ExactExpectation
from torchrankmetrics.ranking.embeddings import rank_embeddings
from torchrankmetrics.ranking.ranks import trusted

HAS_NUMBA = importlib.util.find_spec("numba") is not None
HAS_PYKEEN = importlib.util.find_spec("pykeen") is not None
FRESH = 1 << 28  # bytes: several times any cache
WAYS = ("torch", "numba") if HAS_NUMBA else ("torch",)


def main() -> None:
    given = arguments(__doc__.splitlines()[0], folder=True)
    found = (
        evaluation(given.full, given.data, given.tasks)
        if given.data or given.tasks
        else rows(given.full)
    )
    report(found, given.json)


def same(a: Ranks, b: Ranks) -> bool:
    names = ("optimistic", "pessimistic", "num_candidates")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def count(B: int, N: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(B, N, generator=generator).to(dtype)
    target = torch.randint(0, N, (B,), generator=generator)
    true = scores.gather(1, target[:, None])
    case = f"count {B} x {N} {str(dtype).removeprefix('torch.')}"

    def two_lines(scores: torch.Tensor) -> Ranks:
        columns = ((scores > true).sum(1) + 1, (scores >= true).sum(1), torch.full_like(target, N))
        return trusted(torch.stack(columns), None)

    for way in WAYS:
        assert same(rank_scores(scores, target, backend=way), two_lines(scores)), (
            f"{way} counts otherwise"
        )
    # every run reads another copy: none finds the scores in the cache of the last run
    copies = cycle([scores.clone() for _ in range(max(2, FRESH // scores.nbytes))])

    def read() -> None:
        # the sum of the same bytes as float32: sums of halves are slower than reading them
        next(copies).view(-1)[: B * N // 2 * 2].view(torch.float32).sum()

    def ours(way: str) -> Ranks:
        return rank_scores(next(copies), target, backend=way)

    ways = [
        ("one read", "floor", read),
        ("(s > t).sum, (s >= t).sum", "peer", lambda: two_lines(next(copies))),
    ]
    ways += [(f"rank_scores, {way}", "ours", partial(ours, way)) for way in WAYS]
    if HAS_PYKEEN and dtype == torch.float32:
        from pykeen.evaluation.ranks import Ranks as PykeenRanks

        ways.append(
            (
                "pykeen Ranks.from_scores",
                "peer",
                lambda: PykeenRanks.from_scores(true, next(copies)),
            )
        )
    return together(case, *ways)


def step(name: str, entities: int, relations: int, triples: int) -> list[dict[str, Any]]:
    """A batch of 256 and a made-up graph of the given size, with few entities in many triples."""
    generator = torch.Generator().manual_seed(1)
    skewed = (torch.rand(triples, 2, generator=generator) ** 3 * entities).long()
    relation = torch.randint(0, relations, (triples, 1), generator=generator)
    known = torch.cat([skewed[:, :1], relation, skewed[:, 1:]], dim=1)
    batch = known[torch.randperm(triples, generator=generator)[:256]]
    scores = torch.randn(256, entities, generator=generator)
    index = KnownTriples(known, num_entities=entities)
    collection = RankCollection()
    case = f"step {name} 256 x {entities}"

    def ranks(way: str) -> Ranks:
        return rank_scores(
            scores, batch[:, 2], exclude=index.tails(batch[:, 0], batch[:, 1]), backend=way
        )

    def ours() -> None:
        collection.update(scores, batch[:, 2], exclude=index.tails(batch[:, 0], batch[:, 1]))

    ways = [("one read", "floor", scores.sum), ("look-up, ranks, update", "ours", ours)]
    if HAS_PYKEEN:
        peer = pykeen_step(known, batch, scores)
        theirs = peer()
        for way in WAYS:
            assert torch.equal(ranks(way).optimistic.double(), theirs["optimistic"].double()), (
                f"{way} ranks otherwise"
            )
            assert torch.equal(ranks(way).pessimistic.double(), theirs["pessimistic"].double())
        ways.append(("pykeen's own path", "peer", peer))
    return together(case, *ways)


def pykeen_step(
    known: torch.Tensor, batch: torch.Tensor, scores: torch.Tensor
) -> Callable[[], Any]:
    """PyKEEN's functions in the order of its evaluation loop.

    They write into the scores, so each run has a copy.
    """
    from pykeen.evaluation.evaluator import create_sparse_positive_filter_, filter_scores_
    from pykeen.evaluation.ranks import Ranks as PykeenRanks

    own = torch.arange(len(batch)), batch[:, 2]
    spare = scores.clone()

    def run() -> Any:
        true = spare[own]
        positives, _ = create_sparse_positive_filter_(batch, known, filter_col=2)
        filtered = filter_scores_(scores=spare, filter_batch=positives)
        filtered[own] = true
        result = PykeenRanks.from_scores(true_score=true[:, None], all_scores=filtered)
        spare[positives[:, 0], positives[:, 1]] = scores[positives[:, 0], positives[:, 1]]
        return dict(result.items())

    return run


def embeddings(B: int, N: int, d: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(2)
    queries = torch.randint(-3, 4, (B, d), generator=generator).float()
    candidates = torch.randint(-3, 4, (N, d), generator=generator).float()
    target = torch.randint(0, N, (B,), generator=generator)
    out = torch.empty(B, N)
    torch.mm(queries, candidates.T, out=out)

    def ours() -> Ranks:
        return rank_embeddings(queries, candidates, target)

    assert same(ours(), rank_scores(out, target)), "tiles rank otherwise"
    case = f"embeddings {B} x {N}, d = {d}"
    return together(
        case,
        ("product, preallocated", "floor", lambda: torch.mm(queries, candidates.T, out=out)),
        ("rank_embeddings", "ours", ours),
        ("product, then rank_scores", "peer", lambda: rank_scores(queries @ candidates.T, target)),
        least=7,
    )


def rows(full: bool) -> list[dict[str, Any]]:
    sizes = [(256, 14_541), (256, 40_943), (32, 500_000)] if full else [(64, 14_541)]
    result = [
        row
        for B, N in sizes
        for dtype in (torch.float32, torch.bfloat16)
        for row in count(B, N, dtype)
    ]
    graphs = [("FB15k-237", 14_541, 237, 310_116), ("WN18RR", 40_943, 11, 93_003)]
    for name, entities, relations, triples in graphs if full else [("small", 2_000, 20, 20_000)]:
        result += step(name, entities, relations, triples)
    result += embeddings(64, 1_000_000 if full else 50_000, 200)
    result += update(256, 14_541 if full else 2_000)
    for number in (40_932, 1_000_000) if full else (2_000,):
        result += compute(number)
    for number in (1_000, 41_000, 1_000_000) if full else (1_000,):
        result += nine_values(number)
    for number in (20_000, 200_000, 1_000_000) if full else (2_000,):
        result += comparison(number)
    for number in (270_000, 20_000_000) if full else (20_000,):
        result += index(number)
    result += p_values() + commands()
    return result + (evaluation(full) if HAS_PYKEEN else [])


def index(number: int) -> list[dict[str, Any]]:
    """CPU time of an index of known triples; the peer only sorts the keys of both sides."""
    generator = torch.Generator().manual_seed(4)
    heads, tails = (torch.rand(2, number, generator=generator) ** 2 * number / 4).long()
    triples = torch.stack(
        [heads, torch.randint(0, 822, (number,), generator=generator), tails], dim=1
    )
    keys = [side * 822 + triples[:, 1] for side in (heads, tails)]
    ways = (
        ("KnownTriples", "ours", lambda: KnownTriples(triples)),
        ("two argsorts", "peer", lambda: [key.argsort() for key in keys]),
    )
    return together(f"index of {number} triples", *ways, rounds=3, clock=time.process_time)


def commands() -> list[dict[str, Any]]:
    """CPU time of new processes: commands, and the package's first name after imports of peers."""

    def clock() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def start(way: str, role: str, *given: str) -> tuple[str, str, Callable[[], Any]]:
        return (
            way,
            role,
            partial(
                subprocess.run, [sys.executable, *given], check=True, stdout=subprocess.DEVNULL
            ),
        )

    command, peers = ("-m", "torchrankmetrics"), "import torch, torchmetrics"
    adjust = ("adjust", "--dataset", "fb15k237", "--metric", "mrr", "--value", "0.355")
    return [
        *together(
            "commands",
            *(
                start(" ".join(given[:1]), "ours", *command, *given)
                for given in (("metrics",), ("datasets",), adjust)
            ),
            start("import torch", "peer", "-c", "import torch"),
            clock=clock,
        ),
        *together(
            "first name",
            start(
                "RankCollection",
                "ours",
                "-c",
                f"{peers}; from torchrankmetrics import RankCollection",
            ),
            start(
                "rank_scores", "ours", "-c", f"{peers}; from torchrankmetrics import rank_scores"
            ),
            start(peers, "floor", "-c", peers),
            clock=clock,
        ),
    ]


VIEWED = (
    "mr",
    "mrr",
    "hits_at_1",
    "hits_at_3",
    "hits_at_5",
    "hits_at_10",
    "imr",
    "hmr",
    "gmr",
    "igmr",
)
SHAPES = ("median_rank", "inverse_median_rank", "rank_variance", "rank_std", "rank_mad", "count")
PYKEEN_NAMES = {
    "mr": "arithmetic_mean_rank",
    "mrr": "inverse_harmonic_mean_rank",
    "hits_at_10": "hits_at_10",
}
RANK_TYPES = ("realistic", "optimistic", "pessimistic")


def update(B: int, N: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(5)
    scores, target = (
        torch.randn(B, N, generator=generator),
        torch.randint(0, N, (B,), generator=generator),
    )
    one, forty = RankCollection(["mrr"]), RankCollection([f"hits_at_{k}" for k in range(1, 41)])
    # updates only: rows pile up, as they do in an epoch
    return [
        *together(
            f"update {B} x {N}",
            ("rank_scores", "floor", lambda: rank_scores(scores, target)),
            ("update, 1 metric", "ours", lambda: one.update(scores, target)),
            ("update, 40 metrics", "ours", lambda: forty.update(scores, target)),
            slot=0.05,
        ),
        # what an update costs beyond the ranks, without the noise of a difference of two timings
        *after(
            f"update of {B} ranks",
            lambda: rank_scores(scores, target),
            ("1 metric", "ours", one.update),
            ("40 metrics", "ours", forty.update),
        ),
    ]


def evaluated(number: int, provider: ExactExpectation) -> tuple[RankCollection, list[np.ndarray]]:
    """Ranks and candidate counts like filtered ones: most N are near the number of entities."""
    generator = np.random.default_rng(6)
    N = 14_541 - (300 * generator.random((2, number // 2)) ** 8).astype(np.int64)
    optimistic = 1 + (N * generator.random(N.shape) ** 6).astype(np.int64)
    pessimistic = np.minimum(optimistic + (generator.random(N.shape) < 0.02), N)
    names = [*VIEWED, *SHAPES, *(f"{view}_{name}" for view in ("adjusted", "z") for name in VIEWED)]
    sides = ("both", "head", "tail")
    collection = RankCollection(names, rank_types=RANK_TYPES, sides=sides, expectation=provider)
    for side, o, p, n in zip(("head", "tail"), optimistic, pessimistic, N, strict=True):
        collection.update(Ranks(*map(torch.from_numpy, (o, p, n))), side=side)
    return collection, [optimistic, pessimistic, N]


def compute(number: int) -> list[dict[str, Any]]:
    provider = ExactExpectation()
    collection, (optimistic, pessimistic, N) = evaluated(number, provider)
    case = f"compute, {number} tasks"

    def ours(first: bool) -> dict[str, torch.Tensor]:
        collection._first.rows.extend([])  # as after another update
        if first:
            provider._cached.cache_clear()  # it remembers nothing
        return collection.compute()

    values = ours(False)
    ways = [
        (f"{len(values)} values, first epoch", "ours", lambda: ours(True)),
        (f"{len(values)} values, later", "ours", lambda: ours(False)),
    ]
    if HAS_PYKEEN:
        evaluator = pykeen_evaluator(optimistic, pessimistic, N)
        theirs = evaluator.finalize()
        for name, long_name in PYKEEN_NAMES.items():
            expected = theirs.get_metric(f"both.realistic.{long_name}")
            # pykeen keeps realistic ranks in float32
            assert np.isclose(values[name].item(), expected, rtol=1e-5), f"{name} differs"
        size = len(theirs.to_flat_dict())
        ways.append((f"pykeen finalize, {size}", "peer", evaluator.finalize))
    return together(case, *ways)


def nine_values(number: int) -> list[dict[str, Any]]:
    """CPU time of nine values of new ranks with null moments; the peer only divides sums."""
    generator = np.random.default_rng(7)
    N = 14_541 - (300 * generator.random(number) ** 8).astype(np.int64)
    rank = torch.from_numpy(1 + (N * generator.random(number) ** 6).astype(np.int64))
    ranks = Ranks(rank, None, torch.from_numpy(N))
    names = [
        "mr",
        "mrr",
        "hits_at_1",
        "hits_at_3",
        "hits_at_10",
        "amri",
        "adjusted_mrr",
        "z_mrr",
        "median_rank",
    ]
    provider = ExactExpectation()

    def ours(collection: RankCollection) -> dict[str, torch.Tensor]:
        provider._cached.cache_clear()
        collection.reset()
        collection.update(ranks)
        return collection.compute()

    def peer() -> list[torch.Tensor]:
        x = rank.double()
        return [
            x.mean(),
            (1 / x).mean(),
            *((rank <= k).double().mean() for k in (1, 3, 10)),
            x.quantile(0.5),
        ]

    nine = RankCollection(names, expectation=provider)
    forty = RankCollection([f"hits_at_{k}" for k in range(1, 41)])
    ways: list[tuple[str, str, Callable[[], Any]]] = [
        ("9 values", "ours", lambda: ours(nine)),
        ("40 shares", "ours", lambda: ours(forty)),
        ("6 values in torch", "peer", peer),
    ]
    ways.append(("one sort", "floor", lambda: np.sort(rank.numpy())))
    return together(f"values of {number} tasks", *ways, clock=time.process_time)


def comparison(number: int) -> list[dict[str, Any]]:
    """CPU time of comparisons of two models, and of ten on 20,000 tasks at most."""
    generator = np.random.default_rng(8)
    quality = generator.random(number) ** 6
    N = np.full(number, 14_541)
    values = [
        1 + np.minimum(quality * generator.lognormal(0, 0.5, number), 0.999) * N for _ in range(10)
    ]
    ranks = [value.astype(np.int64) for value in values]
    models = {f"model {i}": Ranks(rank, None, N) for i, rank in enumerate(ranks)}
    a, b = list(models.values())[:2]
    inverse = 1 / ranks[0], 1 / ranks[1]
    ways: list[tuple[str, str, Callable[[], Any]]] = [
        ("compare, mrr", "ours", lambda: compare(a, b, "mrr"))
    ]
    if number <= 20_000:
        ways.append(("compare, median_rank", "ours", lambda: compare(a, b, "median_rank")))
        ways.append(("compare, 10 models, mrr", "ours", lambda: compare(models, "mrr")))
    ways.append(("scipy ttest_rel", "peer", lambda: ttest_rel(*inverse)))
    return together(f"compare on {number} tasks", *ways, clock=time.process_time, rounds=7)


def p_values() -> list[dict[str, Any]]:
    """CPU time of p-values for equal weights, macro averages and a weight for each ranking task."""
    random = np.random.default_rng(0)
    N = random.choice(np.unique(np.geomspace(20, 14_541, 360).astype(np.int64))[:319], 40_000)
    far = random.choice(random.integers(10**6, 2_500_000, 19_500), 1_200_000)
    group = np.floor(np.sqrt(random.integers(0, 74**2, len(N)))).astype(np.int64)
    rows = []
    for name, some, weight in (
        ("100 tasks", N[:100], None),
        ("40000 tasks, 319 candidate counts", N, None),
        ("macro average of 74 groups", N, 1 / np.bincount(group)[group]),
        ("2000 weights", N[:2000], random.exponential(size=2000)),
        ("20000 weights", N[:20_000], random.exponential(size=20_000)),
        ("1200000 tasks, 19500 candidate counts", far, None),
    ):
        ways = []
        for definition in (MEAN_RECIPROCAL_RANK, MEAN_RANK, GEOMETRIC_MEAN_RANK, hits_at(10)):
            ranks = np.ceil(some * random.random(len(some)) ** 1.2)
            mean = np.average(definition.f(torch.from_numpy(ranks)).numpy(), weights=weight)
            value = float(definition.g(torch.tensor(mean)))
            ways.append(
                (definition.name, "ours", partial(log_p_value, definition, value, some, weight))
            )
        rows += together(f"p-values, {name}", *ways, clock=time.process_time)
    return rows


def pykeen_evaluator(optimistic: Any, pessimistic: Any, N: Any) -> Any:
    from pykeen.evaluation import RankBasedEvaluator

    evaluator = RankBasedEvaluator(clear_on_finalize=False)
    evaluator.num_entities = int(N.max())
    for side, o, p, n in zip(("head", "tail"), optimistic, pessimistic, N, strict=True):
        for kind, ranks in (("optimistic", o), ("pessimistic", p), ("realistic", (o + p) / 2)):
            evaluator.ranks[side, kind] = [
                ranks.astype(np.float32) if kind == "realistic" else ranks
            ]
        evaluator.num_candidates[side] = [n]
    return evaluator


def evaluation(
    full: bool, folder: Path | None = None, tasks: int | None = None
) -> list[dict[str, Any]]:
    """Compare ``rank_triples`` with pykeen's RankBasedEvaluator, which must give the same ranks."""
    name = "Kinships" if folder is None else folder.name
    splits = kinships() if folder is None else read_splits(folder)
    model = distmult(torch.cat(splits))
    test = splits[2]
    if tasks is not None:
        test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(7))[:tasks]]
    case = f"{name}: {len(test)} of {len(splits[2])} triples, both sides"
    # pykeen takes as long for 64 as for 256, and twice as long for 1024
    return evaluate(case, model, splits, test, batch_sizes=(256, 64) if full else (256,))


def kinships() -> list[torch.Tensor]:
    from pykeen.datasets import Kinships

    dataset = Kinships()
    return [
        dataset.training.mapped_triples,
        dataset.validation.mapped_triples,
        dataset.testing.mapped_triples,
    ]


def distmult(triples: torch.Tensor) -> Any:
    from pykeen.models import DistMult
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory.create(triples)
    model = DistMult(triples_factory=factory, embedding_dim=200, random_seed=0)
    generator = torch.Generator().manual_seed(0)
    for representation in (model.entity_representations[0], model.relation_representations[0]):
        weight = representation._embeddings.weight
        weight.data = torch.randint(-3, 4, weight.shape, generator=generator).float()
    return model.eval()


def evaluate(
    case: str,
    model: Any,
    splits: list[torch.Tensor],
    test: torch.Tensor,
    batch_sizes: tuple[int, ...],
) -> list[dict[str, Any]]:
    from pykeen.evaluation import RankBasedEvaluator

    entities = model.entity_representations[0]._embeddings.weight.data
    relations = model.relation_representations[0]._embeddings.weight.data

    def floor() -> None:
        # the products alone: one per unique query and side
        for columns in ([0, 1], [1, 2]):
            queries = torch.unique(test[:, columns], dim=0)
            left = [relations if column == 1 else entities for column in columns]
            for batch in queries.split(256):
                (left[0][batch[:, 0]] * left[1][batch[:, 1]]) @ entities.T

    def ours() -> Any:
        known = KnownTriples(*splits, num_entities=len(entities))
        return rank_triples(
            lambda h, r: (entities[h] * relations[r]) @ entities.T,
            lambda r, t: (relations[r] * entities[t]) @ entities.T,
            test,
            known,
            progress=False,
        )

    def theirs(batch_size: int) -> Any:
        evaluator = RankBasedEvaluator(filtered=True, clear_on_finalize=False)
        evaluator.evaluate(
            model, test, batch_size=batch_size, use_tqdm=False, additional_filter_triples=splits
        )
        return evaluator

    # says at every batch that there is no CUDA
    logging.getLogger("torch_max_mem").setLevel(logging.ERROR)
    peers, evaluators = [], []
    for batch_size in batch_sizes:
        # minutes at the size of FB15k-237: one run is both measured and compared
        run = partial(lambda size: evaluators.append(theirs(size)), batch_size)
        peers.append(
            line(
                case,
                f"pykeen evaluate, batch {batch_size}",
                "peer",
                run,
                seconds=10,
                least=1,
                warm=True,
            )
        )
    table = ours()
    for evaluator in evaluators:
        check(table, evaluator)
    return [
        line(case, "products alone", "floor", floor),
        line(case, "rank_triples", "ours", ours),
        *peers,
    ]


def check(table: Any, evaluator: Any) -> None:
    for side in ("tail", "head"):
        ranks = table.select(side=side).ranks
        for kind in ("optimistic", "pessimistic"):
            expected = torch.from_numpy(np.concatenate(evaluator.ranks[side, kind]))
            assert torch.equal(getattr(ranks, kind).double(), expected.double()), (
                f"{side} {kind} ranks differ"
            )


if __name__ == "__main__":
    main()
