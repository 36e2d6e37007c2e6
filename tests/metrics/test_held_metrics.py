"""A metric that a RankCollection holds is updated by it alone; copies, and what another one took over, are free."""

import copy
import pickle

import pytest
from torchmetrics import MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from bits import bits
from public_metrics import scores
from torchrankmetrics import MeanRank, RankCollection

HELD = "is in a RankCollection.* update the collection"


def made(*seeds: int) -> RankCollection:
    metrics = RankCollection(["mrr", "mr", "count"])
    for seed in seeds:
        metrics.update(*scores(seed))
    return metrics


@pytest.mark.parametrize("copied", [lambda c: c, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_an_update_of_a_member_raises_and_changes_nothing(copied):
    metrics = copied(made(1))
    member = metrics["mr"]
    for refused in (member.update, member, lambda *_: member.merge_state({"rows": MeanRank().rows})):
        with pytest.raises(TorchMetricsUserError, match=HELD):
            refused(*scores(2))
    assert bits(metrics) == bits(made(1))
    metrics(*scores(2))
    assert member._forward_cache is not None
    assert bits(metrics) == bits(made(1, 2))


every_group = pytest.mark.parametrize("compute_groups", [True, False, [["mrr", "mr", "count"]]])


@every_group
def test_a_plain_collection_that_takes_the_metrics_over_updates_them(compute_groups):
    metrics = made()
    plain = MetricCollection(dict(metrics.items()), compute_groups=compute_groups)
    plain.update(*scores(1))
    plain(*scores(2))
    plain.update(*scores(3))
    assert bits(plain) == bits(metrics) == bits(made(1, 2, 3))  # they are the same metrics


@every_group
def test_a_collection_that_was_taken_over_rejects_updates_and_the_other_goes_on(compute_groups):
    metrics, inner = made(), made()
    plain = MetricCollection([metrics], compute_groups=compute_groups)
    named = MetricCollection({"in": inner})
    outer, taken = RankCollection([second := made(), "hits_at_1"]), made()
    for other, those in ((plain, metrics), (named, inner), (outer, second)):
        for _ in range(2):  # before and after a reset
            other.update(*scores(1))
            for refused in (those.update, those, lambda *_, those=those: those.merge_state(taken)):
                with pytest.raises(TorchMetricsUserError, match="taken over by another collection: update that one"):
                    refused(*scores(2))
            with pytest.raises(TorchMetricsUserError, match="taken over by another collection"):
                those.add_metrics(["amri"])
            assert list(those.keys()) == ["mrr", "mr", "count"]
            other(*scores(3))
            other.update(*scores(4))
            found = bits(other)
            assert found["in_mr" if other is named else "mr"] == bits(made(1, 3, 4))["mr"]
            those.reset()


def test_metrics_updated_separately_warn_and_keep_their_rows():
    for key in ("mrr", "count"):
        metrics = made(1)
        dict(metrics.items())[key].update(*scores(2))
        with pytest.raises(TorchMetricsUserError, match="updated apart from its RankCollection"):
            metrics.update(*scores(3))
        metrics.reset()
        metrics.update(*scores(3))
        assert bits(metrics) == bits(made(3))
