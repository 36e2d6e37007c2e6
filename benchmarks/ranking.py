"""Where other libraries are fast: several targets, exclusion, flat scores, negatives, embeddings.

python -m benchmarks.ranking [--full] [--threads N] [--json PATH]

CPU time; every case has a floor that cannot be beaten, and the way that a user would take without
this library.
"""

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from benchmarks.timing import arguments, report, together
from torch import Tensor

from torchrankmetrics import RankCollection, Ranks, evaluate, rank_embeddings, rank_scores
from torchrankmetrics.integrations.trec import evaluate_run

Rows = list[dict[str, Any]]
CUT_OFFS = (
    "recall_at_10",
    "recall_at_50",
    "precision_at_10",
    "success_at_10",
    "ndcg_at_10",
    "ndcg_at_50",
)
compare = partial(together, least=7, clock=time.process_time)


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    report(rows(given.full), given.json)


def distinct(rows_: int, columns: int, number: int, generator: torch.Generator) -> Tensor:
    """Distinct columns of each row, int64 (rows, number)."""
    return torch.rand(rows_, columns, generator=generator).topk(number, 1).indices


def mask_of(columns: Tensor, width: int) -> Tensor:
    return torch.zeros(len(columns), width, dtype=torch.bool).scatter_(1, columns, True)


