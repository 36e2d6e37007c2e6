"""Random facts and scores that are often tied."""

import torch


def graph(seed=0, n=40, columns=(7, 3, 7)):
    """Distinct facts, by default triples of 7 entities and 3 relations."""
    generator = torch.Generator().manual_seed(seed)
    facts = torch.stack([torch.randint(size, (n,), generator=generator) for size in columns], dim=1)
    return torch.unique(facts, dim=0)


def integers(*shape, seed=1):
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(seed)).float()
