"""Models of a small graph with a given amount of noise, for evaluations that end early."""

import torch

import random_graphs
from torchrankmetrics import KnownTriples, rank_triples
from torchrankmetrics.sequential import rank_sequentially

E, R, N = 40, 3, 400
TRIPLES = torch.unique(
    torch.stack([torch.arange(N) * 7 % E, torch.arange(N) % R, torch.arange(N) ** 2 % E], 1), dim=0
)
TRIPLES = TRIPLES[torch.randperm(len(TRIPLES), generator=torch.Generator().manual_seed(0))]
KNOWN = KnownTriples(TRIPLES, num_entities=E)
QUIET = {"progress": False}


class Model(random_graphs.Model):
    """Scores of the truth with a given amount of noise, with ties."""

    def __init__(self, skill, seed=0):
        noise = torch.randint(
            -3, 4, (2, E, R, E), generator=torch.Generator().manual_seed(seed)
        ).float()
        h, r, t = TRIPLES.T
        noise[0, h, r, t] += skill
        noise[1, t, r, h] += skill
        super().__init__(noise)
        self.noise, self.both = noise, (self.tails, self.heads)


def full(model):
    return rank_triples(*model.both, TRIPLES, KNOWN, **QUIET)


def decide(model, **options):
    return rank_sequentially(*model.both, TRIPLES, KNOWN, **{**QUIET, **options})
