"""Sampled negatives: counting the candidates of a matrix, a mask, ragged lists, or one list for all queries."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Integers, Numbers, as_ids, as_tensor
from torchrankmetrics.ranking.counting import choose, chosen
from torchrankmetrics.ranking.counting.torch_backend import BITS, order_of
from torchrankmetrics.ranking.exclude import NOTHING, Excluded

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
    if not is_ragged(negatives):
        positive, negatives = as_tensor(positive, "y_pred_pos"), as_tensor(negatives, "y_pred_neg")
        if positive.is_floating_point() and negatives.is_floating_point():
            wide = torch.promote_types(positive.dtype, negatives.dtype)
            positive, negatives = positive.to(wide), negatives.to(wide)
        positive = positive.to(negatives.device)
    return positive, negatives, predictions.get("exclude", exclude), predictions.get("indexes", indexes)


def is_ragged(negatives: object) -> TypeGuard[Sequence[Tensor]]:
    """Whether negatives are a list of one vector per positive."""
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
    if exclude is not None and indexes is not None:
        raise ValueError("exclude is for negatives (B, M) and indexes for flat ones (T,): give one of them")
    if is_ragged(negatives):
        if exclude is not None or indexes is not None:
            raise ValueError("negatives as a list of vectors need neither exclude nor indexes")
        negatives, indexes = _flattened(negatives, positive)
    negatives = as_tensor(negatives, "negatives")
    if positive.dtype != negatives.dtype or positive.is_complex():
        raise TypeError(f"positive and negatives must share a real dtype, got {positive.dtype} and {negatives.dtype}")
    if positive.device != negatives.device:
        raise ValueError(f"negatives must be on the device of positive, {positive.device}; got {negatives.device}")
    if backend != "auto":
        chosen(negatives, backend)  # checked for the forms that are sorted, too
    if indexes is not None:
        return _count_flat(positive, negatives, _indexes_of(indexes, positive, negatives))
    if negatives.ndim == 1 and exclude is None:
        return count_shared(positive, negatives)
    if negatives.ndim != 2 or len(positive) != len(negatives):
        raise ValueError(
            "positive must be (B,) and negatives (B, M), or (M,) where all positives share them, or (T,) with indexes; "
            f"got {tuple(positive.shape)} and {tuple(negatives.shape)}"
        )
    counts: Tensor = choose(negatives, backend)(negatives, positive, excluded=_excluded_of(exclude, negatives))
    return counts


def _flattened(parts: Sequence[Tensor], positive: Tensor) -> tuple[Tensor, Tensor]:
    vectors = [as_tensor(part, f"negatives[{i}]") for i, part in enumerate(parts)]
    if len(vectors) != len(positive):
        raise ValueError(f"negatives must have a vector for each of {len(positive)} positives, got {len(vectors)}")
    for i, vector in enumerate(vectors):
        if vector.ndim != 1 or vector.dtype != positive.dtype:
            got = f"{vector.dtype} {tuple(vector.shape)}"
            raise ValueError(f"negatives[{i}] must be (M_{i},) of the dtype of positive, {positive.dtype}; got {got}")
    lengths = torch.tensor([len(vector) for vector in vectors], dtype=torch.int64, device=positive.device)
    owner = torch.arange(len(vectors), device=positive.device).repeat_interleave(lengths)
    return torch.cat([positive[:0], *vectors]), owner


def _indexes_of(indexes: Integers, positive: Tensor, negatives: Tensor) -> Tensor:
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


def _excluded_of(exclude: Numbers | None, negatives: Tensor) -> Excluded:
    if exclude is None:
        return NOTHING
    cells = as_tensor(exclude, "exclude")
    if cells.dtype != torch.bool or cells.shape != negatives.shape:
        raise ValueError(
            f"exclude must be bool {tuple(negatives.shape)}, True where a negative is none (padding); "
            f"got {cells.dtype} {tuple(cells.shape)}"
        )
    return Excluded(cells=cells.to(negatives.device))


def _count_flat(positive: Tensor, negatives: Tensor, indexes: Tensor) -> Tensor:
    value, own = in_order(negatives), in_order(positive)
    true = own[indexes]
    lines = torch.stack([~(value <= true), ~(value < true), torch.ones_like(value, dtype=torch.bool), value != value])
    counts = torch.zeros(4, len(positive), dtype=torch.int64, device=positive.device)
    counts.index_add_(1, indexes, lines.long())
    counts[3] += own != own
    return counts


def count_shared(positive: Tensor, negatives: Tensor) -> Tensor:
    """Count (4, B) by one sort of negatives that all positives share."""
    value, true = in_order(negatives), in_order(positive).contiguous()
    nan, own_nan = (value != value).sum(), true != true
    if value.is_floating_point():
        value = value.masked_fill(value != value, torch.inf)
    value = value.sort().values
    below = torch.searchsorted(value, true) * ~own_nan
    not_above = torch.searchsorted(value, true, right=True) * ~own_nan
    if true.is_floating_point():
        not_above -= nan * (true == torch.inf)  # NaN are sorted as inf, and count as better
    M = torch.full_like(below, len(value))
    return torch.stack([M - not_above, M - below, M, nan + own_nan])


def in_order(scores: Tensor) -> Tensor:
    """Convert scores to a dtype that torch sorts and compares, in the same order."""
    if scores.dtype == torch.bool:
        return scores.to(torch.uint8)
    bits = BITS.get(scores.dtype)
    return order_of(scores)(scores if bits is None else scores.view(bits))
