"""Scores of embeddings as rational numbers, by plain loops; what is no finite number follows IEEE arithmetic."""

import math
from fractions import Fraction


def score(query, candidate, bias, similarity):
    """A Fraction in the order of the scores of a query, or NaN, inf, -inf."""
    if similarity == "cosine":
        product = total([times(q, e) for q, e in zip(query, candidate, strict=True)])
        square = total([times(e, e) for e in candidate])
        if square == 0 or isinstance(square, float):  # x / 0 and inf / inf; finite / inf is not reached
            return math.nan
        return product if isinstance(product, float) else product * abs(product) / square
    if similarity == "l2":
        parts = [minus(q, e) for q, e in zip(query, candidate, strict=True)]
        distance = total([times(x, x) for x in parts])
        return total([-distance, number(bias)])
    return total([*(times(q, e) for q, e in zip(query, candidate, strict=True)), number(bias)])


def number(x):
    return Fraction(x) if math.isfinite(x) else x


def times(a, b):
    a, b = (x if isinstance(x, Fraction) else number(x) for x in (a, b))
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return sign(a) * sign(b)  # inf 0 and NaN are NaN


def sign(x):
    return math.nan if x != x else math.copysign(math.inf, x) if isinstance(x, float) else float((x > 0) - (x < 0))


def minus(a, b):
    a, b = number(a), number(b)
    return a - b if isinstance(a, Fraction) and isinstance(b, Fraction) else float(sign(a)) - float(sign(b))


def total(parts):
    if all(isinstance(part, Fraction) for part in parts):
        return sum(parts, Fraction(0))
    return sum(part for part in parts if isinstance(part, float))


def in_order(row):
    """Floats in the order of the scores of a row: fractions may be too large for one."""
    fractions = sorted({x for x in row if isinstance(x, Fraction)})
    place = {x: float(i) for i, x in enumerate(fractions)}
    return [place[x] if isinstance(x, Fraction) else x for x in row]


def matrix(queries, candidates, bias, similarity):
    """Rows of floats in the order of the scores, of tensors."""
    bias = [0.0] * len(candidates) if bias is None else bias.double().tolist()
    biased = [*zip(candidates.double().tolist(), bias, strict=True)]
    return [in_order([score(q, e, b, similarity) for e, b in biased]) for q in queries.double().tolist()]
