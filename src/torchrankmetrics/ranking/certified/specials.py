"""Scores that are no finite numbers: their class, NaN, inf or -inf, by exact arithmetic, where sums never overflow."""

import torch
from torch import Tensor


def classes(queries: Tensor, candidates: Tensor, bias: Tensor | None, similarity: str) -> Tensor:
    """Class of every score, float32 (B, n): NaN, inf, -inf, or 0 for a finite one.

    What is infinite or NaN follows IEEE arithmetic on the exact terms: inf - inf and 0 inf are NaN. l2 is that of
    -|q - e|^2, cosine that of q.e / |e|, NaN for a vector of zeros.
    """
    q, e = _signs(queries), _signs(candidates)
    if similarity == "l2":
        scores = torch.zeros(len(q), len(e), device=q.device)
        both = sum(((q == sign).float() @ (e == sign).float().T for sign in (torch.inf, -torch.inf)), scores)
        scores.masked_fill_(q.isinf().any(1)[:, None] | e.isinf().any(1), -torch.inf)
        scores.masked_fill_((both != 0) | q.isnan().any(1)[:, None] | e.isnan().any(1), torch.nan)
    else:
        scores = q @ e.T
        if similarity == "cosine":
            scores = scores / torch.where(e.isinf().any(1), torch.inf, e.abs().sum(1))
    if bias is not None:
        scores = scores + _signs(bias)
    return scores.masked_fill(scores.isfinite(), 0.0)


def _signs(numbers: Tensor) -> Tensor:
    """Finite numbers as -1, 0 and 1, float32."""
    wide = numbers.double()  # not float32, where small ones would vanish and large ones be infinite
    return torch.where(wide.isfinite(), wide.sign(), wide).float()
