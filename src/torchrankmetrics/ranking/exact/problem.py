"""What one call of exact ranks compares: queries, candidates with their structure, targets, excluded cells, counts."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.counting import IntervalBackend
from torchrankmetrics.ranking.exact.tiles import (
    FLOAT32,
    FLOAT64,
    Tile,
    are_finite,
    rounding_norms,
    upper_norms,
)
from torchrankmetrics.ranking.exclude import Excluded
from torchrankmetrics.ranking.shards import Shard

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

Fill = Callable[[Tensor, slice, float], None]
"""Writes a value into cells of scores (rows, n), which are some columns of a tile."""
CELLS = 1 << 20  # scores computed at once
BLOCK = 1024  # columns of a tile that are filled at once, or a multiple
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
    """Return embeddings and biases of rows (n,) of one table, or of two numbered one after the other."""
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


class ExcludedTiles:
    """Excluded cells of a (B, n) part of a matrix that never exists, tile by tile.

    Attributes:
        own: bool (P,), whether the true candidate of a task is excluded from the tasks of the others.
        others: int64 (P,), the candidates of a task in this part, its true one left out.
        total: int64 (P,), the same of all parts.
    """

    def __init__(self, excluded: Excluded, row: Tensor, column: Tensor, num_rows: int, part: Shard) -> None:
        self._part = (excluded.split(part.first)[1] if part.first else excluded).split(len(part))[0]
        self._columns, self._tile = slice(0, len(part)), self._part
        self.own = excluded.lists(row, column)
        self.others = self.total = excluded.num_others(row, column, num_rows, part.first, part.last)
        if not part.is_whole:
            self.total = excluded.num_others(row, column, num_rows, 0, part.total)

    def of(self, columns: slice, rows: Tensor) -> Fill:
        """Return a function that overwrites the excluded scores (rows, n) of some columns of a tile.

        Args:
            columns: of the tile.
            rows: int64, ascending, of the scores.
        """
        if columns != self._columns:
            _, rest = self._part.split(columns.start)
            self._columns, self._tile = columns, rest.split(columns.stop - columns.start)[0]
        slices, of_all = self._tile.slices, self._tile.columns
        cells = None if self._tile.cells is None else self._tile.cells[rows]
        row = column = block = rows[:0]
        if slices is not None:
            row, place = slices.entries(rows)
            column = slices.columns[place] - slices.first
            small = torch.int16 if columns.stop - columns.start < 1 << 15 else torch.int64  # sorted faster
            block, order = (column // BLOCK).to(small).sort(stable=True)
            row, column = row[order], column[order]

        def fill(scores: Tensor, columns: slice, value: float) -> None:
            if of_all is not None:
                scores.masked_fill_(of_all[columns], value)
            if cells is not None:
                scores.masked_fill_(cells[:, columns], value)
            if len(row):
                here = slice(
                    *torch.searchsorted(
                        block, block.new_tensor([columns.start // BLOCK, -(-columns.stop // BLOCK)])
                    ).tolist()
                )
                place = row[here] * scores.shape[1] + (column[here] - columns.start)
                scores.view(-1).index_fill_(0, place, value)

        return fill


class Queries:
    """Query embeddings (B, d), rounded to a precision on first use."""

    def __init__(self, given: Tensor) -> None:
        self.given = given
        self._rounded: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    @cached_property
    def norm(self) -> Tensor:
        """Upper bounds of the norms, float64 (B,): 0 for zeros, not finite where a number is not."""
        return upper_norms(self.given)

    @cached_property
    def finite(self) -> Tensor:
        """Whether all numbers of a query are, bool (B,)."""
        if are_finite(self.norm):
            return torch.ones_like(self.norm, dtype=torch.bool)
        return self.given.double().isfinite().all(1)

    @cached_property
    def wide(self) -> Tensor:
        """In float32, or float64 where they are given so, rows beside each other in memory: as pairs are compared."""
        return self.given.to(FLOAT64 if self.given.dtype == FLOAT64 else FLOAT32).contiguous()

    def rounded(self, dtype: torch.dtype) -> Tensor:
        """(B, d) in a precision."""
        return self._of(dtype)[0]

    def sizes(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Upper bounds of the norms of what ``rounded`` gives, and of its rounding; as ``norm``."""
        if dtype == FLOAT64:
            return self.norm, torch.zeros_like(self.norm)
        error = self._of(dtype)[1]
        return self.norm + error, error

    def _of(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if dtype not in self._rounded:
            self._rounded[dtype] = rounding_norms(self.given, dtype)
        return self._rounded[dtype]


class Targets(NamedTuple):
    """The true candidates: among the candidates, or next to them if some belong to other processes.

    Attributes:
        embeddings: (M, d).
        bias: (M,) or None.
        place: int64 (P,), the place of each task's target among them.
        among: int64 (P,), the same place if they follow the candidates: N + place; or place, if they are the
            candidates.
    """

    embeddings: Tensor
    bias: Tensor | None
    place: Tensor
    among: Tensor


class Problem(NamedTuple):
    """Tasks in ascending order of their rows.

    Attributes:
        queries: (B, d).
        candidates: (N, d), of the same dtype.
        similarity: "dot", "l2" or "cosine".
        row: int64 (P,), ascending.
        column: int64 (P,), the true candidates, negative where they are not among these candidates.
        targets: embeddings and biases of the true candidates.
        excluded: excluded candidates, tile by tile.
        intervals: how cells and pairs are counted.
        backend: how scores that are not finite are counted, as in ``rank_scores``.
    """

    queries: Queries
    candidates: "Candidates"
    similarity: str
    row: Tensor
    column: Tensor
    targets: Targets
    excluded: ExcludedTiles
    intervals: IntervalBackend
    backend: str

    @property
    def width(self) -> int:
        """D of the embeddings."""
        return self.queries.given.shape[1]

    @property
    def tables(self) -> list[tuple[Tensor, Tensor | None]]:
        """The candidates, and the true ones where they are beside them: what ``Targets.among`` counts."""
        own = self.candidates.embeddings, self.candidates.bias
        return [own] if self.targets.embeddings is own[0] else [own, self.targets[:2]]

    def structure(self) -> Structure:
        """Structure of both; stored if the candidates are all."""
        return structure_of(self.candidates) if len(self.tables) == 1 else Structure.of(*self.tables)


class Counts:
    """Candidates better than the true one, tied with it, NaN, and those whose score is special: int64 (P,) each."""

    def __init__(self, like: Tensor) -> None:
        self.above, self.tied, self.nan, self.special = (torch.zeros_like(like) for _ in range(4))
