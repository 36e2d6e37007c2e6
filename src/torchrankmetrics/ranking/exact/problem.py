"""What one call of exact ranks compares: queries, tiles of candidates with their bounds, targets, excluded cells."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded, chosen, num_excluded
from torchrankmetrics.ranking.exact.counting import choose_intervals
from torchrankmetrics.ranking.shards import Shard

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

Table = tuple[Tensor, Tensor | None]
"""Embeddings (n, d) and their biases (n,)."""
Fill = Callable[[Tensor, slice, float], None]
"""Writes a value into cells of scores (rows, n), which are some columns of a tile."""
INT8, FLOAT32, FLOAT64 = torch.int8, torch.float32, torch.float64
CELLS = 1 << 19  # scores computed at once; in int8 and in plain torch twice as many
BLOCK = 256  # columns of a tile that are filled at once, or a multiple
_NUMBERS = 1 << 17  # read at once, so that intermediate results stay in the cache
_SAFE = 2.0**450  # lengths whose squares neither overflow nor vanish in float64


def _parts(vectors: Tensor) -> Sequence[Tensor]:
    return torch.split(vectors, max(1, _NUMBERS // max(vectors.shape[1], 1)))


def finite_rows(vectors: Tensor, norms: Tensor) -> Tensor:
    """Whether all numbers of a vector are finite, bool (n,); one read of the norms is enough where all of them are."""
    if not len(norms) or float(norms.amax()) < torch.inf:
        return torch.ones_like(norms, dtype=torch.bool)
    return vectors.double().isfinite().all(1)


def lengths(vectors: Tensor) -> Tensor:
    """Norms of (n, d) floats, float64 (n,): within (d + 4) 2^-53, relatively, where squares do not vanish."""
    # compiled, a third of the time
    if vectors.dtype in (FLOAT32, FLOAT64) and chosen(vectors) == "numba":
        vectors, every = vectors.contiguous(), torch.arange(len(vectors), device=vectors.device)
        squares: Tensor = choose_intervals(vectors).products(vectors, vectors, every, every)
        return squares.sqrt_()
    parts = _parts(vectors)
    # one buffer: new memory for each part takes five times the time
    buffer = torch.empty_like(parts[0], dtype=FLOAT64)
    return torch.cat(
        [torch.linalg.vector_norm(buffer[: len(part)].copy_(part), dim=1) for part in parts]
    )


def upper_norms(vectors: Tensor, length: Tensor | None = None) -> Tensor:
    """Bounds of norms of (n, d) floats: float64 (n,), 0 for zeros alone; inf or NaN where a number is."""
    norm = lengths(vectors) if length is None else length
    d = vectors.shape[1]
    # the rounding of the sum, and squares that vanish
    bound: Tensor = norm * (1 + (d + 4) * 2.0**-50) + 2.0**-510 * d**0.5
    if bool(norm.all()):
        return bound
    zeros = (norm == 0).nonzero()[:, 0]
    return bound.index_fill_(0, zeros[~(vectors[zeros] != 0).any(1)], 0.0)


def rounding_norms(vectors: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Round vectors (n, d) to a precision; bound the norms of what that changes, as ``upper_norms`` does."""
    rounded = vectors.to(dtype)
    if torch.finfo(dtype).eps <= torch.finfo(vectors.dtype).eps:  # it holds all of them
        return rounded, torch.zeros(len(vectors), dtype=FLOAT64, device=vectors.device)
    lost = vectors.double() - rounded.double()  # needs no rounding
    return rounded, upper_norms(lost)


class Sizes(NamedTuple):
    """Terms of the error bound: maxima over the candidates of a tile, floats; or of each candidate, tensors."""

    norm: Any  # of the factor of the queries, before it is rounded
    error: Any  # norm of the rounding
    bias: Any  # magnitude of the addend
    bias_error: Any  # its rounding
    longest: Any  # of the vectors that are multiplied, which cosine divides by their lengths later
    shortest: Any  # the least length they are divided by, or 1


