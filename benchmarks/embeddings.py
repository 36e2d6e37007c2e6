"""Ranks of embeddings and the bare float32 product: easy, hard, trained numbers, many candidates.

python -m benchmarks.embeddings [--full] [--threads N] [--json PATH] [--data FOLDER] [--tasks N]
[--models FOLDER]

The first cases compare random, trained, integer, repeated, rectified, equal and shifted embeddings
with the product in batches of 256 queries and 4096 candidates, in turns. FOLDER has the directories
fb15k237 and wn18rr, each with train.tsv, valid.tsv and test.tsv of integer ids; without it a random
graph is used. The models are DistMult, trained for a few epochs. The product is measured alone,
without counting: in batches of 256 queries with all candidates or with 4096; in blocks of 1024 x
1024; and whole, as ``queries @ candidates.T`` in new memory. For one thread CPU time is measured.
FAISS (faiss-cpu), if installed, searches the 100 nearest, which gives unfiltered ranks up to 100.
PyKEEN evaluates some of the test triples. The JSON is written after every case; --models FOLDER
saves the trained models.
"""

import contextlib
import functools
import importlib.util
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.timing import arguments, read_splits, report, save, together

from torchrankmetrics import (
    KnownTriples,
    Ranks,
    RankTable,
    evaluate,
    rank_embeddings,
    rank_scores,
    rank_triples,
)
from torchrankmetrics.kg import EmbeddingScorer
from torchrankmetrics.ranking import Candidates

HAS_FAISS = importlib.util.find_spec("faiss") is not None
HAS_PYKEEN = importlib.util.find_spec("pykeen") is not None
SOME = 200  # test triples that PyKEEN evaluates
GRAPHS = {"fb15k237": "FB15k-237", "wn18rr": "WN18RR"}
Way = tuple[str, str, Callable[[], Any]]


def main() -> None:
    given = arguments(__doc__.splitlines()[0], folder=True, models=True)
    result: list[dict[str, Any]] = []
    for some in cases(given.full, given.data, given.tasks, given.models):
        result += some
        save(result, given.json)  # what is there already if it is stopped
    report(result, given.json)


def rows(full: bool, folder: Path | None = None, tasks: int | None = None) -> list[dict[str, Any]]:
    return [row for some in cases(full, folder, tasks) for row in some]


def cases(
    full: bool, folder: Path | None = None, tasks: int | None = None, models: Path | None = None
) -> Iterator[list[dict[str, Any]]]:
    for shape, kind, similarity in FULL if full else SOME_NUMBERS:
        yield numbers(*shape, kind, similarity)
    for width in (200, 512) if full else (64,):
        for name, title in GRAPHS.items() if folder is not None else [("made up", "made up")]:
            splits = made_up() if folder is None else read_splits(folder / name)
            splits[2] = splits[2][
                torch.randperm(len(splits[2]), generator=torch.Generator().manual_seed(7))[:tasks]
            ]
            kept = None if models is None else models / f"{name}_{width}.pt"
            yield evaluation(
                f"{title} d = {width}", splits, width, 3 if full and width == 200 else 1, kept
            )
        if width < 512:
            for queries, candidates in (
                ((64, 1_000_000), (1000, 200_000)) if full else ((64, 20_000),)
            ):
                yield search(queries, candidates, 200)
    for width in (64, 200, 512) if full else ():  # where what is not the product weighs most
        yield search(1000, 15_000, width)
    for candidates in (8_000, 4_000) if full else ():
        yield search(1000, candidates, 64)


SMALL, MEDIUM, LARGE = (1000, 15_000, 128), (5000, 25_000, 64), (1000, 1_000_000, 128)
SOME_NUMBERS = [((100, 2000, 64), kind, "dot") for kind in ("random", "integers")]
FULL = [(MEDIUM, kind, "dot") for kind in ("random", "trained", "rectified")]
FULL += [(MEDIUM, "rectified", "cosine"), ((64, 40_943, 200), "random", "dot")]
FULL += [(SMALL, kind, "dot") for kind in ("integers", "copies", "equal")]
FULL += [(SMALL, "integers", "l2"), (SMALL, "shifted", "l2"), (SMALL, "random", "l1")]
FULL += [(LARGE, kind, "dot") for kind in ("random", "trained")]


