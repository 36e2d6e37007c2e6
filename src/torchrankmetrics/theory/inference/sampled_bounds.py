"""What ranks among sampled negatives leave possible of a full metric: two linear programs over laws of full ranks."""

import math

import numpy as np
from scipy.optimize import linprog

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.sampled_means import sampled_law

_CELLS, _MOST = 1 << 22, 1 << 30
_EACH, _PLACES = 12, 24
_START, _ADDED, _ROUNDS, _PRICE = 200, 64, 60, 10.0
_SLACK = 1e-9


def full_mean_bounds(better: IntArray, num_negatives: int, values: FloatArray, level: float, lowest: bool) -> float:
    """Smallest (or largest) mean of f over full ranks that agrees with the ranks among sampled negatives.

    Every law p of full ranks implies a distribution function of the numbers of better ones among m sampled. Those that
    stay within a band around the observed one are possible; the mean of f is linear in p. The band holds for
    independent tasks with ranks of their own (Bretagnolle's constant in the inequality of Dvoretzky, Kiefer and
    Wolfowitz), so it is the mean over these very tasks that is bounded.

    Args:
        better: (n,) int64, how many of the sampled negatives are better, one per task.
        num_negatives: m, drawn without replacement, the same for all tasks.
        values: (N,) float64, f at full ranks 1, ..., N.
        level: of confidence of each end.
        lowest: whether the smallest is sought.

    Raises:
        ValueError: if N (m + 1) is too large, or no law of full ranks agrees.

    Source: Bretagnolle 1980, as in Shorack and Wellner 1986, section 25.1; Massart 1990 (doi:10.1214/aop/1176990746).
    """
    N, m = len(values), num_negatives
    # at some places of the distribution function: fewer only make the bound wider
    places = np.unique(np.r_[0 : min(_EACH, m), np.geomspace(1, m, _PLACES).astype(np.int64) - 1])
    if N * (m + 1) > _MOST:
        raise ValueError(f"num_candidates times num_negatives must be at most 2^30 for bounds, got {N} x {m}")
    below = np.concatenate([_distribution(part, N, m)[:, places] for part in _blocks(N, m)]).T
    observed = (np.cumsum(np.bincount(better, minlength=m + 1)) / len(better))[places]
    band = math.sqrt(math.log(2 * math.e / (1 - level)) / (2 * len(better)))
    size = float(np.ptp(values))
    if size == 0:
        return float(values[0])
    best = float(values.min() if lowest else values.max())
    cost = np.abs(values - best) / size  # in [0, 1]: the solver's tolerances are absolute
    used = np.unique(np.geomspace(1, N, min(_START, N)).astype(np.int64)) - 1
    for _ in range(_ROUNDS):
        rows, columns = len(observed), len(used)
        # the last column prices what no law of the ranks in use can reach
        matrix = np.full((2 * rows, columns + 1), -1.0)
        matrix[:rows, :-1], matrix[rows:, :-1] = below[:, used], -below[:, used]
        limits = np.concatenate([np.minimum(observed + band, 1), -np.maximum(observed - band, 0)])
        weight = np.r_[np.ones(columns), 0.0][None]
        found = linprog(np.r_[cost[used], _PRICE], matrix, limits, weight, [1.0], method="highs")
        if found.x is None or found.fun is None:
            raise ValueError(f"the linear program of the bound has no solution: {found.message}")
        unreached, value, dual = float(found.x[-1]), float(found.fun), found.ineqlin.marginals
        reduced = cost - (dual[:rows] - dual[rows:]) @ below - found.eqlin.marginals[0]
        if reduced.min() >= -_SLACK:
            break
        used = np.unique(np.concatenate([used, np.argsort(reduced)[:_ADDED]]))
    if unreached > 1e-7:
        raise ValueError(
            "no full ranks agree with these sampled ones: the negatives are no uniform sample of all candidates, or "
            "num_candidates is wrong"
        )
    # what the duals say holds for every law, as far as no reduced cost is below zero
    distance = size * max(value + min(float(reduced.min()), 0.0), 0.0)
    return best + distance if lowest else best - distance


def _blocks(N: int, m: int) -> list[FloatArray]:
    ranks = np.arange(1.0, N + 1)
    return np.array_split(ranks, -(-N * (m + 1) // _CELLS))


def _distribution(rank: FloatArray, N: int, m: int) -> FloatArray:
    """Probability of at most x better ones, x = 0, ..., m, for each full rank: (b, m + 1)."""
    column = rank[:, None]
    return np.cumsum(sampled_law(column, np.full_like(column, N), np.full_like(column, m)), 1)
