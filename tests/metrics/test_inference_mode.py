"""Lightning evaluates under inference mode on NCCL: rows stored inside are used outside, and the reverse."""

import functools
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from torchrankmetrics import RankCollection, Ranks, rank_scores
from torchrankmetrics.metrics import state as state_module

NAMES = ["mrr", "mr", "z_mrr", "hits_at_3", "median_rank"]
MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {"inside": torch.inference_mode, "outside": nullcontext}
SOURCES = ["scores", "ranks", "accumulated"]


def data(seed: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 9, (5, 11), generator=generator).float()
    target = torch.randint(0, 11, (5,), generator=generator)
    columns = {
        "group": torch.randint(0, 3, (5,), generator=generator),
        "weight": torch.rand(5, generator=generator),
        "sample_id": torch.arange(5) + 5 * seed,
    }
    return scores, target, columns


def update(metric: Any, seed: int, source: str = "scores") -> None:
    scores, target, columns = data(seed)
    if source == "scores":
        metric.update(scores, target, **columns)
    elif source == "ranks":
        ranks = rank_scores(scores, target)
        metric.update(Ranks(ranks.optimistic, ranks.pessimistic, ranks.num_candidates), **columns)
    else:
        metric(scores, target, **columns)


def bits(metric: RankCollection) -> list[str]:
    return [value.item().hex() for value in metric.compute().values()]


@functools.cache
def expected(*seeds: int) -> list[str]:
    metric = RankCollection(NAMES)
    for seed in seeds:
        update(metric, seed)
    return bits(metric)


@pytest.fixture(params=["ranks", "counts"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(state_module, "_COMPACT_FROM", 3)  # counts are merged often
    return str(request.param)


@pytest.mark.parametrize("source", SOURCES)
def test_updates_in_any_order_of_modes(storage: str, source: str) -> None:
    for first, second, third in itertools.product(MODES, repeat=3):
        metric = RankCollection(NAMES, storage=storage)
        with MODES[first]():
            update(metric, 1, source)
            assert bits(metric) == expected(1)
        with MODES[second]():
            update(metric, 2, source)
            assert bits(metric) == expected(1, 2)
        with MODES[third]():
            assert bits(metric) == expected(1, 2)
            metric.reset()
            update(metric, 3, source)
            assert bits(metric) == expected(3)


@pytest.mark.parametrize("source", SOURCES)
def test_stored_rows_are_ordinary_tensors(storage: str, source: str) -> None:
    metric = RankCollection(NAMES, storage=storage, compute_on_cpu=True)
    with torch.inference_mode():
        for seed in (1, 2, 3):
            update(metric, seed, source)
        metric.to("cpu")
        metric.compute()
    rows = next(iter(metric.values(copy_state=False))).rows
    assert rows
    assert not any(block.is_inference() for block in rows)