class Tile:
    """Candidates [left, right), their scores q.e + bias, or q.e / |e| for cosine; l2 is q.e - |e|^2 / 2 + bias / 2."""

    def __init__(
        self, embeddings: Tensor, bias: Tensor | None, columns: slice, similarity: str
    ) -> None:
        self.left, self.right = int(columns.start), int(columns.stop)
        self.given, self.similarity = embeddings[columns], similarity
        self.prepared: dict[Any, Any] = {}  # in int8
        self.given_bias = None if bias is None else bias[columns]

    def __len__(self) -> int:
        return self.right - self.left

    @cached_property
    def norm(self) -> Tensor:
        """Upper bounds of the norms, float64 (n,); inf and NaN where a number is."""
        return upper_norms(self.given, self.length)

    @cached_property
    def special(self) -> Tensor | None:
        """Columns of the tile, int64, whose scores are not finite for any query; None: no columns."""
        odd = ~finite_rows(self.given, self.norm)
        if self.similarity == "cosine" and not bool((self.length > 0).all()):
            odd |= ~(self.given != 0).any(1)
        if self.given_bias is not None:
            odd |= ~self.given_bias.isfinite()
        return odd.nonzero()[:, 0] if bool(odd.any()) else None

    @cached_property
    def length(self) -> Tensor:
        """Lengths, float64 (n,)."""
        return lengths(self.given)

    @cached_property
    def bias(self) -> Tensor | None:
        """The addend to q.e, float64 (n,)."""
        bias = None if self.given_bias is None else self.given_bias.double()
        if self.similarity != "l2":
            return bias
        square = torch.cat([part.double().square().sum(1) for part in _parts(self.given)])
        return (-square if bias is None else bias - square) / 2

    def sizes(self, dtype: torch.dtype) -> Sizes:
        """Return the terms of the error bound for scores in a precision."""
        return self._sizes_float32 if dtype == FLOAT32 else self._sizes_float64

    @cached_property
    def each(self) -> Sizes:
        """The terms of the error bound of each candidate in float64: tensors (n,)."""
        d, norm = self.given.shape[1], self.norm
        none, one = torch.zeros_like(norm), torch.ones_like(norm)
        if self.similarity == "cosine":
            safe = (self.length > 1 / _SAFE) & (norm < _SAFE)
            error = torch.where(safe, (d + 4) * 2.0**-51, torch.inf)
            return Sizes(
                one * (1 + 2.0**-20), error, none, none, norm, torch.where(safe, self.length, 1.0)
            )
        if self.bias is None:
            return Sizes(norm, none, none, none, norm, one)
        bias = self.bias.abs()
        rounding = (
            (d + 4) * 2.0**-51 * (norm * norm + bias) + d * 2.0**-1020
            if self.similarity == "l2"
            else none
        )
        return Sizes(norm, none, bias, rounding, norm, one)

    @cached_property
    def _sizes_float64(self) -> Sizes:
        largest = Sizes(*(float(self.ordinary(numbers).max()) for numbers in self.each))
        return largest._replace(shortest=float(self.ordinary(self.each.shortest, 1.0).min()))

    @cached_property
    def _sizes_float32(self) -> Sizes:
        wide = self._sizes_float64
        error = (
            wide.error
            + float(self.ordinary(rounding_norms(self.given, FLOAT32)[1]).max()) / wide.shortest
        )
        if self.similarity == "cosine":
            error += 2.0**-20
        return wide._replace(error=error, bias_error=wide.bias_error + wide.bias * 2.0**-23)

    def ordinary(self, numbers: Tensor, of_special: float = 0.0) -> Tensor:
        """Replace the numbers of special columns."""
        return numbers if self.special is None else numbers.index_fill(0, self.special, of_special)


def tiles_of(
    candidates: "Candidates", similarity: str, width: int, first: int, is_reused: bool
) -> Iterable[Tile]:
    """Slices of so many candidates, in order, the first perhaps shorter; stored in candidates that are reused."""
    N = len(candidates)
    borders = [0, *range(first, N, width), N] if N else [0]
    columns = (slice(left, right) for left, right in pairwise(borders))
    made = (Tile(candidates.embeddings, candidates.bias, part, similarity) for part in columns)
    if not is_reused:
        return made
    stored: list[Tile] = candidates.prepared.setdefault((similarity, width, first), list(made))
    return stored


def lattice_step_of(numbers: Tensor) -> float:
    """Largest power of two that every finite number of (n, d) floats is a multiple of; 0 if the ratio is of no use."""
    largest = max(
        float(_finite(part).abs().max()) if part.numel() else 0.0 for part in _parts(numbers)
    )
    unit, bits = math.ldexp(1.0, math.frexp(largest)[1] - 50), 0
    for part in _parts(numbers):
        whole = _finite(part) / unit
        if unit < 2.0**-1000 or bool((whole != whole.round()).any()):
            return 0.0
        bits |= int(np.bitwise_or.reduce(whole.long().cpu().numpy(), axis=None))
    return unit * (bits & -bits) if bits else torch.inf


def _finite(numbers: Tensor) -> Tensor:
    return numbers.double().nan_to_num(0.0, 0.0, 0.0)


def _equal_rows(tables: Sequence[Table]) -> Tensor | None:
    """Group equal rows of all tables (-0 and 0 are equal), int64 (N,); None: all differ."""
    # equal rows have equal norms; where torch sums them in different orders they may not, and are
    # compared one by one
    norm = torch.cat([lengths(embeddings) for embeddings, _ in tables])
    norm, order = norm.sort(stable=True)
    suspect = (norm[1:] == norm[:-1]).nonzero()[:, 0]
    same = torch.zeros(len(order), dtype=torch.bool, device=norm.device)
    for some in torch.split(suspect, 1 << 12):
        (one, bias), (other, other_bias) = (
            rows_of(tables, order[place]) for place in (some, some + 1)
        )
        equal = (one.double() == other.double()).all(1)
        same[some + 1] = equal if bias is None else equal & (bias == other_bias)
    return (
        torch.empty_like(order).index_put_((order,), (~same).cumsum(0))
        if bool(same.any())
        else None
    )


