"""Keys of what is drawn together: tasks of a group, of a triple, of a query."""

from typing import Literal

import numpy as np

from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.table.columns import ABSENT, Columns, Rows, weights
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
    array = as_ids(keys, "cluster").cpu().numpy()
    if array.shape != (size,):
        raise ValueError(
            f"cluster must have one key per row of {of}, shape ({size},); got {array.shape}. "
            "With sample ids: cluster = query_of[collection.table().sample_id]"
        )
    return array


def canonical_clusters(keys: Integers, rows: Rows, of: str) -> IntArray:
    """Clusters given for rows with sample ids, in the order that canonical rows of them have, repeats dropped.

    Raises:
        TypeError: if the keys are not integers.
        ValueError: if there is not one per row, or repeats of a task differ.
    """
    weighed = weights(rows) > 0
    own = given_clusters(keys, len(rows), of)[weighed]
    tasks = np.column_stack([Columns(rows).side, Columns(rows).sample_id])[weighed]
    _, first, index = np.unique(tasks, axis=0, return_index=True, return_inverse=True)
    if (own != own[first][index.reshape(-1)]).any():
        raise ValueError(f"cluster must be the same for all repeats of a task of {of}")
    return np.asarray(own[first])
