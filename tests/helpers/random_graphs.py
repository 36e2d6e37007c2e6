"""Random facts and scores that are often tied, and a model with such scores."""

import torch


def graph(seed=0, n=40, columns=(7, 3, 7)):
    """Distinct facts, by default triples of 7 entities and 3 relations."""
    generator = torch.Generator().manual_seed(seed)
    facts = torch.stack([torch.randint(size, (n,), generator=generator) for size in columns], dim=1)
    return torch.unique(facts, dim=0)


def integers(*shape, seed=1):
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(seed)).float()


class Model:
    """Scores (2, E, R, E) of tails given heads, heads given tails; and a record of the queries."""

    def __init__(self, scores):
        self.scores, self.requested = scores, []

    def tails(self, heads, relations):
        self.requested += [
            ("tail", *query) for query in zip(heads.tolist(), relations.tolist(), strict=True)
        ]
        return self.scores[0, heads, relations]

    def heads(self, relations, tails):
        self.requested += [
            ("head", *query) for query in zip(relations.tolist(), tails.tolist(), strict=True)
        ]
        return self.scores[1, tails, relations]

    def hrt(self, triples):
        h, r, t = triples.T
        return self.scores[0, h, r, t]  # one score, whichever side is requested

    def row(self, side, query):
        return (
            self.scores[0, query[0], query[1]]
            if side == "tail"
            else self.scores[1, query[1], query[0]]
        ).tolist()
