"""Candidates of ``rank_embeddings``, and what is worked out once for them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.certified.structure import Structure
from torchrankmetrics.ranking.certified.tiles import Tile


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
