"""How far a computed score may be from the exact one, and the interval of scores that a precision cannot decide.

The bounds are proven in docs/mathematics.md, "Exact ranks".
"""

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.tiles import BFLOAT16, FLOAT32, FLOAT64, Sizes
from torchrankmetrics.ranking.counting.plain_intervals import keys

# of what sums are made in: twice the unit of rounding, the least normal number, what stays clear of overflow
_UNIT = {BFLOAT16: 2.0**-23, FLOAT32: 2.0**-23, FLOAT64: 2.0**-52}
_TINY = {BFLOAT16: 2.0**-126, FLOAT32: 2.0**-126, FLOAT64: 2.0**-1022}
_HUGE = {BFLOAT16: 2.0**125, FLOAT32: 2.0**125, FLOAT64: 2.0**1020}
_DIGITS = {FLOAT32: 2.0**23, FLOAT64: 2.0**52}
_MORE = 1 + 2.0**-20  # for the rounding of the bounds themselves
_LOWEST_KEY = -0x7F7F


def error_bound(dtype: torch.dtype, d: int, sizes: Sizes, norm: Tensor, error: Tensor, grain: float) -> Tensor:
    """Bound |computed - exact| for scores of a precision.

    Args:
        dtype: the precision.
        d: width of the embeddings.
        sizes: of the candidates: of a tile, or of each one, then (B,) tensors.
        norm: (B,) float64, upper bounds of the norms of the rounded queries.
        error: (B,) float64, the same of their rounding.
        grain: all products and biases are multiples of it; 0: unknown.

    Returns:
        (B,) float64: 0 where the computation is exact, inf where it may overflow.
    """
    unit, tiny, terms = _UNIT[dtype], _TINY[dtype], d + 8
    rounded, flushed = sizes.norm + sizes.error, 2 * tiny / sizes.shortest
    # norm * error of the candidates + error * norm of the candidates + accumulation + bias + what vanishes
    by_norm = (sizes.error + terms * unit * rounded + terms**0.5 * flushed) * _MORE
    alone = terms * unit * 1.01 * sizes.bias + sizes.bias_error
    alone = (alone + flushed * (terms + terms**0.5 * (sizes.longest + sizes.error))) * _MORE
    bound = norm * by_norm + error * (sizes.norm * _MORE) + alone
    safe = (norm * (sizes.longest + sizes.error) + 2 * sizes.bias < _HUGE[dtype]) & (bound < torch.inf)
    safe &= sizes.shortest > 2.0**24 * tiny  # lengths that vanish, or are inexact, make scores that are no numbers
    if grain == 0 and bool((safe & (norm > 0)).all()):  # as nearly always
        return bound
    bound = bound.masked_fill(~safe, torch.inf)
    # a query of zeros; a bias may have vanished
    exact = (norm == 0) & (error == 0) & (sizes.bias == 0) & (sizes.bias_error == 0)
    if dtype in _DIGITS and grain > tiny:
        largest = norm * sizes.norm + sizes.norm * sizes.norm + sizes.bias
        exact |= (error == 0) & (sizes.error == 0) & (largest < _DIGITS[dtype] * grain)
    found: Tensor = bound.masked_fill(exact & safe, 0.0)
    return found


def interval(dtype: torch.dtype, true: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """Round [true - error, true + error] outward: for bfloat16 as int16 keys, else numbers of the precision."""
    error = torch.where(error > 0, error * _MORE + true.abs() * 2.0**-50, 0.0)
    low, high = true - error, true + error
    if dtype == FLOAT64:
        # excluded cells are -inf, below every interval but that of a score that is not known at all
        return low.clamp(min=torch.finfo(dtype).min).masked_fill(error == torch.inf, -torch.inf), high
    low, high = _rounded(low, False), _rounded(high, True)
    if dtype == BFLOAT16:
        return keys(low, False).clamp(min=_LOWEST_KEY), keys(high, True).clamp(min=_LOWEST_KEY)
    return low, high


def _rounded(numbers: Tensor, up: bool) -> Tensor:
    """To float32, to the next number beyond; never to an infinity below."""
    single = numbers.float()
    beyond = single.double() < numbers if up else single.double() > numbers
    away = torch.nextafter(single, torch.full_like(single, torch.inf if up else -torch.inf))
    return torch.where(beyond, away, single).clamp(min=torch.finfo(torch.float32).min)
