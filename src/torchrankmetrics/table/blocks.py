"""What an update is given (scores, ranks, or a whole table of ranks) as one block of rows."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.checks import is_number
from torchrankmetrics.ranking.arrays import Integers, Numbers, as_tensor
from torchrankmetrics.ranking.excluded import Exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.relevance import is_by_row, rank_flat
from torchrankmetrics.ranking.scores import Target, rank_with_rows
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.sides import TaskSide
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.table.rows import rows_of


def make_block(
    preds: Tensor | Ranks | RankTable,
    target: Target | None,
    exclude: Exclude,
    *,
    side: TaskSide | None,
    group: Integers | None,
    weight: Numbers | None,
    sample_id: Integers | None,
    query: Integers | None = None,
    indexes: Integers | None = None,
    counting: str = "auto",
    tolerance: float | Tolerance = 0.0,
) -> Tensor:
    """Turn scores, ranks or a table, and what is known of their tasks into one int64 (tasks, 9) block of rows.

    Arguments and errors as ``RankMetric.update``; what ranks or a table have already must not be given.
    """
    about: dict[str, Any] = {"side": side, "group": group, "weight": weight, "sample_id": sample_id, "query": query}
    if torch.is_inference_mode_enabled():  # where Lightning evaluates; rows are ordinary tensors that outlive it
        with torch.inference_mode(False):
            return make_block(preds, target, exclude, **about, indexes=indexes, counting=counting, tolerance=tolerance)
    if tolerance != 0.0 and (indexes is not None or not isinstance(preds, Tensor)):
        what = (
            "indexes: flat scores are ranked by sorting them" if isinstance(preds, Tensor) else "ranks that are there"
        )
        raise ValueError(f"tolerance is for scores (B, N) and must not be given with {what}")
    if isinstance(preds, RankTable):
        _refuse_given(preds, target=target, exclude=exclude, indexes=indexes, **about)
        return preds.rows.clone()
    if isinstance(preds, Ranks):
        if target is not None or exclude is not None or indexes is not None:
            _refuse_given(preds, target=target, exclude=exclude, indexes=indexes)
        ranks = preds
    elif not isinstance(preds, Tensor):
        raise TypeError(
            f"preds must be a torch.Tensor of scores (B, N), a Ranks or a RankTable, got {type(preds).__name__}"
            + ("; pass torch.from_numpy(preds)" if isinstance(preds, np.ndarray) else "")
        )
    elif target is None:
        raise ValueError(
            "target is missing: pass (B,) columns of the true candidates, or Ranks or a RankTable instead of scores"
        )
    elif preds.ndim == 1 and indexes is None:
        raise ValueError(
            f"scores must be (B, N): one row of candidate scores per query; got {tuple(preds.shape)}. Flat scores (T,) "
            "need indexes (T,), the query of each"
        )
    elif indexes is not None:
        ranks, place = rank_flat(preds, target, indexes, exclude)
        group, weight = _at(group, "group", place, preds), _at(weight, "weight", place, preds)
        sample_id, query = _at(sample_id, "sample_id", place, preds), _at(query, "query", place, preds)
    else:
        ranks = rank_with_rows(preds, target, exclude, named=query is not None, counting=counting, tolerance=tolerance)
        if ranks.rows is not None:
            row, _ = ranks.rows
            query = _at(query, "query", row, preds)
            if is_by_row(target):
                group, weight = _at(group, "group", row, preds), _at(weight, "weight", row, preds)
    about = {"side": side, "group": group, "weight": weight, "sample_id": sample_id, "query": query}
    return rows_of(ranks, **about, flag_repeats=True)


def _at(values: Any, name: str, index: Tensor, preds: Tensor) -> Any:
    """What is said of every row of scores, (B,), for tasks in these rows; None and one number stay."""
    if values is None or is_number(values):
        return values
    tensor = as_tensor(values, name)
    if tensor.shape != preds.shape[:1]:
        raise ValueError(
            f"{name} must be {tuple(preds.shape[:1])}, one entry per row of preds {tuple(preds.shape)}; "
            f"got {tuple(tensor.shape)}"
        )
    return tensor.to(index.device)[index]


def _refuse_given(preds: Ranks | RankTable, **options: Any) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        names = " and ".join(given)
        raise ValueError(f"{names} must not be given with a {type(preds).__name__}: it has them already")
