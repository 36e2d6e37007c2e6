"""Studies to test with: tables of ranks of several models, data sets and seeds."""

import numpy as np
import torch

from scripts import ROOT
from torchrankmetrics import Ranks, RankTable
from torchrankmetrics.study import RankStudy

# 57 tables of a published model; not in every checkout
ULTRA = ROOT.parent / "shared" / "data" / "ultra"
SKILL = {"a": 1.4, "b": 1.0, "c": 0.9}
SIZES = {"small": (40, 9), "middle": (120, 50), "large": (300, 400)}


def table_of(model: str, dataset: str, seed: int) -> RankTable:
    """Tails with ties, groups and sample ids; models of a dataset share tasks and candidates."""
    size, most = SIZES[dataset]
    tasks = np.random.default_rng([size])
    candidates = tasks.integers(most // 2, most + 1, size)
    hard = tasks.random(size)
    own = np.random.default_rng([size, ord(model[0]), seed])
    share = (hard * own.random(size)) ** SKILL[model]
    low = 1 + np.floor(share * (candidates - 1)).astype(np.int64)
    high = np.minimum(low + own.integers(0, 2, size), candidates)
    ids = torch.arange(size)
    return RankTable.from_ranks(
        Ranks(low, high, candidates), side="tail", group=ids % 30, sample_id=ids
    )


def study_of(
    models: str = "abc", datasets: tuple[str, ...] = tuple(SIZES), seeds: int = 1
) -> RankStudy:
    study = RankStudy()
    for dataset in datasets:
        for model in models:
            for seed in range(seeds):
                study.add(table_of(model, dataset, seed), model=model, dataset=dataset, seed=seed)
    return study
