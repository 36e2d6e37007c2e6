"""Manifest: what a page embeds of every table, so that others can tell whether theirs is the same."""

import hashlib
import importlib.metadata
import platform
from typing import Any

import numpy as np

from torchrankmetrics.study.tasks import Read
from torchrankmetrics.table.columns import ABSENT, Columns, Rows
from torchrankmetrics.version import __version__

VERSION = 1


def card_of(read: Read) -> dict[str, Any]:
    """Card of a run: its names, its file, the digest of its rows, and how it was evaluated."""
    analysis = read.analysis
    columns = Columns(analysis.rows)
    protocol = {
        "tasks": int(columns.count.sum()),
        "sides": [str(side) for side in analysis.sides],
        "candidates": [int(columns.num_candidates.min()), int(columns.num_candidates.max())],
        "sampled": analysis.num_sampled,
        "nan": analysis.num_nan,
        "groups": len(np.unique(columns.group[columns.group != ABSENT])),
        "sample_ids": bool((columns.sample_id != ABSENT).all()),
    }
    run = read.run
    names = {"model": run.model, "dataset": run.dataset, "seed": run.seed, "file": run.file}
    return {**names, "sha256": digest(analysis.rows), "protocol": protocol}


def digest(rows: Rows) -> str:
    """SHA-256 of canonical rows (n, 9) int64: row by row, little-endian, sorted as ``RankTable.compact`` does."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()


def versions() -> dict[str, str]:
    """What computed the numbers."""
    others = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy")}
    # not from the metadata: of an editable installation they are as old as that
    return {"python": platform.python_version(), "torchrankmetrics": __version__} | others
