"""Reading what users pass as arrays: lists, NumPy arrays, tensors."""

import operator
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
    if array.dtype.kind in "iuf":  # torch does not take other byte orders, nor C's second name of a 64-bit integer
        native = np.dtype(f"{array.dtype.kind}{array.dtype.itemsize}")
        array = array.astype(native, copy=False).view(native)
    try:
        return torch.as_tensor(array, device="cpu")  # whatever the default device: NumPy's arrays are there
    except TypeError as error:
        raise TypeError(f"{name} must hold numbers, got {type(values).__name__} of {array.dtype}") from error


def as_ids(values: Any, name: str) -> Tensor:
    """Read integer ids, as int64.

    Raises:
        TypeError: for floats and booleans, and for uint64 on an accelerator: looking at its values would wait for it.
        ValueError: if an id does not fit in int64.
    """
    ids = as_tensor(values, name)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise TypeError(f"{name} must hold integers, got {ids.dtype}")
    if ids.dtype == torch.uint64:
        if not ids.is_cpu:
            raise TypeError(f"{name} on {ids.device} must be int64, got {ids.dtype}; convert it with .long()")
        if ids.numel() and (largest := int(ids.numpy().max())) >= 1 << 63:
            raise ValueError(f"{name} must be below 2^63, got {largest}")
    return ids.to(torch.int64)


def as_number(value: Any, name: str) -> int:
    """Read a number of things, an integer of any kind.

    Raises:
        TypeError: if it is no integer.
        ValueError: if it is negative or not below 2^63.
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an int, got {value!r}") from error
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{name} must be at least 0 and below 2^63, got {number}")
    return number
