"""State and end of an epoch: what an update costs beyond the ranks, and the compute of all metrics beside pykeen's.

python -m benchmarks.epoch [--full] [--threads N] [--json PATH]

The first compute of an epoch works the null moments out; later epochs over the same tasks find them.
"""

import importlib.util
from typing import Any

import numpy as np
import torch
from benchmarks.timing import after, arguments, report, together

from torchrankmetrics import RankCollection, Ranks, rank_scores
from torchrankmetrics.theory.expectation.exact import ExactExpectation

HAS_PYKEEN = importlib.util.find_spec("pykeen") is not None
VIEWED = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_5", "hits_at_10", "imr", "hmr", "gmr", "igmr")
SHAPES = ("median_rank", "inverse_median_rank", "rank_variance", "rank_std", "rank_mad", "count")
PYKEEN_NAMES = {"mr": "arithmetic_mean_rank", "mrr": "inverse_harmonic_mean_rank", "hits_at_10": "hits_at_10"}
RANK_TYPES = ("realistic", "optimistic", "pessimistic")


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    report(rows(given.full), given.json)


def rows(full: bool) -> list[dict[str, Any]]:
    result = update(256, 14_541 if full else 2_000)
    for number in (40_932, 1_000_000) if full else (2_000,):
        result += compute(number)
    return result


def update(B: int, N: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(5)
    scores, target = torch.randn(B, N, generator=generator), torch.randint(0, N, (B,), generator=generator)
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
    """Ranks and candidate counts of the shape of filtered ones: most N near the number of entities."""
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
        collection._leader.rows.extend([])  # as after another update
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


def pykeen_evaluator(optimistic: Any, pessimistic: Any, N: Any) -> Any:
    from pykeen.evaluation import RankBasedEvaluator

    evaluator = RankBasedEvaluator(clear_on_finalize=False)
    evaluator.num_entities = int(N.max())
    for side, o, p, n in zip(("head", "tail"), optimistic, pessimistic, N, strict=True):
        for kind, ranks in (("optimistic", o), ("pessimistic", p), ("realistic", (o + p) / 2)):
            evaluator.ranks[side, kind] = [ranks.astype(np.float32) if kind == "realistic" else ranks]
        evaluator.num_candidates[side] = [n]
    return evaluator


if __name__ == "__main__":
    main()
