"""Reading what users pass as arrays: lists, NumPy arrays, tensors."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_tensor(values: Any, name: str) -> Tensor:
    """Give a tensor without gradient; Python's floats as float64, as NumPy reads them.

    Raises:
        ValueError: if the values are ragged; it names the argument.
        TypeError: if they are no numbers that torch knows.

    >>> as_tensor([0, "a"], "group")
    Traceback (most recent call last):
        ...
    TypeError: group must hold numbers, got list of <U21
    """
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must not be ragged, got {type(values).__name__}: {error}") from error
    try:
        return torch.as_tensor(array)
    except TypeError as error:
        raise TypeError(f"{name} must hold numbers, got {type(values).__name__} of {array.dtype}") from error


def as_ids(values: Any, name: str) -> Tensor:
    """Read integer ids, as int64; floats and booleans are refused."""
    ids = as_tensor(values, name)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise TypeError(f"{name} must hold integers, got {ids.dtype}")
    return ids.to(torch.int64)
