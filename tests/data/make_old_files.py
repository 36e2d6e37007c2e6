"""Write files and checkpoints of a release, to be run with its sources (0.1.0: commit b7358c7).

PYTHONPATH=../torchrankmetrics-0.1/src python tests/data/make_old_files.py
"""

import json
from pathlib import Path

import torch

import torchrankmetrics as trm

HERE = Path(__file__).parent


def updated(metric: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(1)
    for side in ("head", "tail"):
        scores = torch.randint(0, 12, (20, 30), generator=generator).float()  # with ties
        scores[3, 7] = torch.nan
        weight = torch.rand(20, generator=generator, dtype=torch.float64)
        target, exclude = torch.arange(20), torch.stack([torch.arange(20), torch.arange(20) + 1])
        group, ids = torch.arange(20) % 3, torch.arange(20) * 5 - 9
        metric.update(
            scores, target, exclude=exclude, side=side, group=group, weight=weight, sample_id=ids
        )
    metric.update(
        trm.Ranks([4, 9], [4, 12], [1000, 40]), side="tail", group=[-5, 1 << 40], sample_id=[7, 8]
    )
    if version != "0_1":  # several relevant items of one row, and of a named query
        scores = torch.randint(0, 12, (4, 30), generator=generator).float()
        relevant = torch.rand(4, 30, generator=generator) < 0.2
        metric.update(scores, relevant, side="tail", group=torch.arange(4))
        for column in (3, 8):
            metric.update(
                scores[:1], torch.tensor([column]), exclude=[[3, 8]], side="tail", group=0, query=5
            )
    return metric


if __name__ == "__main__":
    version = trm.__version__.rpartition(".")[0].replace(".", "_")
    names = (
        None if version == "0_1" else ["mrr", "amri", "z_gmr", "hits_at_3", "ap", "ndcg", "z_rr"]
    )
    collection = updated(
        trm.RankCollection(
            names, sides=("both", "tail"), rank_types=("realistic", "expected"), prefix="val/"
        )
    )
    single = updated(trm.MeanReciprocalRank(view="z_score", average="macro"))
    module = torch.nn.ModuleDict({"collection": collection, "single": single})
    for metric in (collection, single):
        metric.persistent(True)
    torch.save(module.state_dict(), HERE / f"checkpoint_{version}.pt")
    collection.table().save(HERE / f"ranks_{version}.npz")
    values = {key: value.item() for key, value in collection.compute().items()}
    computed = {"collection": values, "single": single.compute().item()}
    (HERE / f"values_{version}.json").write_text(json.dumps(computed, indent=1) + "\n")
