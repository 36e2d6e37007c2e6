"""Programs that run a metric without values.

They are torch.export, fake tensors, torch.func, and the meta device.
"""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from torchrankmetrics import RankCollection, RankMetric, rank_embeddings, rank_scores

SCORES, TARGET = torch.rand(4, 6), torch.tensor([0, 1, 2, 3])
NO_VALUES = (
    r"must contain values, got a tensor without \(of torch\.export, a FakeTensorMode or torch"
)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.metric = RankCollection("mrr")

    def forward(self, scores, target):
        self.metric.update(scores, target)
        return scores


def test_an_exported_program_cannot_hold_a_metric():
    model = Model()
    with pytest.raises(ValueError, match=f"preds {NO_VALUES}"):
        torch.export.export(model, (SCORES, TARGET), strict=False)
    with pytest.raises(Exception, match="leave metrics out of programs that are exported"):
        torch.export.export(model, (SCORES, TARGET), strict=True)
    assert len(model.metric.local_table()) == 0


@pytest.mark.parametrize("function", [rank_scores, RankMetric("mrr").update])
def test_fake_tensors_have_no_ranks(function):
    with FakeTensorMode():
        scores, target = torch.rand(4, 6), torch.zeros(4, dtype=torch.int64)
    for arguments in ((scores, TARGET), (SCORES, target)):
        with pytest.raises(ValueError, match=f"(preds|scores|target) {NO_VALUES}"):
            function(*arguments)


@pytest.mark.parametrize("transform", ["grad", "jacrev", "vmap", "functionalize"])
def test_functions_that_torch_transforms_cannot_update(transform):
    metric = RankMetric("mrr")

    def loss(scores):
        metric.update(scores.reshape(4, 6), TARGET)
        return scores.sum()

    with pytest.raises(ValueError, match=f"preds {NO_VALUES}"):
        getattr(torch.func, transform)(loss)(SCORES[None])
    assert not metric.rows
    metric.update(SCORES, TARGET)
    embeddings = torch.rand(6, 6)
    with pytest.raises(ValueError, match=f"queries {NO_VALUES}"):
        torch.func.vmap(lambda x: rank_embeddings(x, embeddings, TARGET).realistic)(SCORES[None])


@pytest.mark.parametrize("make", [RankMetric, RankCollection])
def test_rows_are_not_lost_on_the_meta_device(make):
    make("mrr").to("meta")  # without rows, as models that are initialized later
    metric = make("mrr")
    metric.update(SCORES, TARGET)
    value = metric.compute()
    with pytest.raises(ValueError, match="'mrr' must be reset before it is moved to meta"):
        metric.to("meta")
    metric.update(SCORES[:0], TARGET[:0])
    assert metric.compute() == value
    metric.reset()
    metric.to("meta")
