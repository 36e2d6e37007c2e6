"""Upper bounds of the norms of vectors, which cost one read of them."""

import torch
from torch import Tensor

_NUMBERS = 1 << 17


def rows_at_once(vectors: Tensor) -> int:
    """How many rows to work on, so that what is made on the way stays in the cache."""
    return max(1, _NUMBERS // max(vectors.shape[1], 1))


def are_finite(norms: Tensor) -> bool:
    """Whether all norms (n,) are, which is one read of them."""
    return not len(norms) or float(norms.amax()) < torch.inf


def upper_norms(vectors: Tensor) -> Tensor:
    """Bounds of the norms of (n, d) floats: float64 (n,), 0 for zeros alone; inf or NaN where a number is."""
    wide = vectors if vectors.dtype == torch.float64 else vectors.float()
    norm = torch.linalg.vector_norm(wide, dim=1).double()
    if wide.dtype == torch.float32 and not are_finite(norm):
        norm = torch.linalg.vector_norm(wide.double(), dim=1)
    zeros = (norm == 0).nonzero()[:, 0]
    return _bounds(norm, vectors.shape[1], wide.dtype, zeros[~(vectors[zeros] != 0).any(1)] if len(zeros) else zeros)


def rounding_norms(vectors: Tensor, dtype: torch.dtype, length: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Vectors (n, d) in a precision, and bounds of the norms of what rounding changes, as ``upper_norms`` gives them.

    They are divided by lengths (n,) and given in float32 before, if there are any.
    """
    rounded = torch.empty(vectors.shape, dtype=dtype, device=vectors.device)
    norm = torch.zeros(len(vectors), dtype=torch.float64, device=vectors.device)
    if length is None and torch.finfo(dtype).eps <= torch.finfo(vectors.dtype).eps:  # it holds all of them
        return rounded.copy_(vectors), norm
    between = torch.float64 if length is None and vectors.dtype == torch.float64 else torch.float32
    for left in range(0, len(vectors), rows_at_once(vectors)):
        part = slice(left, left + rows_at_once(vectors))
        exact = (vectors[part] if length is None else vectors[part].double() / length[part, None]).to(between)
        rounded[part] = exact
        # a difference that needs no rounding
        norm[part] = torch.linalg.vector_norm(exact - rounded[part].to(between), dim=1)
    zeros = (norm == 0).nonzero()[:, 0]
    zeros = zeros[(rounded[zeros].to(between) == vectors[zeros]).all(1)] if length is None else zeros[:0]
    return rounded, _bounds(norm, vectors.shape[1], between, zeros)


def _bounds(norm: Tensor, d: int, dtype: torch.dtype, zeros: Tensor) -> Tensor:
    # the rounding of the sum, and squares that vanish
    step, lost = (2.0**-50, 2.0**-510) if dtype == torch.float64 else (2.0**-22, 2.0**-62)
    bound: Tensor = norm * (1 + (d + 4) * step) + lost * d**0.5
    return bound.index_fill_(0, zeros, 0.0) if len(zeros) else bound
