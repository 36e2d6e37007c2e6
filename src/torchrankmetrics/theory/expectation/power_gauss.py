"""Null moments of powers of a power sum, S^a with S = sum of v_i r_i^p, by the Gauss rule of the law of S.

The first 20 cumulants of S are sums over tasks, exact; the modified Chebyshev algorithm in Hermite form turns them into
a rule with 10 nodes for expectations under the law of S itself. It serves exponents that grow too fast for the Laplace
integral. Source: Golub and Meurant, Matrices, Moments and Quadrature with Applications (2010), chapter 5.
"""

import math

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.cumulants import CUMULANTS, has_cumulants, power_sum
from torchrankmetrics.theory.expectation.provider import strategy, unavailable

_NODES = CUMULANTS // 2
_MEAN_TOLERANCE, _VARIANCE_TOLERANCE = 1e-12, 1e-10


@strategy(lambda definition: has_cumulants(definition) and definition.exponents[1] != 1)
def power_mean_by_gauss(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of (sum of v_i r_i^p)^a for |p| <= 3 beyond the Laplace integral.

    Raises:
        ExpectationUnavailableError: if the rules with 8 and 10 nodes disagree (few tasks with many candidates).
    """
    p, a = definition.exponents
    S = power_sum(counts, p)
    kappa = S.sum_cumulants
    spread = math.sqrt(kappa[2])
    moments = _hermite_moments(kappa / spread ** np.arange(CUMULANTS + 1))
    coarse, fine = (_by_rule(moments, nodes, spread, a, S.log_mean) for nodes in (_NODES - 2, _NODES))
    if coarse is not None and fine is not None:
        close = abs(coarse.mean - fine.mean) <= _MEAN_TOLERANCE * fine.mean
        if close and abs(coarse.variance - fine.variance) <= _VARIANCE_TOLERANCE * fine.variance:
            return fine
    raise unavailable(definition, "has no moments of stated accuracy for so few tasks with so many candidates")


def _hermite_moments(kappa: FloatArray) -> FloatArray:
    """E[He_j(Z)], j = 0..19, of the standardized variable with these cumulants."""
    raw = np.zeros(CUMULANTS)
    raw[0] = 1.0
    for j in range(1, CUMULANTS):
        raw[j] = sum(math.comb(j - 1, i - 1) * kappa[i] * raw[j - i] for i in range(2, j + 1))
    hermite = np.polynomial.hermite_e.herme2poly
    return np.array([hermite(np.eye(CUMULANTS)[j])[: j + 1] @ raw[: j + 1] for j in range(CUMULANTS)])


def _gauss_hermite(moments: FloatArray, nodes: int) -> tuple[FloatArray, FloatArray] | None:
    """Nodes and weights of the Gauss rule with these Hermite moments; None if rounding has spoilt them."""
    size = 2 * nodes
    alpha, beta = np.zeros(nodes), np.zeros(nodes)
    before, now = np.zeros(size), moments[:size].copy()
    alpha[0], beta[0] = now[1], now[0]
    for k in range(1, nodes):
        after = np.zeros(size)
        for j in range(k, size - k):
            after[j] = now[j + 1] - alpha[k - 1] * now[j] - beta[k - 1] * before[j] + j * now[j - 1]
        if not after[k] > 0:
            return None
        alpha[k] = after[k + 1] / after[k] - now[k] / now[k - 1]
        beta[k] = after[k] / now[k - 1]
        before, now = now, after
    off = np.sqrt(beta[1:])
    root, vector = np.linalg.eigh(np.diag(alpha) + np.diag(off, 1) + np.diag(off, -1))
    return root, vector[0] ** 2


def _by_rule(moments: FloatArray, nodes: int, spread: float, a: float, log_mean: float) -> Moments | None:
    rule = _gauss_hermite(moments, nodes)
    if rule is None or spread * rule[0].min() <= -1:
        return None
    weight, value = rule[1], np.expm1(a * np.log1p(spread * rule[0]))
    mean = float(weight @ value)
    scale = math.exp(a * log_mean)
    return Moments(scale * (1 + mean), scale**2 * float(weight @ (value - mean) ** 2))
