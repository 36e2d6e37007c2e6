"""`Candidates`: embeddings prepared once for many calls, with duplicate rows and lattice numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.exact.tiles import Tile

_ROWS = 1 << 12
_EXPONENT, _FRACTION = (1 << 11) - 1, (1 << 52) - 1


class Structure(NamedTuple):
    """Equal candidates, and the power of two that all numbers are multiples of.

    Attributes:
        group: int64 (N,), over the rows of all tables, equal for candidates of equal embeddings and bias (-0 and 0 are
            equal); None: all differ.
        grain: every finite number of the embeddings is a multiple of it; 0: of none worth knowing, inf: all are zero.
    """

    group: Tensor | None
    grain: float

    @classmethod
    def of(cls, *tables: tuple[Tensor, Tensor | None]) -> "Structure":
        """Look for it in embeddings with their biases: one read of them, and a second of what may be equal."""
        return cls(_equal_rows(tables), min(grain_of(embeddings) for embeddings, _ in tables))


def grain_of(numbers: Tensor) -> float:
    """Largest power of two that every finite number of (n, d) floats is a multiple of; 0 if the ratio is of no use."""
    grain, largest = torch.inf, 0.0
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
        grain = min(grain, math.ldexp(1.0, int(least)))
        largest = max(largest, float(wide.abs().max()))
        if largest > grain * 2.0**50:
            return 0.0
    return grain


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


class Candidates:
    """Candidate embeddings, with what is worked out once for them: for ``rank_embeddings`` in place of the tensor.

    Kept from the first call with a similarity on: norms, copies in eight bits and in bfloat16 where the processor
    multiplies those, and what is looked for when many candidates tie. The embeddings themselves are not copied and must
    not change: make new candidates after a step of training.

    Args:
        embeddings: (N, d) floats; only read. None (N = 0) are an empty slice of those of a process group.
        bias: (N,) floats added to the similarity of each candidate, for "dot", "l2" and "l1"; None: none.

    Raises:
        TypeError: if they are no floats.
        ValueError: if shapes or devices do not match; in ``rank_embeddings``, if they have been written to since.

    >>> from torchrankmetrics import rank_embeddings
    >>> candidates = Candidates(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), bias=torch.tensor([0.0, 0.0, -0.5]))
    >>> rank_embeddings(torch.tensor([[2.0, 1.0]]), candidates, torch.tensor([0]))
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """

    def __init__(self, embeddings: Tensor | Array, bias: Tensor | Array | None = None) -> None:
        embeddings = read_scores(embeddings, "candidates", "embeddings (N, d)")
        if embeddings.ndim != 2:
            raise ValueError(f"candidates must be (N, d), got {tuple(embeddings.shape)}")
        self.bias = _read_bias(bias, embeddings)
        self.embeddings = embeddings.resolve_neg()
        if embeddings.dtype.itemsize == 1:  # torch multiplies no eighths; every one of them is a bfloat16
            self.embeddings = self.embeddings.to(torch.bfloat16)
        self._read = _versions(self.embeddings, self.bias)
        self._tiles: dict[tuple[str, int], list[Tile]] = {}
        self._structure: Structure | None = None

    def __len__(self) -> int:
        return len(self.embeddings)

    def check_unchanged(self) -> None:
        """Raise if torch has counted a write to the tensors since."""
        if _versions(self.embeddings, self.bias) != self._read:
            raise ValueError("the embeddings or the bias of Candidates have changed since: make new Candidates of them")

    def tiles(self, similarity: str, width: int, keep: bool) -> Iterable[Tile]:
        """Slices of so many candidates, in order; kept for the next call or made one by one."""
        columns = (slice(left, min(left + width, len(self))) for left in range(0, len(self), width))
        made = (Tile(self.embeddings, self.bias, part, similarity) for part in columns)
        if not keep:
            return made
        if (similarity, width) not in self._tiles:
            self._tiles[similarity, width] = list(made)
        return self._tiles[similarity, width]

    @property
    def structure(self) -> Structure:
        """Which candidates are equal, and what they are multiples of; kept."""
        if self._structure is None:
            self._structure = Structure.of((self.embeddings, self.bias))
        return self._structure


def _read_bias(bias: Tensor | Array | None, embeddings: Tensor) -> Tensor | None:
    if not embeddings.is_floating_point():
        raise TypeError(f"candidates must be floats, got {embeddings.dtype}")
    if bias is None:
        return None
    bias = read_scores(bias, "bias", "floats (N,)")
    if not bias.is_floating_point():
        raise TypeError(f"bias must hold floats, got {bias.dtype}")
    if bias.shape != embeddings.shape[:1]:
        raise ValueError(f"bias must be (N,) = ({len(embeddings)},), got {tuple(bias.shape)}")
    if bias.device != embeddings.device:
        raise ValueError(f"bias must be on the device of candidates, {embeddings.device}; got {bias.device}")
    return bias


def _versions(*tensors: Tensor | None) -> list[int]:
    # a tensor of inference mode counts none
    return [x._version for x in tensors if x is not None and not x.is_inference()]
