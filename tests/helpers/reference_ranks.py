"""Brute force for everything under ranking/: plain loops, written from the definitions, without the library."""

import math


def rank(row, column, excluded=()):
    """(optimistic, pessimistic, num_candidates, touched by NaN) of one task; the own column is never excluded."""
    true = row[column]
    others = [s for j, s in enumerate(row) if j != column and j not in excluded]
    touched = any(math.isnan(s) for s in [*others, true])
    better = sum(1 for s in others if math.isnan(s) or math.isnan(true) or s > true)
    tied = sum(1 for s in others if s == true)
    return 1 + better, 1 + better + tied, 1 + len(others), touched


def among(row, column, candidates):
    """(optimistic, pessimistic, num_candidates) where the candidates are listed; the own column is one of them."""
    assert column in candidates
    return rank(row, column, set(range(len(row))).difference(candidates))[:3]


def lines(ranks):
    """The library's ranks as such tuples, one per task."""
    return list(zip(ranks.optimistic.tolist(), ranks.pessimistic.tolist(), ranks.num_candidates.tolist(), strict=True))


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
