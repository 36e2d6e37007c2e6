"""Sampled negatives: a matrix, ragged or flat lists, or one list for all positives."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import (
    Integers,
    Numbers,
    as_ids,
    as_tensor,
    check_device,
    sort_owners,
)
from torchrankmetrics.ranking.counting import Excluded, count
from torchrankmetrics.validation import shorten

Negatives = Numbers | Sequence[Tensor]  # (B, M), (M,), flat (T,), or a vector for each positive
Predictions = Mapping[str, Negatives]  # input of OGB's evaluators
_KEYS = ("y_pred_pos", "y_pred_neg", "exclude", "indexes")


def read_predictions(
    predictions: Predictions, exclude: Numbers | None, indexes: Integers | None
) -> tuple[Numbers, Negatives, Numbers | None, Integers | None]:
    """Read a dict of OGB's evaluators; the scores may be an array and a tensor of two floats."""
    if not set(_KEYS[:2]) <= set(predictions) <= set(_KEYS):
        raise ValueError(
            'predictions must contain "y_pred_pos" and "y_pred_neg", and may contain "exclude" or '
            '"indexes"; '
            f"got {shorten(list(predictions))}"
        )
    for key, given in (("exclude", exclude), ("indexes", indexes)):
        if given is not None and key in predictions:
            raise ValueError(
                f"{key} must be given once, as an argument or in the dict of predictions"
            )
    positive = predictions["y_pred_pos"]
    negatives = predictions["y_pred_neg"]
    if not _is_ragged(negatives):
        positive = as_tensor(positive, "y_pred_pos")
        negatives = as_tensor(negatives, "y_pred_neg")
        if positive.is_floating_point() and negatives.is_floating_point():
            wide = torch.promote_types(positive.dtype, negatives.dtype)
            positive = positive.to(wide)
            negatives = negatives.to(wide)
        positive = positive.to(negatives.device)
    return (
        positive,
        negatives,
        predictions.get("exclude", exclude),
        predictions.get("indexes", indexes),
    )


def _is_ragged(given: object) -> TypeGuard[Sequence[Tensor]]:
    # each type once, because the lists may be many
    return isinstance(given, list | tuple) and all(
        issubclass(one, Tensor | np.ndarray) for one in {*map(type, given)}
    )


def count_negatives(
    positive: Numbers,
    negatives: Negatives,
    exclude: Numbers | None = None,
    indexes: Integers | None = None,
    backend: str = "auto",
) -> Tensor:
    """Compare each positive with its negatives: int64 (4, B) as in ``counting``.

    Arguments are those of ``from_negatives``.
    """
    positive = as_tensor(positive, "positive")
    if positive.ndim != 1:
        raise ValueError(f"positive must be (B,), got {tuple(positive.shape)}")
    B = len(positive)
    negatives, length = _read_negatives(negatives, positive, indexes)
    row = torch.arange(B, device=positive.device)
    if indexes is not None:
        negatives, length = _sorted_by_owner(negatives, indexes, B)
    elif length is None and negatives.ndim == 1 and exclude is None:  # one list for all
        row = torch.zeros_like(row)
        if negatives.is_cpu:
            length = torch.tensor([len(negatives)], device="cpu")
        else:  # sorting would wait for the device
            negatives = negatives[None]
    elif length is None and (negatives.ndim != 2 or len(negatives) != B):
        got = f"{tuple(positive.shape)} and {tuple(negatives.shape)}"
        raise ValueError(
            "positive must be (B,) and negatives (B, M), (M,) for all, or (T,) with indexes; got "
            f"{got}"
        )
    excluded = Excluded() if exclude is None else _read_padding(exclude, negatives)
    borders = None if length is None else torch.nn.functional.pad(length.cumsum(0), (1, 0))
    return count(negatives, positive, row, None, excluded, borders, backend=backend)


def _read_negatives(
    negatives: Negatives, positive: Tensor, indexes: Integers | None
) -> tuple[Tensor, Tensor | None]:
    """Read negatives, ragged ones as one vector with the length (B,) of each list."""
    length = None
    negatives = _by_length(negatives)
    if _is_ragged(negatives):
        if indexes is not None or len(negatives) != len(positive):
            raise ValueError(
                f"negatives must have a vector for each of {len(positive)} positives, without "
                f"indexes; got {len(negatives)}"
            )
        negatives, length = _flat(negatives, positive)
    negatives = as_tensor(negatives, "negatives")
    if positive.dtype != negatives.dtype or positive.is_complex():
        raise TypeError(
            f"positive and negatives must share a real dtype, got {positive.dtype} and "
            f"{negatives.dtype}"
        )
    check_device(negatives, "negatives", positive.device, "positive")
    return negatives, length


def _by_length(negatives: Negatives) -> Negatives:
    """Lists of lists of different lengths as vectors; other negatives as they are."""
    if not isinstance(negatives, list) or not all(isinstance(part, list) for part in negatives):
        return negatives
    lengths = list(map(len, negatives))
    if len(set(lengths)) < 2:
        return negatives
    flat = as_tensor([score for part in negatives for score in part], "negatives")
    return torch.split(flat, lengths)


def _flat(negatives: Sequence[Tensor], positive: Tensor) -> tuple[Tensor, Tensor]:
    """Join the vectors of all positives; return them with their lengths (B,)."""
    parts = []
    sizes = []
    dtype = positive.dtype
    for i, part in enumerate(negatives):
        part = part if type(part) is Tensor else as_tensor(part, f"negatives[{i}]")
        if part.dtype is not dtype or part.ndim != 1:
            got = f"{part.dtype} {tuple(part.shape)}"
            raise ValueError(
                f"negatives[{i}] must be (M_{i},) of {positive.dtype}, as positive; got {got}"
            )
        parts.append(part)
        sizes.append(part.numel())  # six times as fast as len
    length = torch.tensor(sizes, dtype=torch.int64, device="cpu").to(positive.device)
    return torch.cat(parts) if parts else positive[:0], length


def _sorted_by_owner(negatives: Tensor, indexes: Integers, B: int) -> tuple[Tensor, Tensor]:
    """Sort flat negatives by their positive; return them with the number of each positive (B,)."""
    owner = as_ids(indexes, "indexes").to(negatives.device)
    if negatives.ndim != 1 or owner.shape != negatives.shape:
        got = f"{tuple(owner.shape)} and {tuple(negatives.shape)}"
        raise ValueError(
            f"indexes must be (T,), the positive of each of the flat negatives (T,); got {got}"
        )
    # checked on every device: a wrong index would end the process on an accelerator
    wrong = (owner < 0) | (owner >= B)
    if bool(wrong.any()):
        raise IndexError(
            f"indexes must lie in [0, {B}), one positive each; got {int(owner[wrong][0])}"
        )
    order, owner = sort_owners(owner)
    negatives = negatives if order is None else negatives[order]
    return negatives, torch.bincount(owner, minlength=B)


def _read_padding(exclude: Numbers, negatives: Tensor) -> Excluded:
    cells = as_tensor(exclude, "exclude")
    if cells.dtype != torch.bool or negatives.ndim != 2 or cells.shape != negatives.shape:
        got = f"{cells.dtype} {tuple(cells.shape)} with negatives {tuple(negatives.shape)}"
        raise ValueError(
            f"exclude must be bool (B, M) with negatives (B, M), True for padding; got {got}"
        )
    return Excluded(cells=cells.to(negatives.device))
