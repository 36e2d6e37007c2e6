"""Time over one read of the scores: counting, the whole step (known answers, exclusion, ranks, state), embeddings.

python -m benchmarks.counting [--full] [--threads N] [--json PATH]
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import torch
from benchmarks.timing import arguments, report, together

from torchrankmetrics import KnownTriples, RankCollection, Ranks, rank_scores
from torchrankmetrics.ranking.chunks import rank_embeddings

HAS_NUMBA = importlib.util.find_spec("numba") is not None
HAS_PYKEEN = importlib.util.find_spec("pykeen") is not None
FRESH = 1 << 28  # bytes: several times any cache
WAYS = ("torch", "numba") if HAS_NUMBA else ("torch",)


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    report(rows(given.full), given.json)


def rows(full: bool) -> list[dict[str, Any]]:
    sizes = [(256, 14_541), (256, 40_943), (32, 500_000)] if full else [(64, 14_541)]
    result = [row for B, N in sizes for dtype in (torch.float32, torch.bfloat16) for row in count(B, N, dtype)]
    graphs = [("FB15k-237", 14_541, 237, 310_116), ("WN18RR", 40_943, 11, 93_003)]
    for name, entities, relations, triples in graphs if full else [("small", 2_000, 20, 20_000)]:
        result += step(name, entities, relations, triples)
    return result + embeddings(64, 1_000_000 if full else 50_000, 200)


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
        return Ranks.trusted(torch.stack(columns), None)

    for way in WAYS:
        assert same(rank_scores(scores, target, backend=way), two_lines(scores)), f"{way} counts otherwise"
    # every run reads another copy: none finds the scores in the cache of the last run
    copies = cycle([scores.clone() for _ in range(max(2, FRESH // scores.nbytes))])

    def read() -> None:
        # the sum of the same bytes as float32: sums of halves are slower than reading them
        next(copies).view(-1)[: B * N // 2 * 2].view(torch.float32).sum()

    def ours(way: str) -> Ranks:
        return rank_scores(next(copies), target, backend=way)

    ways = [("one read", "floor", read), ("(s > t).sum, (s >= t).sum", "peer", lambda: two_lines(next(copies)))]
    ways += [(f"rank_scores, {way}", "ours", partial(ours, way)) for way in WAYS]
    if HAS_PYKEEN and dtype == torch.float32:
        from pykeen.evaluation.ranks import Ranks as PykeenRanks

        ways.append(("pykeen Ranks.from_scores", "peer", lambda: PykeenRanks.from_scores(true, next(copies))))
    return together(case, *ways)


def step(name: str, entities: int, relations: int, triples: int) -> list[dict[str, Any]]:
    """A batch of 256 against a made-up graph of the given size, with a few entities in many triples."""
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
        return rank_scores(scores, batch[:, 2], exclude=index.tails(batch[:, 0], batch[:, 1]), backend=way)

    def ours() -> None:
        collection.update(scores, batch[:, 2], exclude=index.tails(batch[:, 0], batch[:, 1]))

    ways = [("one read", "floor", scores.sum), ("look-up, ranks, update", "ours", ours)]
    if HAS_PYKEEN:
        peer = pykeen_step(known, batch, scores)
        theirs = peer()
        for way in WAYS:
            assert torch.equal(ranks(way).optimistic.double(), theirs["optimistic"].double()), f"{way} ranks otherwise"
            assert torch.equal(ranks(way).pessimistic.double(), theirs["pessimistic"].double())
        ways.append(("pykeen's own path", "peer", peer))
    return together(case, *ways)


def pykeen_step(known: torch.Tensor, batch: torch.Tensor, scores: torch.Tensor) -> Callable[[], Any]:
    """PyKEEN's functions in the order of its evaluation loop; it writes into the scores, so each run has a copy."""
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
        return rank_embeddings(queries, candidates, target, arithmetic="product")

    assert same(ours(), rank_scores(out, target)), "tiles rank otherwise"
    case = f"embeddings {B} x {N}, d = {d}"
    return together(
        case,
        ("product, preallocated", "floor", lambda: torch.mm(queries, candidates.T, out=out)),
        ("rank_embeddings", "ours", ours),
        ("product, then rank_scores", "peer", lambda: rank_scores(queries @ candidates.T, target)),
        least=7,
    )


if __name__ == "__main__":
    main()