def pairs_of(columns: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(len(columns)).repeat_interleave(columns.shape[1]), columns.flatten()


def recommender(users: int, items: int, width: int = 64, batch: int = 500) -> Rows:
    """Embeddings of users and items; 20 relevant, 50 seen items per user; six cut-off metrics."""
    generator = torch.Generator().manual_seed(0)
    user, item = (torch.randn(size, width, generator=generator) for size in (users, items))
    batches = []
    for some in torch.split(user, batch):
        columns = distinct(len(some), items, 70, generator)
        batches.append((some, columns[:, :20].clone(), columns[:, 20:].clone()))
    labels = [(mask_of(relevant, items), mask_of(seen, items)) for _, relevant, seen in batches]

    def product() -> None:
        for some, _, _ in batches:
            some @ item.T

    def top_k() -> dict[str, Tensor]:
        found: list[Tensor] = []
        discount = 1 / torch.arange(2, 52, dtype=torch.float64).log2()
        for (some, _, seen), (relevant, _) in zip(batches, labels, strict=True):
            scores = (some @ item.T).scatter_(1, seen, -torch.inf)
            hit = relevant.gather(1, scores.topk(50, 1).indices).double()
            gain = hit * discount
            sums = hit[:, :10].sum(1), hit.sum(1), gain[:, :10].sum(1) / discount[:10].sum()
            found.append(
                torch.stack(
                    [
                        sums[0] / 20,
                        sums[1] / 20,
                        sums[0] / 10,
                        hit[:, :10].amax(1),
                        sums[2],
                        gain.sum(1),
                    ]
                )
            )
        mean = torch.cat(found, 1).mean(1)
        mean[5] /= discount[:20].sum()
        return dict(zip(CUT_OFFS, mean, strict=True))

    def ours(form: str) -> dict[str, Tensor]:
        collection = RankCollection(CUT_OFFS)
        for (some, relevant, seen), (target, exclude) in zip(batches, labels, strict=True):
            scores = some @ item.T
            if form == "pairs":
                collection.update(scores, pairs_of(relevant), exclude=pairs_of(seen))
            else:
                collection.update(scores, target, exclude=exclude)
        return collection.compute()

    expected = top_k()
    for form in ("pairs", "bool"):
        assert all(
            abs(float(value - expected[name])) < 1e-9 for name, value in ours(form).items()
        ), form
    return compare(
        f"recommender {users} x {items}",
        ("product", "floor", product),
        ("top-k of torch", "peer", top_k),
        ("RankCollection, pairs", "ours", lambda: ours("pairs")),
        ("RankCollection, bool", "ours", lambda: ours("bool")),
    )


def several(users: int, items: int, relevant: int) -> Rows:
    """Ranks of many relevant items of each row, with lists or masks of excluded items."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(users, items, generator=generator)
    columns = distinct(users, items, relevant, generator)
    pairs, half = pairs_of(columns), torch.rand(users, items, generator=generator) < 0.5

    def sort() -> Tensor:
        ascending = scores.sort(1).values
        return items - torch.searchsorted(ascending, scores.gather(1, columns))

    assert torch.equal(rank_scores(scores, pairs).pessimistic, sort().flatten())
    return compare(
        f"{users} x {items}, {relevant} relevant",
        ("one read", "floor", scores.sum),
        ("sort and searchsorted", "peer", sort),
        ("rank_scores", "ours", lambda: rank_scores(scores, pairs)),
        ("the same excluded", "ours", lambda: rank_scores(scores, pairs, exclude=pairs)),
        ("half of all excluded", "ours", lambda: rank_scores(scores, pairs, exclude=half)),
    )


def one_with_mask(users: int, items: int) -> Rows:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(users, items, generator=generator)
    target, mask = torch.arange(users), torch.rand(users, items, generator=generator) < 0.5
    true = scores.gather(1, target[:, None])

    def plain() -> tuple[Tensor, Tensor]:
        kept = scores.masked_fill(mask, -torch.inf)
        return (kept > true).sum(1), (kept >= true).sum(1)

    assert torch.equal(rank_scores(scores, target, exclude=mask).optimistic, plain()[0] + 1)
    return compare(
        f"{users} x {items}, bool exclude",
        (
            "one read of both",
            "floor",
            lambda: (scores.sum(), mask.view(-1)[: mask.numel() // 4 * 4].view(torch.int32).sum()),
        ),
        ("masked_fill, two sums", "peer", plain),
        ("rank_scores", "ours", lambda: rank_scores(scores, target, exclude=mask)),
        ("rank_scores, nothing excluded", "ours", lambda: rank_scores(scores, target)),
    )


def flat(users: int, items: int) -> Rows:
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(users, items, generator=generator)
    relevant = mask_of(distinct(users, items, 20, generator), items)
    indexes = torch.arange(users).repeat_interleave(items)

    def ours(form: str) -> float:
        collection = RankCollection(["ap"])
        if form == "flat":
            collection.update(scores.flatten(), relevant.flatten(), indexes=indexes)
        else:
            collection.update(scores, relevant)
        return float(collection.compute()["ap"])

    ways: list[tuple[str, str, Callable[[], Any]]] = [
        ("RankCollection, matrix", "floor", lambda: ours("matrix")),
        ("RankCollection, flat", "ours", lambda: ours("flat")),
    ]
    assert ours("flat") == ours("matrix")
    if importlib.util.find_spec("torchmetrics"):
        from torchmetrics.retrieval import RetrievalMAP

        def peer() -> float:
            metric = RetrievalMAP()
            metric.update(scores.flatten(), relevant.flatten(), indexes=indexes)
            return float(metric.compute())

        assert abs(peer() - ours("flat")) < 1e-5
        ways.append(("torchmetrics RetrievalMAP", "peer", peer))
    return compare(f"flat scores {users} x {items}", *ways)


def embeddings(queries: int, candidates: int, width: int) -> Rows:
    """Ranks of embeddings against the tiled product with and without a comparison."""
    generator = torch.Generator().manual_seed(4)
    query, table = (torch.randn(size, width, generator=generator) for size in (queries, candidates))
    target = torch.randint(0, candidates, (queries,), generator=generator)

    def tiled(count: bool) -> Tensor:
        better = torch.zeros(queries, dtype=torch.int64)
        for some, own, found in zip(
            torch.split(query, 256), torch.split(target, 256), torch.split(better, 256), strict=True
        ):
            true = (some * table[own]).sum(1, keepdim=True)
            for part in torch.split(table, 4096):
                scores = some @ part.T
                if count:
                    found += (scores > true).sum(1)
        return better

    return compare(
        f"embeddings {queries} x {candidates}, d = {width}",
        ("tiled product", "floor", lambda: tiled(False)),
        ("tiled product, one sum", "peer", lambda: tiled(True)),
        ("rank_embeddings", "ours", lambda: rank_embeddings(query, table, target)),
    )


def ragged(lists: int) -> Rows:
    generator = torch.Generator().manual_seed(5)
    length = torch.randint(1, 100, (lists,), generator=generator)
    positive, negatives = (
        torch.rand(lists, generator=generator),
        list(torch.rand(int(length.sum()), generator=generator).split(length.tolist())),
    )

    def peer() -> tuple[Tensor, Tensor]:
        value, owner = torch.cat(negatives), torch.arange(lists).repeat_interleave(length)
        true = positive[owner]
        return torch.bincount(owner, value > true, lists), torch.bincount(
            owner, value >= true, lists
        )

    assert torch.equal(Ranks.from_negatives(positive, negatives).optimistic, peer()[0].long() + 1)
    return compare(
        f"{lists} ragged negatives",
        ("cat", "floor", lambda: torch.cat(negatives)),
        ("cat and compare", "peer", peer),
        ("Ranks.from_negatives", "ours", lambda: Ranks.from_negatives(positive, negatives)),
    )


def pyg(triples: int, nodes: int, width: int = 64) -> Rows:
    if not importlib.util.find_spec("torch_geometric"):
        return []
    from torch_geometric.nn import ComplEx, DistMult, RotatE, TransE

    from torchrankmetrics.integrations.pyg import rank_triples

    result: Rows = []
    for kind in (DistMult, ComplEx, TransE, RotatE):
        torch.manual_seed(6)
        model = kind(nodes, 20, width).eval()
        h, t = torch.randint(0, nodes, (2, triples))
        r = torch.randint(0, 20, (triples,))
        queries, table = torch.randn(2 * triples, width), torch.randn(nodes, width)

        def test(model: Any = model, h: Tensor = h, r: Tensor = r, t: Tensor = t) -> Any:
            return model.test(h, r, t, batch_size=20_000, log=False)

        def ours(model: Any = model, h: Tensor = h, r: Tensor = r, t: Tensor = t) -> Any:
            return rank_triples(model, (h, r, t), progress=False)

        result += compare(
            f"PyG {kind.__name__}, {triples} x {nodes}, both sides",
            ("product", "floor", lambda q=queries, e=table: q @ e.T),
            ("model.test, tails only", "peer", test),
            ("rank_triples", "ours", ours),
        )
    return result


def runs(queries: int, depth: int) -> Rows:
    """Dicts of runs and graded qrels; the floor reads the scores into an array."""
    rng = np.random.default_rng(7)
    documents = [f"d{i}" for i in range(100_000)]
    run, qrels = {}, {}
    for i in range(queries):
        listed = rng.choice(len(documents), depth, replace=False).tolist()
        run[f"q{i}"] = {
            documents[j]: score for j, score in zip(listed, rng.random(depth).tolist(), strict=True)
        }
        judged = [*listed[: rng.integers(1, 10)], *rng.choice(len(documents), 2).tolist()]
        qrels[f"q{i}"] = {
            documents[j]: int(label)
            for j, label in zip(judged, rng.integers(1, 4, 12), strict=False)
        }
    names = {"map": "ap", "recip_rank": "rr", "Rprec": "r_precision", "success_10": "success_at_10"}
    names |= {"ndcg_cut_10": "ndcg_at_10", "ndcg_cut_100": "ndcg_at_100", "P_10": "precision_at_10"}
    names |= {
        "P_100": "precision_at_100",
        "recall_10": "recall_at_10",
        "recall_100": "recall_at_100",
    }

    def ours() -> list[float]:
        return list(evaluate_run(qrels, run, list(names.values())).values())

    ways: list[tuple[str, str, Callable[[], Any]]] = [
        (
            "scores",
            "floor",
            lambda: np.fromiter(chain.from_iterable(of.values() for of in run.values()), float),
        ),
        ("evaluate_run", "ours", ours),
    ]
    if importlib.util.find_spec("pytrec_eval"):
        import pytrec_eval

        measures = {
            "map",
            "recip_rank",
            "Rprec",
            "success.10",
            "ndcg_cut.10,100",
            "P.10,100",
            "recall.10,100",
        }

        def peer() -> list[float]:
            found = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run).values()
            return [sum(one[name] for one in found) / len(found) for name in names]

        assert np.allclose(ours(), peer(), rtol=0, atol=1e-12)
        ways.append(("pytrec_eval", "peer", peer))
    return compare(f"run dicts {queries} x {depth}, ten metrics", *ways)


def small_batch(queries: int = 32, items: int = 40) -> Rows:
    """One small batch of labels: update of four metrics, and evaluate, by a few lines of torch."""
    generator = torch.Generator().manual_seed(8)
    scores = torch.rand(queries, items, generator=generator)
    labels = torch.rand(queries, items, generator=generator) < 0.15
    labels[:, 0] = True
    names = ["ndcg@10", "recall@10", "rr", "ap"]
    collection = RankCollection(names)
    discount, place = 1 / torch.log2(torch.arange(2.0, 12)), torch.arange(1, items + 1)

    def plain() -> list[float]:
        found = labels.gather(1, scores.argsort(dim=1, descending=True)).double()
        number, hits = found.sum(1), found.cumsum(1)
        ideal = discount.double().cumsum(0)[number.clamp(max=10).long() - 1]
        ndcg = (found[:, :10] * discount).sum(1) / ideal
        first = (found / place).amax(1)
        precision = (found * hits / place).sum(1) / number
        each = (ndcg, hits[:, 9] / number, first, precision)
        return [value.mean().item() for value in each]

    def ours() -> list[float]:
        return list(evaluate(scores, labels, metrics=names).values())

    assert np.allclose(ours(), plain(), rtol=1e-6)
    return compare(
        f"labels {queries} x {items}, four metrics",
        ("lines of torch", "floor", plain),
        ("update", "ours", lambda: collection.update(scores, labels)),
        ("evaluate", "ours", ours),
    )


def one_query(negatives: int = 20, number: int = 100) -> Rows:
    """A loop over single queries with sampled negatives, so many calls a run."""
    generator = torch.Generator().manual_seed(9)
    positive = torch.rand(number, 1, generator=generator)
    others = torch.rand(number, 1, negatives, generator=generator)
    collection = RankCollection(["mrr", "hits@10"])

    def plain() -> list[Tensor]:
        return [(other > own[:, None]).sum(1) for own, other in zip(positive, others, strict=True)]

    def ours(update: bool) -> None:
        for own, other in zip(positive, others, strict=True):
            ranks = Ranks.from_negatives(own, other)
            if update:
                collection.update(ranks)
        collection.reset()

    return compare(
        f"{number} calls of one query, {negatives} negatives",
        ("one sum", "floor", plain),
        ("Ranks.from_negatives", "ours", lambda: ours(False)),
        ("Ranks.from_negatives, update", "ours", lambda: ours(True)),
    )


def rows(full: bool) -> Rows:
    result = recommender(*((10_000, 20_000) if full else (1000, 5000)))
    for relevant in (100, 1000, 4000) if full else (100, 1000):
        result += several(64 if full else 16, 20_000, relevant)
    result += one_with_mask(64 if full else 16, 20_000)
    result += flat(200 if full else 20, 20_000)
    for sizes in (
        ((1000, 1_000_000, 128), (5000, 25_000, 128), (16_000, 2000, 128))
        if full
        else ((500, 10_000, 128),)
    ):
        result += embeddings(*sizes)
    result += runs(2000 if full else 200, 100) + small_batch() + one_query()
    return result + ragged(20_000 if full else 2000) + pyg(*((100, 14_541) if full else (20, 2000)))


if __name__ == "__main__":
    main()
