"""Structure of candidates: equal rows, and the lattice step of their numbers; prepared tiles."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.tiles import Tile

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

_ROWS = 1 << 12
_EXPONENT, _FRACTION = (1 << 11) - 1, (1 << 52) - 1


class Structure(NamedTuple):
    """Equal candidates, and the power of two that all numbers are multiples of.

    Attributes:
        group: int64 (N,), over the rows of all tables, equal for candidates of equal embeddings and bias (-0 and 0 are
            equal); None: all differ.
        lattice_step: every finite number of the embeddings is a multiple of it; 0: unknown, inf: all are zero.
    """

    group: Tensor | None
    lattice_step: float

    @classmethod
    def of(cls, *tables: tuple[Tensor, Tensor | None]) -> "Structure":
        """Look for it in embeddings with their biases: one read of them, and a second of what may be equal."""
        return cls(_equal_rows(tables), min(lattice_step_of(embeddings) for embeddings, _ in tables))


def lattice_step_of(numbers: Tensor) -> float:
    """Largest power of two that every finite number of (n, d) floats is a multiple of; 0 if the ratio is of no use."""
    lattice_step, largest = torch.inf, 0.0
    for part in torch.split(numbers, _ROWS):
        wide = part.double()
        wide = wide.masked_fill(~wide.isfinite(), 0)
        bits = wide.view(torch.int64)
        exponent, fraction = (bits >> 52) & _EXPONENT, bits & _FRACTION
        if bool(((exponent == 0) & (fraction != 0)).any()):  # too small to be of use
            return 0.0
        if not bool(exponent.any()):
            continue
        whole = fraction | (_FRACTION + 1)
        lowest = ((whole & -whole).double().view(torch.int64) >> 52) - 1023
        least = torch.where(exponent == 0, 1 << 20, exponent + lowest - 52 - 1023).min()
        lattice_step = min(lattice_step, math.ldexp(1.0, int(least)))
        largest = max(largest, float(wide.abs().max()))
        if largest > lattice_step * 2.0**50:
            return 0.0
    return lattice_step


def _equal_rows(tables: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor | None:
    # equal rows have equal norms; where torch sums them in different orders they may not, and are compared one by one
    parts = [part for embeddings, _ in tables for part in torch.split(embeddings, _ROWS)]
    norm = torch.cat([torch.linalg.vector_norm(part.double(), dim=1) for part in parts])
    norm, order = norm.sort(stable=True)
    suspect = (norm[1:] == norm[:-1]).nonzero()[:, 0]
    if not len(suspect):
        return None
    same = torch.zeros(len(order), dtype=torch.bool, device=norm.device)
    for some in torch.split(suspect, _ROWS):
        (one, bias), (other, other_bias) = (rows_of(tables, order[place]) for place in (some, some + 1))
        equal = (one.double() == other.double()).all(1)
        same[some + 1] = equal if bias is None else equal & (bias == other_bias)
    if not bool(same.any()):
        return None
    return torch.empty_like(order).index_put_((order,), (~same).cumsum(0))


def rows_of(tables: Sequence[tuple[Tensor, Tensor | None]], index: Tensor) -> tuple[Tensor, Tensor | None]:
    """Embeddings and biases of rows (n,) of one or two tables, those of the second after those of the first."""
    (embeddings, bias), *more = tables
    if not more:
        return embeddings.index_select(0, index), None if bias is None else bias[index]
    inside, beyond = index < len(embeddings), (index - len(embeddings)).clamp(min=0)
    found, added = rows_of(more, beyond)
    found[inside] = embeddings[index[inside]]
    if added is not None and bias is not None:
        added[inside] = bias[index[inside]]
    return found, added


def structure_of(candidates: "Candidates") -> Structure:
    """Structure of all candidates; stored in them."""
    if "structure" not in candidates.prepared:
        candidates.prepared["structure"] = Structure.of((candidates.embeddings, candidates.bias))
    found: Structure = candidates.prepared["structure"]
    return found


def tiles_of(candidates: "Candidates", similarity: str, width: int, is_reused: bool) -> Iterable[Tile]:
    """Slices of so many candidates, in order; stored in candidates that are reused, otherwise created one by one."""
    N = len(candidates)
    columns = (slice(left, min(left + width, N)) for left in range(0, N, width))
    made = (Tile(candidates.embeddings, candidates.bias, part, similarity) for part in columns)
    if not is_reused:
        return made
    if (similarity, width) not in candidates.prepared:
        candidates.prepared[similarity, width] = list(made)
    found: list[Tile] = candidates.prepared[similarity, width]
    return found
