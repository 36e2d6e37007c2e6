"""Writes what 0.1.0 leaves behind: run it with the sources of that version, commit b7358c7, on the path.

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
        metric.update(scores, target, exclude=exclude, side=side, group=group, weight=weight, sample_id=ids)
    metric.update(trm.Ranks([4, 9], [4, 12], [1000, 40]), side="tail", group=[-5, 1 << 40], sample_id=[7, 8])
    return metric


if __name__ == "__main__":
    assert trm.__version__ == "0.1.0"
    collection = updated(
        trm.RankCollection(sides=("both", "tail"), rank_types=("realistic", "expected"), prefix="val/")
    )
    single = updated(trm.MeanReciprocalRank(view="z_score", average="macro"))
    module = torch.nn.ModuleDict({"collection": collection, "single": single})
    for metric in (collection, single):
        metric.persistent(True)
    torch.save(module.state_dict(), HERE / "checkpoint_0_1.pt")
    collection.table().save(HERE / "ranks_0_1.npz")
    values = {key: value.item() for key, value in collection.compute().items()}
    told = {"collection": values, "single": single.compute().item()}
    (HERE / "values_0_1.json").write_text(json.dumps(told, indent=1) + "\n")
