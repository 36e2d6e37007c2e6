"""A model for PyKEEN's evaluators whose scores are a table; the comparison of their results."""

import pytest
import torch

QUIET = {"use_tqdm": False, "batch_size": 64}


class Lookup(torch.nn.Module):
    """A model for PyKEEN's evaluators; scores (relations, heads, tails), integers, often tied."""

    use_inverse_triples = can_slice_t = can_slice_h = False
    device = torch.device("cpu")

    def __init__(self, dataset, levels=8, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.num_entities, self.num_relations = dataset.num_entities, dataset.num_relations
        shape = (self.num_relations, self.num_entities, self.num_entities)
        self.scores = torch.randint(levels, shape, generator=generator).float()

    def predict(self, hrt_batch, target, **_):
        h, r, t = hrt_batch.T
        return self.scores[r, h].clone() if target == "tail" else self.scores[r, :, t].clone()


def splits_of(dataset):
    return [part.mapped_triples for part in (dataset.training, dataset.validation, dataset.testing)]


def evaluated(dataset, evaluator, model=None, **options):
    """The result of ``Evaluator.evaluate`` on the test triples, filtered by all splits."""
    train, valid, test = splits_of(dataset)
    options = {"additional_filter_triples": [train, valid], **QUIET, **options}
    return evaluator.evaluate(Lookup(dataset) if model is None else model, test, **options)


def assert_parity(theirs, ours):
    """Every key of theirs has the same value in ours; the number of keys."""
    theirs, ours = theirs.to_flat_dict(), ours.to_flat_dict()
    assert set(theirs) <= set(ours)
    for key, value in theirs.items():
        # realistic ranks are float32 there; what is left near 0, against chance, keeps the error of
        # the base value
        near = 2e-4 if ".z_" in key else 1e-6
        assert ours[key] == pytest.approx(
            value, rel=1e-5, abs=near if ".z_" in key or ".adjusted" in key else 0
        ), key
    return len(theirs)
