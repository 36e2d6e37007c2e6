"""Brute force for ranking/ by plain loops, in Python's float64."""

import math


def rank(row, column, excluded=()):
    """(optimistic, pessimistic, num_candidates, touched by NaN); ``column`` is never excluded."""
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
        """Ranks of tails of triples, then heads; ``row_of(side, query)`` scores all entities."""
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
    """Score of a pair as documented, in Python's float64, to be compared (cosine: s |s| / e.e)."""
    pairs = [*zip(query, candidate, strict=True)]
    if similarity == "l2":
        return bias - added_by_halves([(q - e) * (q - e) for q, e in pairs])
    if similarity == "l1":
        return bias - added_by_halves([abs(q - e) for q, e in pairs])
    product = added_by_halves([q * e for q, e in pairs])
    if similarity == "dot":
        return product + bias
    return quotient(product * abs(product), added_by_halves([e * e for e in candidate]))


def added_by_halves(terms):
    """Add the second half onto the first until one number is left."""
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        upper = terms[half:]
        terms = [x + y for x, y in zip(terms, upper, strict=False)] + terms[len(upper) : half]
    return terms[0] if terms else 0.0


def quotient(a, b):
    """IEEE division by a number that is not negative; Python raises an error if it is 0."""
    if b != 0:
        return a / b
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a)


def score_matrix(queries, candidates, bias, similarity):
    """Scores of all pairs of tensors, as lists."""
    bias = [0.0] * len(candidates) if bias is None else bias.double().tolist()
    biased = [*zip(candidates.double().tolist(), bias, strict=True)]
    return [[score(q, e, b, similarity) for e, b in biased] for q in queries.double().tolist()]
