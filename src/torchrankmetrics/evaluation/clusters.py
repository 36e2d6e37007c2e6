"""Keys of what is drawn together: tasks of a group, of a triple, of a query."""

from typing import Literal

import torch

from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.table.columns import ABSENT, Columns, Rows
from torchrankmetrics.theory.candidates import IntArray

Cluster = Literal["group", "sample_id"] | Integers
"""What is drawn together: a column by its name, or a key for every task."""


def named_clusters(rows: Rows, name: str) -> IntArray:
    """Cluster of every row (n,) from a column.

    Raises:
        ValueError: if there is no such column, or a task has nothing in it.
    """
    if name not in ("group", "sample_id"):
        raise ValueError(f"cluster must be 'group', 'sample_id' or an int64 array, got {name!r}")
    keys = Columns(rows).group if name == "group" else Columns(rows).sample_id
    if (keys == ABSENT).any():
        raise ValueError(f"cluster={name!r} needs a {name} for every task: pass {name}= to every update")
    return keys


def given_clusters(keys: Integers, size: int, of: str) -> IntArray:
    """Cluster of every row (size,) from an array.

    Raises:
        TypeError: if the keys are not integers.
        ValueError: if there is not one per row.
    """
    array = as_ids(keys.cpu() if isinstance(keys, torch.Tensor) else keys, "cluster").numpy()
    if array.shape != (size,):
        raise ValueError(
            f"cluster must have one key per row of {of}, shape ({size},); got {array.shape}. "
            "With sample ids: cluster = query_of[collection.table().sample_id]"
        )
    return array