def rows_of(tables: Sequence[Table], index: Tensor) -> Table:
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


class ExcludedTiles:
    """Excluded cells of a (B, n) shard of a matrix that never exists, tile by tile."""

    def __init__(
        self, excluded: Excluded, row: Tensor, column: Tensor, num_rows: int, shard: Shard
    ) -> None:
        self._part = excluded.between(shard.first, shard.last)
        self._last = slice(0, len(shard)), self._part
        # bool (P,), whether a target is excluded from the tasks of the others
        self.own = excluded.lists(row, column)
        matrix, slices, of_all = self._part.matrix, self._part.slices, self._part.columns
        number = torch.zeros(num_rows, dtype=torch.int64, device=row.device)
        if matrix is not None:
            number += num_excluded(matrix)
        if slices is not None:
            rows, columns = slices.pairs()
            number += torch.bincount(
                rows if of_all is None else rows[~of_all[columns]], minlength=num_rows
            )
        inside = (column >= shard.first) & (column < shard.last) & ~self.own
        # candidates of a task, its target left out
        self.others = len(shard) - number[row] - inside.long()

    def of(self, tile: Tile, rows: Tensor, special: Tensor | None = None) -> Sequence[Fill]:
        """Return functions that overwrite the excluded scores of some rows, int64, ascending, and special columns."""
        if self._last[0] != slice(tile.left, tile.right):
            self._last = slice(tile.left, tile.right), self._part.between(tile.left, tile.right)
        slices, cells, of_all, _ = self._last[1]
        row = column = block = rows[:0]
        if slices is not None:
            row, place = slices.entries(rows)
            column = slices.columns[place] - slices.first
            block, order = (column // BLOCK).int().sort(stable=True)
            row, column = row[order], column[order]

        def fill_pairs(scores: Tensor, columns: slice, value: float) -> None:
            ends = block.new_tensor([columns.start // BLOCK, -(-columns.stop // BLOCK)])
            here = slice(*torch.searchsorted(block, ends).tolist())
            place = row[here] * scores.shape[1] + (column[here] - columns.start)
            scores.view(-1).index_fill_(0, place, value)

        def fill_columns(mask: Tensor, scores: Tensor, columns: slice, value: float) -> None:
            scores.masked_fill_(mask[..., columns], value)

        masks = [of_all, None if cells is None else cells[rows]]
        if special is not None:
            masks.append(
                torch.zeros(len(tile), dtype=torch.bool, device=row.device).index_fill_(
                    0, special, True
                )
            )
        return [fill_pairs] * bool(len(row)) + [
            partial(fill_columns, mask) for mask in masks if mask is not None
        ]


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
        return finite_rows(self.given, self.norm)

    @cached_property
    def wide(self) -> Tensor:
        """In float32, or float64 where they are given so, rows beside each other in memory: as pairs are compared."""
        return self.given.to(FLOAT64 if self.given.dtype == FLOAT64 else FLOAT32).contiguous()

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(B, d) in a precision, and upper bounds of the norms of the rounding."""
        if dtype not in self._rounded:
            self._rounded[dtype] = rounding_norms(self.given, dtype)
        return self._rounded[dtype]

    def sizes(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Upper bounds of the norms of what ``rounded`` gives, and of its rounding; as ``norm``."""
        error = self.rounded(dtype)[1]
        return self.norm + error, error


class Problem(NamedTuple):
    """Tasks in ascending order of their rows."""

    queries: Queries
    candidates: "Candidates"
    similarity: str  # "dot", "l2" or "cosine"
    row: Tensor  # int64 (P,), ascending
    # int64 (P,), the true candidates, negative where they are not among these candidates
    column: Tensor
    # the candidates; and the true ones, one per task, where other processes have some of them
    tables: list[Table]
    excluded: ExcludedTiles
    # how cells and pairs are counted: ``exact.counting``, or the same compiled
    intervals: ModuleType
    backend: str  # how scores that are not finite are counted, as in ``rank_scores``

    @property
    def width(self) -> int:
        """D of the embeddings."""
        return self.queries.given.shape[1]

    @property
    def among(self) -> Tensor:
        """The true candidate of each task in the tables, one after the other, int64 (P,)."""
        if len(self.tables) == 1:
            return self.column
        return len(self.candidates) + torch.arange(len(self.row), device=self.row.device)

    def structure(self) -> tuple[Tensor | None, float]:
        """Groups of equal rows of the tables, and the lattice step of their numbers; stored in all candidates."""
        stored = self.candidates.prepared if len(self.tables) == 1 else {}
        if "structure" not in stored:
            steps = [lattice_step_of(embeddings) for embeddings, _ in self.tables]
            stored["structure"] = _equal_rows(self.tables), min(steps)
        found: tuple[Tensor | None, float] = stored["structure"]
        return found


class Counts:
    """Candidates better than the true one, tied with it, NaN, and those whose score is special: int64 (P,) each."""

    def __init__(self, like: Tensor) -> None:
        self.above, self.tied, self.nan, self.special = (torch.zeros_like(like) for _ in range(4))
