"""Rows in a ``state_dict``: what is written beside them, and what is let in again."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.table.queries import check_queries

KEY = "rows"
_WRITER = "process"


def sign(state_dict: Any, prefix: str) -> None:
    """Note beside the state which process writes its rows."""
    metadata = getattr(state_dict, "_metadata", {})
    metadata.setdefault(prefix[:-1], {})[_WRITER] = _place()[0]


def checked(rows: Tensor | Sequence[Tensor], has_queries: bool) -> Tensor:
    """Give rows from outside as one (n, 9) tensor on the CPU; ``has_queries``: for metrics of queries.

    Raises:
        TypeError: if they are not int64 tensors.
        ValueError, IndexError: if they are not (n, 9), nor (n, 8), or hold what no update keeps.
    """
    tables = [RankTable(block) for block in ([rows] if isinstance(rows, Tensor) else rows)]
    checked_rows = RankTable.from_numpy(RankTable.concatenate(tables).to_numpy()).rows
    if has_queries:
        check_queries(checked_rows)
    return checked_rows


def loaded(
    state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any], errors: list[str], has_queries: bool
) -> Tensor | None:
    """Take the rows out of a state; None if there are none, or if they are refused, which is added to the errors.

    Of several processes that load one checkpoint, the one that wrote it takes the rows and the others start without:
    they come back once.
    """
    if prefix + KEY not in state_dict:
        return None
    try:
        rows = checked(state_dict.pop(prefix + KEY), has_queries)
    except (TypeError, ValueError, IndexError) as error:
        errors.append(f"{prefix}{KEY}: {error}")
        return None
    rank, world = _place()
    return rows if metadata.get(_WRITER, 0) % world == rank else rows[:0]


def _place() -> tuple[int, int]:
    """Rank of this process, and how many there are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
