"""The command line in this process: files of ranks, and the output of a command."""

import json
from pathlib import Path

import torch

from torchrankmetrics import Ranks, RankTable
from torchrankmetrics.cli import main


def table_of(seed, top, sides=("head", "tail")):
    """60 tasks per side, ranks below ``top + 2``, ties, groups and sample ids.

    Every table has the same candidates.
    """
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.randint(45, 85, (60,), generator=torch.Generator().manual_seed(4))
    ids = torch.arange(60)
    tables = []
    for side in sides:
        low = torch.randint(1, top, (60,), generator=generator)
        high = low + torch.randint(0, 3, (60,), generator=generator)
        tables.append(
            RankTable.from_ranks(
                Ranks(low, high, candidates), side=side, group=ids % 3, sample_id=ids
            )
        )
    return RankTable.concatenate(tables)


def write_files(folder: Path):
    table_of(0, 20).save(folder / "a.npz")
    table_of(1, 25).save(folder / "b.npz")
    table_of(2, 25, sides=[None]).save(folder / "plain.npz")
    (folder / "train.tsv").write_text("a\tr\tb\n")


def output(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def records(capsys, *arguments):
    return json.loads(output(capsys, *arguments, "--format", "json"))["rows"]
