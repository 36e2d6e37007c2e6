"""Graphs as folders of train.tsv, valid.tsv and test.tsv: integer ids head, relation, tail in a line."""

from pathlib import Path

import numpy as np
import torch


def read_ids(path: Path) -> torch.Tensor:
    """Read a file of integers separated by tabs: (n, columns) int64."""
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, delimiter="\t", ndmin=2))


def read_splits(folder: Path) -> list[torch.Tensor]:
    """Read train, valid and test of a folder, each (n, 3)."""
    return [read_ids(folder / f"{split}.tsv") for split in ("train", "valid", "test")]
