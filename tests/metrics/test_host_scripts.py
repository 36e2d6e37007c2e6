"""Random programs on plain collections: for any calls, every metric has the bits it has alone."""

import copy
import json
import os
import pickle
import random

import pytest
import torch
from torchmetrics import Metric, MetricCollection

from scripts import ROOT, forked
from torchrankmetrics import (
    HitsAtK,
    MeanRank,
    MeanReciprocalRank,
    RankCollection,
    RankCount,
    RankMetric,
)
from torchrankmetrics.metrics import buffer as buffer_module


class HostRanks(Metric):
    """Mean rank as one writes it on torchmetrics: a list of all ranks."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("ranks", [], dist_reduce_fx="cat")

    def update(self, scores, target):
        self.ranks.append((scores > scores.gather(1, target[:, None])).sum(1) + 1)

    def compute(self):
        return torch.cat(self.ranks).double().mean() if self.ranks else torch.tensor(torch.nan)


# the first by name is ours: a refused batch then changes none of the others
MEMBERS = {
    "a_mrr": MeanReciprocalRank,
    "count": RankCount,
    "host_ranks": lambda storage: HostRanks(),
    "mr": MeanRank,
}
NESTED = {
    "set_hits_at_2": lambda **kw: HitsAtK(2, **kw),
    "set_z_mr": lambda **kw: MeanRank(view="z_score", **kw),
}
GROUPS = [["a_mrr", "count", "mr"], ["set_hits_at_2", "set_z_mr"], ["host_ranks"]]
COPIES = [MetricCollection.clone, copy.deepcopy, lambda plain: pickle.loads(pickle.dumps(plain))]
READ = {
    "items": lambda plain: dict(plain.items()),
    "by reference": lambda plain: dict(plain.items(copy_state=False)),
    "values": lambda plain: dict(zip(plain.keys(), plain.values(), strict=True)),
    "index": lambda plain: {key: plain[key] for key in plain},
}


def batch(rng):
    generator = torch.Generator().manual_seed(rng.randrange(10**9))
    scores = torch.stack(
        [torch.randperm(7, generator=generator) for _ in range(rng.randint(1, 5))]
    ).float()
    return scores, torch.randint(0, 7, (len(scores),), generator=generator)


def check(values, metrics):
    found = {key: value.double().item().hex() for key, value in values.items()}
    assert found == {key: metric.compute().double().item().hex() for key, metric in metrics.items()}


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")
@pytest.mark.filterwarnings("ignore:.*is undefined")
@pytest.mark.parametrize(
    "groups", [True, False, GROUPS], ids=["groups", "no groups", "explicit groups"]
)
@pytest.mark.parametrize("seed", range(12))
def test_any_program_gives_each_metric_the_bits_it_has_alone(seed, groups, monkeypatch):
    monkeypatch.setattr(buffer_module, "_COMPACT_FROM", 8)
    rng = random.Random(seed)
    storage, is_updated = rng.choice(["ranks", "counts"]), False
    alone = {key: make(storage=storage) for key, make in (MEMBERS | NESTED).items()}
    members = {key: make(storage=storage) for key, make in MEMBERS.items()}
    nested = {"set": RankCollection(["hits_at_2", "z_mr"], storage=storage)}
    plain = MetricCollection(members | nested, compute_groups=groups)
    for _ in range(20):
        step = rng.choice(
            ["update", "forward", "refused", "compute", "reset", "copy", "read", "add"]
        )
        scores, target = batch(rng)
        if step in ("update", "forward"):
            is_updated, of_batch = True, {key: metric.clone() for key, metric in alone.items()}
            for metric in of_batch.values():
                metric.reset()
            for metric in (*alone.values(), *of_batch.values()):
                metric.update(scores, target)
            if step == "update":
                plain.update(scores, target)
            else:
                check(plain(scores, target), of_batch)
        elif step == "refused":
            with pytest.raises(IndexError, match="target"):
                rng.choice([plain, plain.update])(scores, target + 7)
        elif step == "compute":
            check(plain.compute(), alone)
        elif step == "reset":
            is_updated = False
            for metric in (plain, *alone.values()):
                metric.reset()
        elif step == "copy":
            other = rng.choice(COPIES)(plain)
            plain, other = (plain, other) if rng.random() < 0.5 else (other, plain)
            other(scores, target)  # what happens to one is not seen by the other
            other.reset()
        elif step == "read" and is_updated:
            check(
                {
                    key: member.compute()
                    for key, member in rng.choice([*READ.values()])(plain).items()
                },
                alone,
            )
        elif step == "add" and "z_mrr" not in alone:
            late = MeanReciprocalRank(view="z_score", storage=storage)
            plain.add_metrics({"z_mrr": late.clone()})
            alone["z_mrr"] = late
        for metric in plain._modules.values() if storage == "counts" else ():  # which ties nothing
            # 7 distinct rows, as many again before they are merged, one update
            if isinstance(metric, RankMetric):
                assert sum(map(len, metric.rows)) <= 7 + 8 + 5


SLOW = [
    "compile.step",
    "compile.modules",
    "compile.functions",
    "compile.lightning",
    "script.lightning",
    "cast.lightning",
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a fork")
@pytest.mark.parametrize(
    "arguments",
    [
        ["script", "cast"],
        *(pytest.param([program], marks=pytest.mark.slow) for program in SLOW),
        pytest.param(["--without-numba", "compile.functions"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_host_changes_no_value(arguments: list[str]) -> None:
    """Compiled, scripted and cast by a host, in processes that have computed nothing else."""
    ended = forked(
        ROOT / "tests" / "helpers" / "fresh_programs.py",
        *arguments,
        cwd=ROOT,
        anew=["torchrankmetrics"],
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "recompile_limit" not in ended.stderr  # Dynamo gives up on such a function and warns
    results = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert {result["program"] for result in results} == {*arguments} - {"--without-numba"}
    for result in results:
        assert "alone" in result, result["converted"]
        assert result["converted"] == result["alone"], result["program"]
