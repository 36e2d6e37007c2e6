"""Transforms, which are written in torch, on NumPy arrays: their values and their slopes."""

import numpy as np
import torch

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import IDENTITY, RankTransform, Transform, WithCandidates

_BLOCK = 1 << 14


def apply_transform(
    f: RankTransform, x: FloatArray, name: str = "f", num_candidates: IntArray | None = None
) -> FloatArray:
    """Apply a transform elementwise, in blocks of fixed size: the same bits for any number of threads.

    Args:
        f: a transform.
        x: (m,) float64, ranks or what became of them.
        name: what errors call the transform.
        num_candidates: (m,) int64, for a transform that depends on them; others do not look.

    Returns:
        (m,) float64, finite; ``x`` itself for the identity.

    Raises:
        ValueError: if the transform changes the shape, gives a value that is not finite, or lacks candidate counts.
    """
    if f == IDENTITY:
        return _finite(x, x, name)
    result = np.empty(len(x))
    for begin in range(0, len(x), _BLOCK):
        block = torch.from_numpy(x[begin : begin + _BLOCK])
        if isinstance(f, WithCandidates):
            if num_candidates is None:
                raise ValueError(f"{name} depends on the number of candidates: num_candidates is needed")
            value = f(block, torch.from_numpy(num_candidates[begin : begin + _BLOCK].astype(np.float64)))
        else:
            value = f(block)
        if value.shape != block.shape:
            raise ValueError(f"{name} must keep the shape of its input, {tuple(block.shape)}; got {tuple(value.shape)}")
        result[begin : begin + _BLOCK] = value.to(torch.float64).numpy()
    return _finite(result, x, name)


def transform_slopes(g: Transform, x: FloatArray) -> FloatArray:
    """Derivative of a transform, elementwise: (m,) float64 in, (m,) float64 out.

    Raises:
        ValueError: if torch cannot differentiate the transform.
    """
    with torch.inference_mode(False), torch.enable_grad():
        point = torch.tensor(x, dtype=torch.float64, device="cpu", requires_grad=True)
        value = g(point)
        if not value.requires_grad:
            raise ValueError(f"g must be made of differentiable torch operations for an error estimate, got {g!r}")
        (slope,) = torch.autograd.grad(value.sum(), point)
    result: FloatArray = slope.numpy()
    return result


def _finite(result: FloatArray, x: FloatArray, name: str) -> FloatArray:
    if not np.isfinite(result).all():
        bad = float(x[~np.isfinite(result)][0])
        raise ValueError(f"{name} must be finite on every rank >= 1; at rank {bad:g} it is not")
    return result
