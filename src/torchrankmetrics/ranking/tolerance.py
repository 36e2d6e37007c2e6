"""Tolerance: scores that differ by no more than it are ties."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Count
from torchrankmetrics.ranking.exclude import Excluded
from torchrankmetrics.ranking.tasks import Tasks
from torchrankmetrics.validation import one_number, shorten

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_CELLS = 1 << 20


class Tolerance(NamedTuple):
    """Largest distance between two scores that tie: the sum of both attributes.

    Candidates with the same neighborhood have equal scores in a message-passing model, up to rounding. Without a
    tolerance their ranks depend on the order of the entities.

    Attributes:
        absolute (float, default 0.0): in the units of the scores.
        relative (float, default 0.0): in shares of the spread of a row, its largest minus its smallest finite score;
            reads the scores once more.

    >>> from torchrankmetrics import rank_scores
    >>> scores = torch.tensor([[1.0, 1.0001, 3.0, 0.9999]])
    >>> rank_scores(scores, torch.tensor([0]), tolerance=Tolerance(relative=1e-3))
    Ranks(optimistic=[2], pessimistic=[4], num_candidates=[4])
    """

    absolute: float = 0.0
    relative: float = 0.0


def check_tolerance(tolerance: Any, dtype: torch.dtype) -> Tolerance:
    """Read a number, or a ``Tolerance``, for scores of a dtype."""
    given = tolerance if isinstance(tolerance, Tolerance) else Tolerance(tolerance)
    numbers = [number for number in map(one_number, given) if number is not None and 0 <= number < math.inf]
    if len(numbers) < len(given):
        raise ValueError(
            f"tolerance must be a finite number of at least 0, or a Tolerance of two; got {shorten(tolerance)}"
        )
    given = Tolerance(*numbers)
    if given != (0, 0) and dtype not in _DTYPES:
        raise TypeError(f"tolerance is for scores in floats of 16 bits or more, which carry noise; got {dtype}")
    return given


def count_tolerant(count: Count, scores: Tensor, tasks: Tasks, tolerance: float | Tolerance) -> Tensor:
    """Count as ``count`` does, with ties up to a tolerance."""
    absolute, relative = check_tolerance(tolerance, scores.dtype)
    if not (absolute or relative):
        return count(scores, None, tasks.row, tasks.column, tasks.excluded)
    row = tasks.row_of_each
    width = absolute + relative * spread(extremes(scores))[row] if relative else absolute
    ends = tie_interval(scores[row, tasks.column], width)
    return count_within(count, scores, ends, tasks.row, tasks.column, tasks.excluded)


def tie_interval(true: Tensor, width: float | Tensor) -> tuple[Tensor, Tensor]:
    """Find the smallest and the largest number of the dtype of the target scores (P,) that tie with them."""
    wide = true.double()
    return _rounded(wide - width, true.dtype, up=True), _rounded(wide + width, true.dtype, up=False)


def count_within(
    count: Count,
    scores: Tensor,
    ends: tuple[Tensor, Tensor],
    row: Tensor | None,
    column: Tensor | None,
    excluded: Excluded,
) -> Tensor:
    """Count as ``count`` does, with ties between the two ends of an interval: two reads of the scores."""
    low, high = ends
    better, _, others, nan = count(scores, high, row, column, excluded)
    return torch.stack([better, count(scores, low, row, column, excluded)[1], others, nan])


def spread(extreme: Tensor) -> Tensor:
    """Largest minus smallest finite score of each row, float64 (B,), from ``extremes``; 0 if there is none."""
    high, low = extreme
    return torch.where(high > -torch.inf, high + low, 0.0)


def extremes(scores: Tensor) -> Tensor:
    """Largest finite score of each row, and largest of the negated ones, float64 (2, B); -inf if there is none."""
    found = torch.full((2, len(scores)), -torch.inf, dtype=torch.float64, device=scores.device)
    if scores.shape[1]:
        step = max(1, _CELLS // scores.shape[1])
        for some, out in zip(torch.split(scores, step), torch.split(found, step, 1), strict=True):
            finite = some.isfinite()
            out[0] = some.masked_fill(~finite, -torch.inf).amax(1)
            out[1] = -some.masked_fill(~finite, torch.inf).amin(1).double()
    return found


def _rounded(numbers: Tensor, dtype: torch.dtype, up: bool) -> Tensor:
    """Round float64 to the next number of a dtype in one direction."""
    near = numbers.to(dtype)
    beyond = near.double() < numbers if up else near.double() > numbers
    if dtype.itemsize == 2:  # torch has no nextafter for half precision
        bits = near.view(torch.int16)
        order = torch.where(bits < 0, -(bits & 0x7FFF), bits) + (1 if up else -1)
        step = torch.where(order < 0, -order | -0x8000, order).to(torch.int16).view(dtype)
    else:
        step = torch.nextafter(near, torch.full_like(near, torch.inf if up else -torch.inf))
    return torch.where(beyond, step, near)
