"""Similarities of embeddings: scores of pairs, and products of tiles with an error bound."""

import math
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking.pairs import DISTANCE, PRODUCT, SQUARE

LARGE = 2.0**60  # norms up to here neither overflow nor vanish in float32


class Similarity:
    """Dot product, q.e + b; the other similarities override what differs."""

    terms = PRODUCT
    needs_norm = False  # whether a candidate without a direction has no score

    def score(self, sums: Tensor, square: Tensor | None) -> Tensor:
        """Turn the sums of pairs, float64 (n,), into scores without the bias, in place."""
        return sums

    def as_documented(self, score: Tensor) -> Tensor:
        """Turn a score that is compared into the score that the documentation names."""
        return score

    def approximated(self, score: Tensor, norm: Tensor) -> Tensor:
        """Turn scores into numbers that the product of the tile approximates; ``norm`` is |q|."""
        return score

    def matrix(self, tile: Tensor, norm: Tensor) -> Tensor:
        """Turn candidates (n, d) with norms (n,) into rows that are multiplied."""
        return tile

    def addend(self, bias: Tensor | None, square: Tensor) -> Tensor | None:
        """Return the number that is added to the products of each candidate, float64 (n,)."""
        return bias

    def multiply(
        self, queries: Tensor, matrix: Tensor, addend: Tensor | None, out: Tensor, kernels: Any
    ) -> Tensor:
        """Write approximations (B, n) into out."""
        if addend is None:
            return torch.mm(queries, matrix.T, out=out)
        return torch.addmm(addend, queries, matrix.T, out=out)

    def size(self, norm: Tensor, longest: Tensor, bias: Tensor, d: int) -> Tensor:
        """Bound the numbers that are added: of |q| (P,), the longest |e| and the largest bias."""
        return norm * longest + bias


class _Cosine(Similarity):
    """q.e / |e|, compared as s |s| / e.e: not all libraries round square roots alike."""

    needs_norm = True

    def score(self, sums: Tensor, square: Tensor | None) -> Tensor:
        assert square is not None
        return sums.mul_(sums.abs()).div_(square)

    def as_documented(self, score: Tensor) -> Tensor:
        return score.sign() * score.abs().sqrt()

    def approximated(self, score: Tensor, norm: Tensor) -> Tensor:
        return self.as_documented(score)

    def matrix(self, tile: Tensor, norm: Tensor) -> Tensor:
        return tile / norm.to(tile.dtype)[:, None]

    def size(self, norm: Tensor, longest: Tensor, bias: Tensor, d: int) -> Tensor:
        return norm


class _L2(Similarity):
    """-|q - e|^2 + b; the product approximates 2 q.e - |e|^2 + b."""

    terms = SQUARE

    def score(self, sums: Tensor, square: Tensor | None) -> Tensor:
        return sums.neg_()

    def approximated(self, score: Tensor, norm: Tensor) -> Tensor:
        return score + norm.square()

    def addend(self, bias: Tensor | None, square: Tensor) -> Tensor | None:
        return -square if bias is None else bias - square

    def multiply(
        self, queries: Tensor, matrix: Tensor, addend: Tensor | None, out: Tensor, kernels: Any
    ) -> Tensor:
        assert addend is not None
        return torch.addmm(addend, queries, matrix.T, alpha=2, out=out)

    def size(self, norm: Tensor, longest: Tensor, bias: Tensor, d: int) -> Tensor:
        return (norm + longest).square() + bias


class _L1(Similarity):
    """-sum |q - e| + b."""

    terms = DISTANCE

    def score(self, sums: Tensor, square: Tensor | None) -> Tensor:
        return sums.neg_()

    def multiply(
        self, queries: Tensor, matrix: Tensor, addend: Tensor | None, out: Tensor, kernels: Any
    ) -> Tensor:
        distances: Tensor = kernels.negative_distances(queries, matrix, out)
        return distances if addend is None else distances.add_(addend)

    def size(self, norm: Tensor, longest: Tensor, bias: Tensor, d: int) -> Tensor:
        # the sum of |x_k| is at most sqrt(d) |x|
        return (norm + longest) * math.sqrt(d) + bias


SIMILARITIES = {"dot": Similarity(), "cosine": _Cosine(), "l2": _L2(), "l1": _L1()}


def product_dtype() -> torch.dtype:
    """Precision of the products: float64 if torch may round float32 to TF32 or bfloat16."""
    backends = torch.backends.mkldnn, torch.backends.cuda
    modes = [getattr(getattr(one, "matmul", None), "fp32_precision", None) for one in backends]
    if None in modes:  # torch before 2.9
        modes = [torch.get_float32_matmul_precision()]
    return torch.float32 if set(modes) <= {"none", "ieee", "highest"} else torch.float64


def error_bound(
    dtype: torch.dtype, d: int, size: Tensor, approximated: Tensor, norms: Tensor
) -> Tensor:
    """Bound |approximation - score of the pair| for products in a precision, float64 (P,).

    Twice the bound of Higham (2002, section 3.1): half is for the rounding of the score of the pair
    and of the true score. ``norms`` is |q| + max |e|, for numbers that vanish in float32.
    """
    terms = d + 8
    vanished = 4 * terms * torch.finfo(torch.float32).tiny * (1 + norms)
    return torch.finfo(dtype).eps * (terms * size + 2 * approximated.abs()) + vanished
