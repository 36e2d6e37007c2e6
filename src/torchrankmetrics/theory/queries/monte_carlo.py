"""The tail of a mean over queries by simulation, where the law of one query is not at hand."""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.queries.kind import QueryKind
from torchrankmetrics.theory.queries.sample import QuerySample

_BUDGET = 1 << 25  # ranks drawn in all
_FEWEST = 99  # outcomes, however many ranks they take
_BLOCK = 1 << 20  # ranks in memory at a time


def simulated_tail(
    kind: QueryKind, N: IntArray, m: IntArray, share: FloatArray, count: IntArray, least: float, samples: int, seed: int
) -> tuple[int, int]:
    """Draw values of sum of c v X by chance: how many are at least ``least``, and how many were drawn.

    Args:
        kind: of the metric; lower is better where v < 0.
        N: (u,) int64, ascending, then m: equal pairs are drawn together.
        m: (u,) int64.
        share: (u,) float64, v of one query.
        count: (u,) int64, c.
        least: the value to reach.
        samples: how many to draw at most.
        seed: of NumPy's default generator.
    """
    random = np.random.default_rng(seed)
    samples = min(samples, max(_FEWEST, _BUDGET // int((count * m).sum())))
    totals = np.zeros(samples)
    first = np.flatnonzero(np.r_[True, (N[1:] != N[:-1]) | (m[1:] != m[:-1])])
    for begin, end in zip(first, [*first[1:], len(N)], strict=True):
        one_N, one_m = int(N[begin]), int(m[begin])
        weights = np.repeat(share[begin:end], count[begin:end])
        rows = max(1, _BLOCK // (one_m * len(weights)))
        for start in range(0, samples, rows):
            size = min(rows, samples - start)
            for block in range(0, len(weights), _BLOCK):
                some = weights[block : block + _BLOCK]
                ranks = random_subsets(random, one_N, one_m, size * len(some))
                values = kind.values(QuerySample.ranked(ranks, one_N))
                totals[start : start + size] += (values.reshape(size, len(some)) * some).sum(1)
    return int((totals >= least).sum()), samples


def random_subsets(random: np.random.Generator, N: int, m: int, rows: int) -> IntArray:
    """Uniform m-subsets of 1..N, ascending, (rows, m) int64."""
    if 2 * m > N:  # what is left out
        chosen = np.ones((rows, N), dtype=bool)
        if m < N:
            np.put_along_axis(chosen, random_subsets(random, N, N - m, rows) - 1, False, axis=1)
        return (np.nonzero(chosen)[1] + 1).reshape(rows, m)
    if m * m > 4 * N:  # draws with replacement would rarely be distinct
        keys = random.random((rows, N))
        return np.sort(np.argpartition(keys, m, axis=1)[:, :m], axis=1) + 1
    ranks = np.empty((rows, m), dtype=np.int64)
    repeated = np.arange(rows)
    while len(repeated):
        ranks[repeated] = np.sort(random.integers(1, N, (len(repeated), m), endpoint=True), axis=1)
        repeated = repeated[(np.diff(ranks[repeated], axis=1) == 0).any(1)]
    return ranks
