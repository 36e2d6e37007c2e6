"""What an update is given (scores, ranks, or a whole table of ranks) as one block of rows."""

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Integers, Numbers
from torchrankmetrics.ranking.excluded import Exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target, rank_scores
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
    counting: str = "auto",
) -> Tensor:
    """Turn scores, ranks or a table, and what is known of their tasks into one int64 (tasks, 8) block of rows.

    Arguments and errors as ``rank_scores`` and ``rows_of``; what ranks or a table have already must not be given.
    """
    if torch.is_inference_mode_enabled():  # where Lightning evaluates; rows are ordinary tensors that outlive it
        with torch.inference_mode(False):
            return make_block(
                preds, target, exclude, side=side, group=group, weight=weight, sample_id=sample_id, counting=counting
            )
    if isinstance(preds, RankTable):
        about = {"side": side, "group": group, "weight": weight, "sample_id": sample_id}
        _refuse_given(preds, target=target, exclude=exclude, **about)
        return preds.rows.clone()
    if isinstance(preds, Ranks):
        if target is not None or exclude is not None:
            _refuse_given(preds, target=target, exclude=exclude)
        ranks = preds
    elif not isinstance(preds, Tensor):
        raise TypeError(
            f"preds must be a torch.Tensor of scores (B, N), a Ranks or a RankTable, got {type(preds).__name__}"
        )
    elif target is None:
        raise ValueError(
            "target is missing: pass (B,) columns of the true candidates, or Ranks or a RankTable instead of scores"
        )
    else:
        ranks = rank_scores(preds, target, exclude=exclude, counting=counting)
    return rows_of(ranks, side=side, group=group, weight=weight, sample_id=sample_id, flag_repeats=True)


def _refuse_given(preds: Ranks | RankTable, **options: Any) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        names = " and ".join(given)
        raise ValueError(f"{names} must not be given with a {type(preds).__name__}: it has them already")
