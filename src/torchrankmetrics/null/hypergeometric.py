"""Probability that the first relevant item of a query is beyond a rank."""

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.sample import FloatArray

_SHIFT = 16  # from where on Stirling's series has all digits


def log_miss(b: npt.ArrayLike, t: npt.ArrayLike, x: npt.ArrayLike) -> FloatArray:
    """Log of C(b - x, t) / C(b, t), for real x.

    It is the probability that none of t places among b is one of the first x.
    """
    b, t, x = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (b, t, x)))
    # a second difference of log-factorials, by Stirling's series without its large terms: errors of
    # 1e-15 for any size
    left = b - x - t
    possible = left > -1  # a polynomial in x, zero at the first place that is impossible
    crossed = np.where(possible, x * t, 0.0)
    left = np.where(possible, left, 1.0)
    result = np.zeros(b.shape)
    near = left < _SHIFT
    for i in range(1, _SHIFT + 1) if near.any() else ():
        result[near] -= np.log1p(crossed[near] / ((b[near] + i) * (left[near] + i)))
    shift = np.where(near, _SHIFT, 0)
    b = b + shift
    left = left + shift
    result += (
        (left + 0.5) * np.log1p(crossed / (b * left)) + t * _log_rest(x, b) + x * _log_rest(t, b)
    )
    # pairs that differ by x: nothing is left of them at x = 0
    result += (_stirling(left + t) - _stirling(b)) - (_stirling(left) - _stirling(left + x))
    return np.where(possible, result, -np.inf)


def _log_rest(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Log(1 - part / whole)."""
    rest = (whole - part) / whole  # exact to rounding where little is left
    return np.where(
        rest < 0.5, np.log(np.maximum(rest, 1e-300)), np.log1p(-np.minimum(part / whole, 0.5))
    )


def _stirling(z: FloatArray) -> FloatArray:
    """Log Gamma(z + 1) - (z log z - z + log(2 pi z) / 2), for z >= 16."""
    s = 1 / (z * z)
    series: FloatArray = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / z
    return series
