"""``BootStrapper`` draws rows of tensors: an argument that is none, or has no row per task, would fall out of step."""

import sys
from typing import Any

import torch
from torch import Tensor
from torchmetrics.wrappers import BootStrapper

_FRAMES = 16  # from here to the wrapper, with arithmetic of metrics between
_IN_STEP = (Tensor, int, float, type(None))


def refuse_what_is_not_resampled(
    preds: Any, target: Any, exclude: Any, group: Any, weight: Any, sample_id: Any, query: Any, indexes: Any
) -> None:
    """Refuse, inside torchmetrics' ``BootStrapper``, what it leaves as it is or whose rows are no tasks.

    Raises:
        ValueError: naming the argument. Pairs of two rows would be drawn as if they were scores: a wrong number.
    """
    if not isinstance(preds, Tensor):
        odd = "preds"
    elif not isinstance(target, Tensor) or (target.ndim != 1 and target.dtype != torch.bool):
        odd = "target"
    elif query is not None or indexes is not None:  # a query that is drawn twice would have its answers twice
        odd = "query" if indexes is None else "indexes"
    elif exclude is not None and not (
        isinstance(exclude, Tensor) and exclude.dtype == torch.bool and exclude.ndim == 2
    ):
        odd = "exclude"
    elif not (isinstance(group, _IN_STEP) and isinstance(weight, _IN_STEP) and isinstance(sample_id, _IN_STEP)):
        odd = "what is said of tasks (group, weight, sample_id)"
    else:
        return
    if _inside_boot_strapper():
        raise ValueError(
            f"{odd} cannot be resampled by BootStrapper, which draws along the first dimension of tensors: pass preds "
            "(B, N), target (B,), exclude as bool (B, N) and the rest as (B,) tensors, or use "
            "RankCollection.confidence_intervals, which needs none of this"
        )


def _inside_boot_strapper() -> bool:
    """Whether the wrapper is among the callers: nothing else tells a metric that it is wrapped."""
    frame = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame.f_code is BootStrapper.update.__code__:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False
