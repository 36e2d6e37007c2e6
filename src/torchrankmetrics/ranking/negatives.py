"""Sampled negatives: a matrix, ragged or flat lists, or one list for all positives."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Integers, Numbers, as_ids, as_tensor, sort_owners
from torchrankmetrics.ranking.counting import count
from torchrankmetrics.ranking.exclude import Excluded

Negatives = Numbers | Sequence[Tensor]
"""Scores of negatives: (B, M), (M,), flat (T,), or a vector for each positive."""
Predictions = Mapping[str, Negatives]
"""Input of OGB's evaluators."""
_KEYS = ("y_pred_pos", "y_pred_neg", "exclude", "indexes")


def read_predictions(
    predictions: Predictions, exclude: Numbers | None = None, indexes: Integers | None = None
) -> tuple[Numbers, Negatives, Numbers | None, Integers | None]:
    """Read the dict of OGB's evaluators: positive and negative scores, exclude, indexes.

    Arrays and tensors may be mixed: floats become the wider dtype, positives move to the device of the negatives.
    """
    missing = [key for key in _KEYS[:2] if key not in predictions]
    unknown = [key for key in predictions if key not in _KEYS]
    if missing or unknown:
        wrong = f"lacks {missing}" if missing else f"has {unknown}"
        raise ValueError(
            f'predictions must hold "y_pred_pos" and "y_pred_neg", and may hold "exclude" or "indexes"; it {wrong}'
        )
    for key, given in (("exclude", exclude), ("indexes", indexes)):
        if given is not None and key in predictions:
            raise ValueError(f"{key} must be given once, as an argument or in the dict of predictions")
    positive, negatives = predictions["y_pred_pos"], predictions["y_pred_neg"]
    if not _is_ragged(negatives):
        positive, negatives = as_tensor(positive, "y_pred_pos"), as_tensor(negatives, "y_pred_neg")
        if positive.is_floating_point() and negatives.is_floating_point():
            wide = torch.promote_types(positive.dtype, negatives.dtype)
            positive, negatives = positive.to(wide), negatives.to(wide)
        positive = positive.to(negatives.device)
    return positive, negatives, predictions.get("exclude", exclude), predictions.get("indexes", indexes)


def _is_ragged(negatives: object) -> TypeGuard[Sequence[Tensor]]:
    return isinstance(negatives, list | tuple) and all(isinstance(part, Tensor | np.ndarray) for part in negatives)


def count_negatives(
    positive: Numbers,
    negatives: Negatives,
    exclude: Numbers | None = None,
    indexes: Integers | None = None,
    backend: str = "auto",
) -> Tensor:
    """Compare each positive with its negatives: int64 (4, B) as in ``counting``; arguments of ``from_negatives``."""
    positive = as_tensor(positive, "positive")
    if positive.ndim != 1:
        raise ValueError(f"positive must be (B,), got {tuple(positive.shape)}")
    if exclude is not None and (indexes is not None or _is_ragged(negatives)):
        raise ValueError("exclude is for negatives (B, M), and must not be given with indexes or a list of vectors")
    borders: Tensor | None = None
    if _is_ragged(negatives):
        if indexes is not None:
            raise ValueError("negatives as a list of vectors need no indexes")
        negatives, borders = _concatenate(negatives, positive)
    negatives = as_tensor(negatives, "negatives")
    if positive.dtype != negatives.dtype or positive.is_complex():
        raise TypeError(f"positive and negatives must share a real dtype, got {positive.dtype} and {negatives.dtype}")
    if positive.device != negatives.device:
        raise ValueError(f"negatives must be on the device of positive, {positive.device}; got {negatives.device}")
    row = torch.arange(len(positive), device=positive.device)
    if indexes is not None:
        order, owner = sort_owners(_read_indexes(indexes, positive, negatives))
        negatives = negatives if order is None else negatives[order]
        borders = torch.searchsorted(owner, torch.arange(len(positive) + 1, device=owner.device))
    excluded = Excluded()
    if negatives.ndim == 1 and borders is None and exclude is None:  # one list for all
        row = torch.zeros_like(row)
        if negatives.is_cpu:
            borders = torch.tensor([0, len(negatives)], device="cpu")
        else:  # sorting would wait for the device
            negatives = negatives[None]
    elif borders is None and (negatives.ndim != 2 or len(positive) != len(negatives)):
        raise ValueError(
            "positive must be (B,) and negatives (B, M), or (M,) where all positives share them, or (T,) with indexes; "
            f"got {tuple(positive.shape)} and {tuple(negatives.shape)}"
        )
    elif exclude is not None:
        cells = as_tensor(exclude, "exclude")
        if cells.dtype != torch.bool or cells.shape != negatives.shape:
            raise ValueError(
                f"exclude must be bool {tuple(negatives.shape)}, True where a negative is none (padding); "
                f"got {cells.dtype} {tuple(cells.shape)}"
            )
        excluded = Excluded(cells=cells.to(negatives.device))
    return count(negatives, positive, row, None, excluded, borders, backend=backend)


def _concatenate(parts: Sequence[Tensor], positive: Tensor) -> tuple[Tensor, Tensor]:
    """All vectors one after the other, and the borders between them, int64 (B + 1,)."""
    if len(parts) != len(positive):
        raise ValueError(f"negatives must have a vector for each of {len(positive)} positives, got {len(parts)}")
    vectors, dtype, length = [], positive.dtype, [0]
    for i, part in enumerate(parts):
        vector = part if type(part) is Tensor else as_tensor(part, f"negatives[{i}]")
        if vector.ndim != 1 or vector.dtype != dtype:
            got = f"{vector.dtype} {tuple(vector.shape)}"
            raise ValueError(f"negatives[{i}] must be (M_{i},) of the dtype of positive, {dtype}; got {got}")
        vectors.append(vector)
        length.append(vector.numel())
    borders = torch.tensor(length, dtype=torch.int64, device="cpu").cumsum(0)
    return torch.cat([positive[:0], *vectors]), borders.to(positive.device)


def _read_indexes(indexes: Integers, positive: Tensor, negatives: Tensor) -> Tensor:
    owner: Tensor = as_ids(indexes, "indexes").to(positive.device)
    if negatives.ndim != 1 or owner.shape != negatives.shape:
        raise ValueError(
            "indexes must be (T,), the positive of each of the flat negatives (T,); "
            f"got {tuple(owner.shape)} and {tuple(negatives.shape)}"
        )
    # checked on every device: a wrong index would end the process on an accelerator
    low, high = (int(owner.min()), int(owner.max())) if len(owner) else (0, -1)
    if low < 0 or high >= len(positive):
        raise IndexError(f"indexes must lie in [0, {len(positive)}), one positive each; got {low} to {high}")
    return owner
