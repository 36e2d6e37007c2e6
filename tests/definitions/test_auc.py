"""The mean of AUC_i, and transforms that depend on the number of candidates, in every view, test and interval."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from torchrankmetrics import (
    MeanAUC,
    RankCollection,
    RankDefinition,
    RankMetric,
    RankMetricWarning,
    Ranks,
    adjust,
    compare,
    evaluate,
)
from torchrankmetrics.datasets import PrecomputedExpectation
from torchrankmetrics.definitions import WithCandidates
from torchrankmetrics.definitions.tasks import MEAN_AUC
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.null.p_values import p_value

pytestmark = [pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")]

# the same function without the closed forms, and two that have none: a step, and one with another g
PLAIN = RankDefinition("plain", f=WithCandidates(lambda r, n: (n - r) / (n - 1).clamp(min=1), min_candidates=2))
TOP = RankDefinition("top", f=WithCandidates(lambda r, n: (r <= (n / 2).ceil()).double()), optimum=1.0)
LOG = RankDefinition("log", f=WithCandidates(lambda r, n: r.log() / (n + 1).log()), g=torch.exp)
METRICS = [MEAN_AUC, PLAIN, TOP, LOG]
every_metric = pytest.mark.parametrize("definition", METRICS, ids=lambda d: d.name)

SMALL = [([3], None), ([1, 4, 1, 2], None), ([2, 3, 4], [1.0, 2.0, 0.5]), ([4, 3, 1, 4], [0.5, 0.0, 1.0, 0.75])]


def values_of(definition, N, weights):
    """The metric at all rank vectors by the plain formula, tasks with too few candidates left out."""
    w = [Fraction(1) if weights is None else Fraction(x) for x in (weights or N)]
    used = [i for i, n in enumerate(N) if n >= definition.min_candidates and w[i] > 0]
    v = [w[i] / sum(w[j] for j in used) for i in used]
    counts = torch.tensor([float(N[i]) for i in used], dtype=torch.float64)
    for ranks in itertools.product(*(range(1, N[i] + 1) for i in used)):
        if definition in (MEAN_AUC, PLAIN):
            yield sum(s * Fraction(N[i] - r, N[i] - 1) for s, i, r in zip(v, used, ranks, strict=True))
        else:
            f = definition.f(torch.tensor(ranks, dtype=torch.float64), counts)
            mean = sum(float(s) * x for s, x in zip(v, f.tolist(), strict=True))
            yield definition.g(torch.tensor(mean, dtype=torch.float64)).item()


@every_metric
@pytest.mark.parametrize(("N", "weights"), SMALL)
def test_moments_are_those_of_all_rank_vectors(definition, N, weights):
    values = [float(x) for x in values_of(definition, N, weights)]
    for moments in (
        DEFAULT_EXPECTATION.moments(definition, N, weights),
        PrecomputedExpectation(N, weights).moments(definition, [9, 9]),
    ):
        assert moments.mean == pytest.approx(np.mean(values), rel=1e-12)
        assert moments.variance == pytest.approx(np.var(values), rel=1e-10, abs=1e-30)


@every_metric
@pytest.mark.parametrize(("N", "weights"), SMALL)
def test_p_values_are_shares_of_all_rank_vectors(definition, N, weights):
    values = np.array([float(x) for x in values_of(definition, N, weights)])
    for x in np.unique(values):
        good = values >= x - 1e-12 if definition.higher_is_better else values <= x + 1e-12
        assert p_value(definition, x, N, weights) == pytest.approx(good.mean(), rel=1e-9)


def test_one_candidate_has_no_auc_and_changes_nothing():
    ranks, N, group = [2, 1, 5, 1], [4, 1, 9, 1], torch.tensor([0, 0, 1, 1])
    names = ["auc", "expected_auc", "adjusted_auc", "z_auc", "p_auc"]
    without = evaluate(ranks[::2], N[::2], names)
    assert evaluate(ranks, N, names) == without
    macro = {"auc": RankMetric(MEAN_AUC, average="macro")}
    assert evaluate(ranks, N, macro, group=group)["auc"] == pytest.approx((2 / 3 + 1 / 2) / 2, rel=1e-14)
    whole, part = RankCollection(["auc", "adjusted_auc"]), RankCollection(["auc", "adjusted_auc"])
    whole.update(Ranks(ranks, None, N), group=group)
    part.update(Ranks(ranks[::2], None, N[::2]), group=group[::2])
    assert whole.confidence_intervals().rows == part.confidence_intervals().rows
    assert whole.breakdown()["adjusted_auc"] == part.breakdown()["adjusted_auc"]
    assert [row.base for row in whole.summary().rows] == [row.base for row in part.summary().rows]
    assert MeanAUC().moments(N) == MeanAUC().moments(N[::2])


def test_without_any_task_of_two_candidates_it_is_undefined():
    with pytest.warns(RankMetricWarning, match="auc is undefined") as reported:
        assert all(math.isnan(x) for x in evaluate([1, 1], [1, 1], ["auc", "adjusted_auc", "p_auc"]).values())
    assert len(reported) == 1
    moments = MeanAUC().moments([1, 1])
    assert math.isnan(moments.mean)
    assert moments.variance == 0
    with pytest.raises(ValueError, match="at least 2"):
        adjust(0.5, "auc", [1, 1])
    with pytest.raises(ValueError, match="at least 2 candidates"):
        p_value(MEAN_AUC, 0.5, [1, 1])
    with pytest.raises(ValueError, match="no tasks to compare 'auc' on"):
        compare(Ranks([1], None, 1), Ranks([1], None, 1), "auc")


def test_a_best_value_that_depends_on_the_candidates_is_rejected():
    with pytest.raises(ValueError, match="rank 1 the same value for every number of candidates"):
        RankDefinition("relative", f=WithCandidates(lambda r, n: r / n))
    free = RankDefinition("relative", f=WithCandidates(lambda r, n: r / n), optimum=None, higher_is_better=False)
    values = evaluate([1, 2], [4, 8], {"base": RankMetric(free), "z": RankMetric(free, view="z_score")})
    assert values["base"] == 0.25
    with warnings.catch_warnings(), pytest.raises(ValueError, match="no best value"):
        RankMetric(free, view="adjusted_index")
