"""Brute force for ranking/ by plain loops: scores are rational numbers; those that are not finite follow IEEE 754."""

import math
from fractions import Fraction


def rank(row, column, excluded=()):
    """(optimistic, pessimistic, num_candidates, touched by NaN) of one task; the own column is never excluded."""
    true = row[column]
    others = [s for j, s in enumerate(row) if j != column and j not in excluded]
    touched = any(math.isnan(s) for s in [*others, true])
    better = sum(1 for s in others if math.isnan(s) or math.isnan(true) or s > true)
    tied = sum(1 for s in others if s == true)
    return 1 + better, 1 + better + tied, 1 + len(others), touched


def lines(ranks):
    """The library's ranks as such tuples, one per task."""
    return list(
        zip(
            ranks.optimistic.tolist(),
            ranks.pessimistic.tolist(),
            ranks.num_candidates.tolist(),
            strict=True,
        )
    )


def ranks(scores, tasks, excluded=lambda row: ()):
    """One line per (row, column) task."""
    return [rank(scores[row], column, excluded(row)) for row, column in tasks]


class Graph:
    """Known triples as dictionaries of sets."""

    def __init__(self, triples):
        self.known = {"tail": {}, "head": {}}
        for h, r, t in triples:
            self.known["tail"].setdefault((h, r), set()).add(t)
            self.known["head"].setdefault((r, t), set()).add(h)

    def answers(self, side, query):
        return self.known[side].get(query, set())

    def num_candidates(self, triple, side, candidates):
        query, own = split(triple, side)
        return 1 + sum(1 for e in candidates if e != own and e not in self.answers(side, query))

    def lines(self, triples, row_of, candidates):
        """The ranks of the tails of triples, then of their heads: ``row_of(side, query)`` scores all entities."""
        found = []
        for side in ("tail", "head"):
            for query, own in (split(triple, side) for triple in triples):
                row = row_of(side, query)
                gone = self.answers(side, query) | {*range(len(row))} - {*candidates}
                found.append(rank(row, own, gone)[:3])
        return found


def split(triple, side):
    h, r, t = triple
    return ((h, r), t) if side == "tail" else ((r, t), h)


def score(query, candidate, bias, similarity):
    """A Fraction in the order of the scores of a query, or NaN, inf, -inf."""
    if similarity == "cosine":
        product = total([times(q, e) for q, e in zip(query, candidate, strict=True)])
        square = total([times(e, e) for e in candidate])
        # x / 0 and inf / inf; finite / inf is not reached
        if square == 0 or isinstance(square, float):
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
    return (
        math.nan
        if x != x
        else math.copysign(math.inf, x)
        if isinstance(x, float)
        else float((x > 0) - (x < 0))
    )


def minus(a, b):
    a, b = number(a), number(b)
    return (
        a - b
        if isinstance(a, Fraction) and isinstance(b, Fraction)
        else float(sign(a)) - float(sign(b))
    )


def total(parts):
    if all(isinstance(part, Fraction) for part in parts):
        return sum(parts, Fraction(0))
    return sum(part for part in parts if isinstance(part, float))


def in_order(row):
    """Floats in the order of the scores of a row: fractions may be too large for one."""
    fractions = sorted({x for x in row if isinstance(x, Fraction)})
    place = {x: float(i) for i, x in enumerate(fractions)}
    return [place[x] if isinstance(x, Fraction) else x for x in row]


def exact_matrix(queries, candidates, bias, similarity):
    """Rows of floats in the order of the scores, of tensors."""
    bias = [0.0] * len(candidates) if bias is None else bias.double().tolist()
    biased = [*zip(candidates.double().tolist(), bias, strict=True)]
    return [
        in_order([score(q, e, b, similarity) for e, b in biased]) for q in queries.double().tolist()
    ]
