"""The last level: comparisons of scores as rational numbers, which need no bound."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


class Rational:
    """Scores of one query, exact: any floats, no overflow, no rounding.

    Args:
        query: (d,) finite float64.
        similarity: "dot", "l2" (2 q.e - |e|^2 + bias) or "cosine" (the sign and the square of q.e / |e|).
    """

    def __init__(self, query: Vector, similarity: str) -> None:
        self._query, self._unit = _integers(query)
        self._similarity = similarity

    def score(self, candidate: Vector, bias: float) -> Fraction:
        """A number in the order of the scores of this query."""
        numbers, unit = _integers(candidate)
        product = _dot(self._query, numbers)
        if self._similarity == "cosine":  # that of a vector of zeros is NaN, and does not come here
            return Fraction(product * abs(product), _dot(numbers, numbers))
        score = product * _power(self._unit + unit)
        if self._similarity == "l2":
            score = 2 * score - _dot(numbers, numbers) * _power(2 * unit)
        return score + Fraction(bias)


def _integers(numbers: Vector) -> tuple[list[int], int]:
    """Integers and the exponent of the power of two that they are to be multiplied with."""
    fraction, exponent = np.frexp(numbers)
    exponent = np.where(fraction == 0, 0, exponent - 53)
    unit = int(exponent.min(initial=0))
    whole = np.ldexp(fraction, 53).astype(np.int64).tolist()
    return [number << shift for number, shift in zip(whole, (exponent - unit).tolist(), strict=True)], unit


def _dot(one: list[int], other: list[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)
