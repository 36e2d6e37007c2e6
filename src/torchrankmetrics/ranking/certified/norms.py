"""Upper bounds of the norms of vectors, which cost one read of them."""

import torch
from torch import Tensor

ROWS = 1 << 9  # worked on at once, so that what is made on the way stays in the cache


def upper_norms(vectors: Tensor) -> Tensor:
    """Bounds of the norms of (n, d) floats: float64 (n,), 0 for zeros alone; inf or NaN where a number is."""
    d = vectors.shape[1]
    wide = vectors if vectors.dtype == torch.float64 else vectors.float()
    norm = torch.linalg.vector_norm(wide, dim=1).double()
    if wide.dtype == torch.float32 and not bool(norm.isfinite().all()):
        norm = torch.linalg.vector_norm(wide.double(), dim=1)
    # the rounding of the sum, and squares that vanish
    step, lost = (2.0**-22, 2.0**-62) if wide.dtype == torch.float32 else (2.0**-50, 2.0**-510)
    bound = norm * (1 + (d + 4) * step) + lost * d**0.5
    none = (norm == 0).nonzero()[:, 0]
    bound[none[~(vectors[none] != 0).any(1)]] = 0.0
    return bound


def rounding_norms(vectors: Tensor, dtype: torch.dtype, length: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Vectors (n, d) in a precision, and bounds of the norms of what rounding changes, as ``upper_norms`` gives them.

    They are divided by lengths (n,) and given in float32 before, if there are any.
    """
    rounded = torch.empty(vectors.shape, dtype=dtype, device=vectors.device)
    error = torch.zeros(len(vectors), dtype=torch.float64, device=vectors.device)
    if length is None and torch.finfo(dtype).eps <= torch.finfo(vectors.dtype).eps:  # it holds all of them
        return rounded.copy_(vectors), error
    for left in range(0, len(vectors), ROWS):
        part = slice(left, left + ROWS)
        exact = vectors[part]
        if length is not None:
            exact = (exact.double() / length[part, None]).float()
        elif exact.dtype != torch.float64:
            exact = exact.float()
        rounded[part] = exact
        error[part] = upper_norms(exact - rounded[part].to(exact.dtype))  # a difference that needs no rounding
    return rounded, error
