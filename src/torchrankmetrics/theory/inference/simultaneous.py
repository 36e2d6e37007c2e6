"""Pairs of models on many data sets, tested as one family: what they have in common makes the correction smaller."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from torchrankmetrics.theory.candidates import FloatArray

DRAWS = 20_000
_CELLS = 1 << 21


@dataclass(frozen=True, eq=False)
class PairwiseTests:
    """The tests of pairs of models that were evaluated on the same tasks.

    Attributes:
        covariance: (k, k) float64 of the values of the models.
        pairs: (m,) pairs of models.
        p_values: (m,) two-sided p-values of "the pair does not differ", each right by itself.
    """

    covariance: FloatArray
    pairs: tuple[tuple[int, int], ...]
    p_values: tuple[float, ...]


def simultaneous_p_values(blocks: Sequence[PairwiseTests], draws: int = DRAWS, seed: int = 0) -> list[FloatArray]:
    """Adjust p-values of several data sets for being one family: min-P, step-down; the family-wise error is controlled.

    How the pairs of a data set depend on each other follows from the covariance of the models (asymptotically normal):
    without any difference, smallest p-values are drawn from it. Data sets are independent of each other; blocks that
    are not, as other metrics of the same ranks, are treated as if they were, which errs to the safe side.

    Args:
        blocks: one per data set (and metric).
        draws: how often values are drawn; no adjusted p-value is below 1 / (draws + 1).
        seed: of the draws.

    Returns:
        (m,) float64 for each block, none below what was given.

    Source: Westfall and Young 1993 (Resampling-Based Multiple Testing, algorithm 2.8); Hothorn, Bretz and Westfall
    2008 (doi:10.1002/bimj.200810425); for blocks Royen 2014 (arXiv 1408.1028).
    """
    p = np.array([value for block in blocks for value in block.p_values])
    if not len(p):
        return [np.empty(0) for _ in blocks]
    roots = [_root(block.covariance) for block in blocks]
    order = np.argsort(p, kind="stable")
    bars = p[order] * (1 + 1e-12)
    reached = np.zeros(len(p), dtype=np.int64)
    rng = np.random.default_rng(seed)
    step = max(1, _CELLS // len(p))
    for start in range(0, draws, step):
        size = min(step, draws - start)
        drawn = [_drawn(block, root, rng, size) for block, root in zip(blocks, roots, strict=True)]
        smallest = np.minimum.accumulate(np.concatenate(drawn, 1)[:, order][:, ::-1], 1)[:, ::-1]
        reached += (smallest <= bars).sum(0)
    stepped = np.maximum.accumulate((1 + reached) / (1 + draws))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum(stepped, p[order])
    return np.split(adjusted, np.cumsum([len(block.p_values) for block in blocks])[:-1])


def _drawn(block: PairwiseTests, root: FloatArray, rng: np.random.Generator, size: int) -> FloatArray:
    """P-values (size, m) of pairs that do not differ."""
    values = rng.normal(size=(size, len(root))) @ root
    a, b = np.array(block.pairs, dtype=np.int64).reshape(-1, 2).T
    spread = np.linalg.norm(root[a] - root[b], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num((values[:, a] - values[:, b]) / spread)  # what cannot differ has p = 1
    return np.asarray(2 * ndtr(-np.abs(z)))


def _root(covariance: FloatArray) -> FloatArray:
    """The symmetric square root: unlike a triangular one it exists for models that are equal."""
    # scaled first: eigenvalues of tiny variances would be lost beside large ones
    scale = np.sqrt(np.diag(covariance))
    safe = np.where(scale > 0, scale, 1.0)
    value, vector = np.linalg.eigh(covariance / safe / safe[:, None])
    root: FloatArray = (vector * np.sqrt(np.maximum(value, 0.0))) @ vector.T
    return root * scale
