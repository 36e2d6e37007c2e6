"""Tasks spread over processes, and their values on one: data and oracle of test_sync*.py."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from hypothesis import strategies as st

from bits import bits
from torchrankmetrics import MeanReciprocalRank, RankCollection, Ranks

STORAGES = ("ranks", "counts")
NAMES = (
    "mrr",
    "mr",
    "hits_at_1",
    "hits_at_3",
    "amri",
    "amr",
    "adjusted_mrr",
    "z_mrr",
    "adjusted_hits_at_3",
    "z_mr",
)
NAMES += (
    "gmr",
    "hmr",
    "imr",
    "median_rank",
    "rank_std",
    "rank_mad",
    "tie_rate",
    "count",
    "optimistic_mr",
)
NAMES += ("pessimistic_mrr", "expected_mrr", "head_mrr", "tail_amri")
Batch = dict[str, Any]  # the arguments of one update, as plain data
Shard = list[Batch]


def batch(tasks: list[tuple[int, ...]], side: str | None = None, **columns: Any) -> Batch:
    """Tasks as (optimistic, pessimistic, num_candidates); columns as lists."""
    return {"tasks": tasks, "side": side, **columns}


def update(metric: Any, *batches: Batch) -> None:
    for one in batches:
        ranks = Ranks(*torch.tensor(one["tasks"], dtype=torch.int64).reshape(-1, 3).T)
        columns = {
            name: torch.tensor(one[name])
            for name in ("group", "weight", "sample_id")
            if name in one
        }
        metric.update(ranks, side=one["side"], **columns)


def one_by_one(metrics: RankCollection) -> dict[str, str]:
    """The members' values as Lightning computes them."""
    return bits({str(key): member.compute() for key, member in metrics.items(copy_state=False)})


def collection(
    storage: str = "ranks", names: Any = NAMES, macro: bool = False, **kwargs: Any
) -> RankCollection:
    metrics = RankCollection(list(names), storage=storage, **kwargs)
    if macro:
        metrics.add_metrics({"macro_mrr": MeanReciprocalRank(average="macro", **kwargs)})
    return metrics


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_reused = functools.cache(collection)


def of_one_process(batches: Shard, names: Any = NAMES, macro: bool = False) -> dict[str, str]:
    metrics = _reused(names=tuple(names), macro=macro)
    metrics.reset()
    with quiet():
        update(metrics, *batches)
        return bits(metrics.compute())


HEAD = batch([(1, 1, 9), (2, 4, 12), (7, 7, 7)], "head")
TAIL = batch([(3, 3, 9), (5, 6, 30)], "tail")
EMPTY = batch([], "head")  # between two computes every process updates, some of them with nothing
MORE = batch([(2, 2, 14), (1, 3, 3), (4, 4, 9)], "tail")


@st.composite
def shardings(draw: st.DrawFn, max_size: int = 4) -> tuple[Shard, list[Shard]]:
    """Tasks in one batch per side, and spread over processes in batches, some of them repeated."""
    size = draw(st.integers(1, max_size))
    number = draw(st.integers(0, 12))
    tasks, columns = [], []
    named = draw(st.booleans())
    names = ("group", "weight", "sample_id") if named else ("group", "weight")
    for index in range(number):
        candidates = draw(st.integers(1, 40))
        low = draw(st.integers(1, candidates))
        tasks.append((low, draw(st.integers(low, candidates)), candidates))
        weight = draw(st.sampled_from([0.1, 1.0, 2.5, 1 / 3]))
        columns.append({"group": draw(st.integers(-3, 3)), "weight": weight, "sample_id": index})
    sides = [draw(st.sampled_from(["head", "tail"])) for _ in range(number)]

    def as_batches(indices: list[int]) -> Shard:
        by_side = {side: [i for i in indices if sides[i] == side] for side in ("head", "tail")}
        return [
            batch(
                [tasks[i] for i in chosen],
                side,
                **{name: [columns[i][name] for i in chosen] for name in names},
            )
            for side, chosen in by_side.items()
            if chosen
        ]

    shards: list[Shard] = [[] for _ in range(size)]
    places = [
        draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=2 if named else 1))
        for _ in range(number)
    ]
    for rank in range(size):
        # twice the same place: a repeat, too
        mine = [i for i in range(number) for place in places[i] if place == rank]
        mine = draw(st.permutations(mine))
        cut = draw(st.integers(0, len(mine)))
        shards[rank] = as_batches(list(mine[:cut])) + as_batches(list(mine[cut:]))
    return as_batches(list(range(number))), shards
