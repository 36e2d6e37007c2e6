"""Convert lists, arrays, pandas objects and tensors to tensors; errors name the argument."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.masked import MaskedTensor

from torchrankmetrics.validation import shorten

Array = npt.NDArray[np.generic]  # becomes a tensor on the CPU
Numbers = Tensor | npt.ArrayLike
Integers = Tensor | npt.ArrayLike  # booleans and floats raise an error


def as_tensor(values: Numbers, name: str) -> Tensor:
    """Read numbers as a dense tensor without gradient; Python floats become float64."""
    if isinstance(values, Tensor):
        check_dense(values, name)
        return values.detach() if values.requires_grad else values
    array = as_array(values, name)
    # torch supports neither other byte orders nor C's second name of a 64-bit integer
    if array.dtype.kind in "biufc":
        native = np.dtype(f"{array.dtype.kind}{array.dtype.itemsize}")
        array = array.astype(native, copy=False).view(native)
        if not array.flags.writeable or any(
            step < 0 or step % array.itemsize for step in array.strides
        ):
            # torch warns about read-only arrays, and supports no other strides
            array = array.copy()
    if array.dtype.kind in "US" and array.size:
        raise TypeError(
            f"{name} must contain numbers, got text such as {shorten(array.flat[0].item())}; "
            "number the names first, for example by pandas.factorize(names)[0]"
        )
    try:
        return torch.as_tensor(array, device="cpu")  # not on the default device
    except TypeError as error:
        raise TypeError(
            f"{name} must contain numbers, got {type(values).__name__} of {array.dtype}"
        ) from error


def as_array(values: Numbers, name: str) -> npt.NDArray[Any]:
    """Read values as a NumPy array of any dtype; floats of a tensor become float64.

    Errors are those of ``as_tensor``.
    """
    if isinstance(values, Tensor):
        tensor = as_tensor(values, name).cpu().resolve_neg()
        return (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    if isinstance(values, str):
        raise TypeError(f"{name} must contain numbers, got the str {values!r:.80}")
    if isinstance(values, np.ma.MaskedArray) and (masked := int(values.mask.sum())):
        raise TypeError(
            f"{name} must not be masked, got {masked} masked values: pass {name}.filled(...), "
            "exclude them"
        )
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must not be ragged, got {type(values).__name__}: {error}"
        ) from error
    except (TypeError, RuntimeError) as error:  # for example a list of tensors
        raise TypeError(
            f"{name} must contain numbers, got {type(values).__name__}: {error!s:.80}"
        ) from error


def check_dense(tensor: Tensor, name: str) -> None:
    """Raise an error for sparse, nested, quantized and masked tensors, and those without values."""
    masked = type(tensor) is not Tensor and isinstance(tensor, MaskedTensor)
    traced = _is_traced(tensor)
    if tensor.layout is torch.strided and not (
        tensor.is_nested or tensor.is_quantized or tensor.is_meta or masked or traced
    ):
        return
    if tensor.is_meta and not traced:
        raise ValueError(
            f"{name} must be on a device that stores values, such as cpu, got meta; pass real data"
        )
    if traced:
        raise ValueError(
            f"{name} must contain values, got a tensor without (of torch.export, a FakeTensorMode "
            "or torch.func); rank and update outside of programs that are exported and of "
            "functions that torch.func transforms"
        )
    kinds = (
        (tensor.is_nested, "a nested tensor", "to_padded_tensor(...)"),
        (tensor.is_quantized, "a quantized tensor", "dequantize()"),
        (masked, "a masked tensor", "to_tensor(...)"),
        (True, str(tensor.layout), "to_dense()"),
    )
    kind, remedy = next(texts for is_kind, *texts in kinds if is_kind)
    raise TypeError(f"{name} must be a dense tensor, got {kind}; pass {name}.{remedy}")


def _is_traced(tensor: Tensor) -> bool:
    """Whether a tensor only records operations, as in torch.export and torch.func."""
    if type(tensor) is Tensor:
        return torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor)


def check_device(tensor: Tensor, name: str, device: torch.device, of: str) -> None:
    """Raise an error for a tensor on another device than that of another argument."""
    if tensor.device != device:
        raise ValueError(f"{name} must be on the device of {of}, {device}; got {tensor.device}")


def read_scores(given: Any, name: str, of: str = "scores (B, N)") -> Tensor:
    """Read a tensor or an array; the error for other types names the function to use."""
    if isinstance(given, Tensor) or hasattr(given, "__array__"):
        return as_tensor(given, name)
    hint = ""
    if isinstance(given, Mapping):
        if "y_pred_pos" in given or "y_pred_neg" in given:
            hint = f": a dict of OGB's evaluators becomes ranks by Ranks.from_negatives({name})"
        elif all(isinstance(inner, Mapping) for inner in given.values()):
            hint = (
                ": dicts of dicts are qrels and runs; integrations.trec.rank_run(qrels, run) ranks "
                "them"
            )
    elif isinstance(given, list | tuple):
        ranks = "; ranks go in as Ranks(ranks, None, num_candidates)" if name == "preds" else ""
        hint = f": pass torch.tensor({name}){ranks}"
        if any(isinstance(part, str) for part in given):
            hint = ": names are not scores, integrations.trec ranks runs whose documents have names"
    other = ", a Ranks or a RankTable" if name == "preds" else ""
    raise TypeError(
        f"{name} must be a torch.Tensor or an array of {of}{other}, got "
        f"{type(given).__name__}{hint}"
    )


def as_ids(values: Integers, name: str) -> Tensor:
    """Read integer ids, as int64; floats, booleans and ids that do not fit raise an error."""
    if isinstance(values, Tensor) and values.dtype == torch.int64:
        check_dense(values, name)  # once per batch: each call costs microseconds
        return values
    ids = as_tensor(values, name)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise TypeError(f"{name} must contain integers, got {ids.dtype}")
    if ids.dtype == torch.uint64:
        if not ids.is_cpu:  # its values cannot be checked without waiting
            raise TypeError(
                f"{name} on {ids.device} must be int64, got {ids.dtype}; convert it with .long()"
            )
        if ids.numel() and (largest := int(ids.numpy().max())) >= 1 << 63:
            raise ValueError(f"{name} must be below 2^63, got {largest}")
    return ids.to(torch.int64)


def first_outside(
    row: Tensor | None, column: Tensor, num_rows: int, num_columns: int
) -> int | None:
    """Find the index of the first pair out of range, or None; only on the CPU: it reads values."""
    found = []
    for values, size in ((row, num_rows), (column, num_columns)):
        if values is not None:
            # NumPy's calls cost a fifth of torch's, and argmax a quarter of max; unsigned,
            # negatives are too large
            unsigned = values.numpy().view(np.uint64)
            if unsigned.size and unsigned[unsigned.argmax()] >= size:
                found.append(int((unsigned >= size).argmax()))
    return min(found) if found else None


def sort_owners(owner: Tensor) -> tuple[Tensor | None, Tensor]:
    """Sort the lists (T,) that flat scores belong to; the order is None if they are sorted."""
    if not bool((owner[1:] < owner[:-1]).any()):
        return None, owner
    owner, order = owner.sort(stable=True)
    return order, owner


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """``torch.unique(rows, dim=0, return_inverse=True)`` of int64 (n, k), ten times as fast."""
    if not len(rows):
        return rows, rows.new_empty(0)
    low = rows.amin(0)
    wide = [
        high - least + 1 for least, high in zip(low.tolist(), rows.amax(0).tolist(), strict=True)
    ]
    if math.prod(wide) >= 1 << 63:
        distinct, row = torch.unique(rows, dim=0, return_inverse=True)
        return distinct, row
    key = torch.zeros_like(rows[:, 0])  # a row is the digits of one number
    for digit, width in zip((rows - low).unbind(1), wide, strict=True):
        key = key * width + digit
    key, row = torch.unique(key, return_inverse=True)
    return torch.stack(torch.unravel_index(key, wide), 1) + low, row