def numbers(B: int, N: int, d: int, kind: str, similarity: str) -> list[dict[str, Any]]:
    """Queries and candidates of one kind; "shifted" has a mean of 100 standard deviations."""
    generator = torch.Generator().manual_seed(1)
    candidates = torch.randn(N, d, generator=generator)
    target = torch.randint(0, N, (B,), generator=generator)
    queries = torch.randn(B, d, generator=generator)
    if kind == "trained":
        queries = candidates[target] + 0.8 * queries
    elif kind == "integers":
        queries, candidates = ((1.5 * x).round().clamp(-2, 2) for x in (queries, candidates))
    elif kind == "copies":
        candidates = candidates[: (N + 3) // 4].repeat(4, 1)[:N].contiguous()
    elif kind == "rectified":
        queries, candidates = ((x - 1).relu() for x in (queries, candidates))
    elif kind == "equal":
        candidates = candidates[:1].repeat(N, 1)
    elif kind == "shifted":
        queries, candidates = queries + 100, candidates + 100

    def ours() -> Ranks:
        return rank_embeddings(queries, candidates, target, similarity=similarity)

    ways: list[Way] = [
        ("product, 256 x 4096", "floor", lambda: multiplied(queries, candidates, (256, 4096))),
        ("rank_embeddings", "ours", ours),
    ]
    return in_turns(f"{B} x {N}, d = {d}, {kind}, {similarity}", *ways, rounds=3, least=1)


def in_turns(case: str, *ways: Way, **options: int) -> list[dict[str, Any]]:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    return together(case, *ways, clock=clock, **options)


def made_up() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    triples = torch.stack(
        [torch.randint(0, n, (6000,), generator=generator) for n in (2000, 10, 2000)], 1
    )
    return [triples[:4000], triples[4000:5000], triples[5000:]]


def trained(
    triples: torch.Tensor, sizes: tuple[int, int], width: int, epochs: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """DistMult by a softmax over the entities of the batch, on both sides."""
    generator = torch.Generator().manual_seed(0)
    entities, relations = (
        torch.randn(n, width, generator=generator).mul_(0.1).requires_grad_() for n in sizes
    )
    of = functools.partial(torch.nn.functional.embedding, sparse=True)
    optimiser = torch.optim.Adagrad([entities, relations], lr=0.1)
    for _ in range(epochs):
        for batch in triples[torch.randperm(len(triples), generator=generator)].split(1024):
            h, r, t = (
                of(batch[:, 0], entities),
                of(batch[:, 1], relations),
                of(batch[:, 2], entities),
            )
            own = torch.arange(len(batch))
            loss = sum(
                torch.nn.functional.cross_entropy((x * r) @ y.T, own) for x, y in ((h, t), (t, h))
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return entities.detach(), relations.detach()


def evaluation(
    case: str, splits: list[torch.Tensor], width: int, epochs: int, kept: Path | None = None
) -> list[dict[str, Any]]:
    # of what is not evaluated nothing is filtered either
    every, test = torch.cat(splits), splits[2]
    sizes = int(every[:, [0, 2]].max()) + 1, int(every[:, 1].max()) + 1
    if kept is not None and kept.exists():
        entities, relations = torch.load(kept)
    else:
        entities, relations = trained(splits[0], sizes, width, epochs)
        if kept is not None:
            torch.save((entities, relations), kept)
    known = KnownTriples(*splits, num_entities=sizes[0])

    def by_embeddings(some: torch.Tensor = test) -> RankTable:
        held = Candidates(entities)  # made anew: what it costs is part of the evaluation
        tails = EmbeddingScorer(lambda h, r: entities[h] * relations[r], held)
        heads = EmbeddingScorer(lambda r, t: entities[t] * relations[r], held)
        return rank_triples(tails, heads, some, known, progress=False)

    def by_scores() -> RankTable:
        tails = lambda h, r: (entities[h] * relations[r]) @ entities.T  # noqa: E731
        return rank_triples(
            tails,
            lambda r, t: (entities[t] * relations[r]) @ entities.T,
            test,
            known,
            progress=False,
        )

    def product(shape: tuple[int, int]) -> None:
        for columns in ([0, 1], [2, 1]):
            queries = torch.unique(test[:, columns], dim=0)
            multiplied(entities[queries[:, 0]] * relations[queries[:, 1]], entities, shape)

    table = by_embeddings()
    about = evaluate(table, metrics=["mrr"])["mrr"]
    apart = (table.ranks.optimistic != by_scores().ranks.optimistic).float().mean()
    print(
        f"{case}: MRR {about:.3f}; {apart:.3%} of the optimistic ranks of float32 scores are others"
    )
    ways: list[Way] = [
        ("product, 256 x all", "floor", lambda: product((256, sizes[0]))),
        ("product, 1024 x 1024", "floor", lambda: product((1024, 1024))),
        ("rank_triples of embeddings", "ours", by_embeddings),
        ("rank_triples of scores", "ours", by_scores),
    ]
    result = in_turns(f"{case}: {len(test)} triples, both sides", *ways, rounds=2, least=2)
    result += of_queries(
        case, entities, test[:1000, 2], entities[test[:1000, 0]] * relations[test[:1000, 1]]
    )
    if HAS_PYKEEN:
        some = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(1))[:SOME]]
        batch = (
            256 if width <= 200 else 32
        )  # it holds the product of every query, relation and entity, number by number
        peer = pykeen_evaluation(entities, relations, every, splits, some, batch)
        ways = [
            ("rank_triples of embeddings", "ours", lambda: by_embeddings(some)),
            (f"pykeen evaluate, batch {batch}", "peer", peer),
        ]
        result += in_turns(f"{case}: {SOME} triples, both sides", *ways, rounds=1, least=1)
    return result


def of_queries(
    case: str, entities: torch.Tensor, target: torch.Tensor, queries: torch.Tensor
) -> list[dict[str, Any]]:
    """One call, which prepares the candidates; nothing is filtered."""
    ways: list[Way] = [
        (
            "product, 256 x all",
            "floor",
            lambda: multiplied(queries, entities, (256, len(entities))),
        ),
        ("product, 1024 x 1024", "floor", lambda: multiplied(queries, entities, (1024, 1024))),
        ("product, whole", "floor", lambda: queries @ entities.T),
        (
            "rank_embeddings",
            "ours",
            lambda: rank_embeddings(queries, entities, target.contiguous()),
        ),
    ]
    return in_turns(f"{case}: {len(target)} queries", *ways, rounds=4, least=2)


def multiplied(queries: torch.Tensor, candidates: torch.Tensor, shape: tuple[int, int]) -> None:
    out = torch.empty(shape[0] * shape[1])
    for some in queries.split(shape[0]):
        for tile in candidates.split(shape[1]):
            torch.mm(some, tile.T, out=out[: len(some) * len(tile)].view(len(some), len(tile)))


def pykeen_evaluation(
    entities: torch.Tensor,
    relations: torch.Tensor,
    every: torch.Tensor,
    splits: list[torch.Tensor],
    some: torch.Tensor,
    batch: int,
) -> Callable[[], Any]:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import DistMult
    from pykeen.triples import CoreTriplesFactory

    model = DistMult(
        triples_factory=CoreTriplesFactory.create(every),
        embedding_dim=entities.shape[1],
        random_seed=0,
    )
    model.entity_representations[0]._embeddings.weight.data = entities
    model.relation_representations[0]._embeddings.weight.data = relations
    model.eval()

    def run() -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            evaluator = RankBasedEvaluator(filtered=True)
            evaluator.evaluate(
                model, some, batch_size=batch, use_tqdm=False, additional_filter_triples=splits
            )

    return run


def search(B: int, N: int, d: int) -> list[dict[str, Any]]:
    """Queries near their targets, 3.5 standard deviations above the others; and random ones."""
    generator = torch.Generator().manual_seed(2)
    result = []
    for model, shift in (("good", 3.5), ("poor", 0.5)):
        queries, candidates = (
            torch.randn(B, d, generator=generator),
            torch.randn(N, d, generator=generator),
        )
        target = torch.randint(0, N, (B,), generator=generator)
        unit = queries / queries.norm(dim=1, keepdim=True)
        candidates[target] += (shift - (candidates[target] * unit).sum(1, keepdim=True)) * unit
        held = Candidates(candidates)
        ways: list[Way] = [
            (
                "product, 256 x 4096",
                "floor",
                lambda q=queries, e=candidates: multiplied(q, e, (256, 4096)),
            ),
            (
                "product, 1024 x 1024",
                "floor",
                lambda q=queries, e=candidates: multiplied(q, e, (1024, 1024)),
            ),
            ("product, whole", "floor", lambda q=queries, e=candidates: q @ e.T),
            (
                "rank_embeddings, Candidates kept",
                "ours",
                lambda q=queries, h=held, t=target: rank_embeddings(q, h, t),
            ),
            (
                "rank_embeddings",
                "ours",
                lambda q=queries, e=candidates, t=target: rank_embeddings(q, e, t),
            ),
            (
                "product, then rank_scores",
                "ours",
                lambda q=queries, e=candidates, t=target: rank_scores(q @ e.T, t),
            ),
        ]
        if HAS_FAISS:
            import faiss

            faiss.omp_set_num_threads(torch.get_num_threads())
            index = faiss.IndexFlatIP(d)
            index.add(candidates.numpy())
            ways.append(
                ("faiss, 100 nearest", "peer", lambda q=queries, i=index: i.search(q.numpy(), 100))
            )
        rounds = 2 if B * N * d > 1 << 33 else 12  # more of what is short
        result += in_turns(f"{B} x {N}, d = {d}, {model} model", *ways, rounds=rounds, least=2)
    return result


if __name__ == "__main__":
    main()
