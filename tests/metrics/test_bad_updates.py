"""Bad input of update and forward: an error that names the argument, what came and what was expected; rows stay."""

import math
import re

import pytest
import torch

from bits import bits
from torchrankmetrics import MeanRank, RankCollection, RankDefinition, RankMetric, Ranks, evaluate
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.ranks import trusted

SCORES = torch.tensor([[0.3, 0.9, 0.1, 0.4], [0.8, 0.2, 0.5, 0.4]])
TARGET = torch.tensor([1, 2])
RANKS = Ranks([1, 2], [2, 2], 4)

BAD_UPDATES = {
    # scores and targets
    "target beyond N": (IndexError, "target must lie in .*4", lambda m: m.update(SCORES, torch.tensor([1, 4]))),
    "target missing": (ValueError, "target is missing", lambda m: m.update(SCORES)),
    "scores of another type": (
        TypeError,
        "preds must be a torch.Tensor or an array of scores .* got list: pass torch.tensor",
        lambda m: m.update(SCORES.tolist(), TARGET),
    ),
    # exclusion
    "excluded column beyond N": (IndexError, "exclude must", lambda m: m.update(SCORES, TARGET, exclude=([0], [4]))),
    "target outside the restriction": (
        ValueError,
        "target must be a candidate.* column 2",
        lambda m: m.update(SCORES, TARGET, exclude=torch.tensor([False, False, True, False])),
    ),
    # ranks
    "target beside ranks": (ValueError, "target must not be given", lambda m: m.update(RANKS, TARGET)),
    "exclude beside ranks": (ValueError, "exclude must not be given", lambda m: m.update(RANKS, exclude=TARGET)),
    # columns of the tasks
    "side unknown": (ValueError, "side must be one of None, 'head', 'tail', 'relation'; got 'both'", {"side": "both"}),
    "group of floats": (TypeError, "group must hold integers, got torch.float", {"group": [0.5, 1.0]}),
    "group too long": (ValueError, r"group must be .*\(2,\).*\(3,\)", {"group": torch.tensor([1, 2, 3])}),
    "group of bools": (TypeError, "group must hold integers", {"group": [True, False]}),
    "group on another device": (ValueError, "group must be on", {"group": torch.zeros(2, device="meta").long()}),
    "sample id of floats": (TypeError, "sample_id must hold integers", {"sample_id": torch.tensor([0.0, 1.0])}),
    "one sample id for all": (ValueError, "sample_id must be", {"sample_id": 3}),
    "weight negative": (ValueError, r"weight must be .*-0\.5 for task 1", {"weight": [1.0, -0.5]}),
    "weight NaN": (ValueError, "weight must be finite.*nan for task 0", {"weight": [math.nan, 1.0]}),
    "weight infinite": (ValueError, "weight must be finite.*inf for task 1", {"weight": torch.tensor([1.0, math.inf])}),
    "weight of bools": (TypeError, "weight must hold real numbers", {"weight": [True, False]}),
    "weight too long": (ValueError, r"weight must be .*\(3,\)", {"weight": [1.0, 1.0, 1.0]}),
    # keywords
    "misspelt keyword": (TypeError, "sampleid", {"sampleid": [1, 2]}),
    "three positional arguments": (TypeError, "positional", lambda m: m.update(SCORES, TARGET, None)),
}


def metrics():
    return {
        "metric": MeanRank(),
        "counts": MeanRank(storage="counts"),
        "view": RankMetric(RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r)), view="z_score"),
        "collection": RankCollection(["mrr", "mr", "z_mrr"]),
    }


def state(metric):
    members = list(metric.values(copy_state=False)) if isinstance(metric, RankCollection) else [metric]
    return [(member.update_count, [block.tolist() for block in member.rows]) for member in members]


@pytest.mark.parametrize("case", BAD_UPDATES)
def test_a_bad_update_raises_and_changes_nothing(case):
    error, message, call = BAD_UPDATES[case]
    for metric in metrics().values():
        calls = [call]
        if isinstance(call, dict):
            calls = [lambda m: m.update(RANKS, **call), lambda m: m(RANKS, **call)]
        fresh = state(metric)
        for bad in calls:
            with pytest.raises(error, match=message):
                bad(metric)
        assert state(metric) == fresh
        metric.update(SCORES, TARGET, weight=[1.0, 2.0], side="head")
        before, value = state(metric), bits(metric)
        for bad in calls:
            with pytest.raises(error, match=message):
                bad(metric)
        assert (state(metric), bits(metric)) == (before, value)


def test_one_side_or_a_macro_average_needs_the_side_or_the_group():
    for metric in (MeanRank(side="tail"), RankCollection(["mr"], sides=["both", "tail"]), RankCollection(["head_mr"])):
        with pytest.raises(ValueError, match="side must be passed to update"):
            metric.update(SCORES, TARGET)
        assert all(count == 0 and not rows for count, rows in state(metric))
    for metric in (MeanRank(average="macro"), RankCollection([MeanRank(average="macro"), "mrr"])):
        with pytest.raises(ValueError, match="group must be passed to update"):
            metric.update(SCORES, TARGET)
        assert all(count == 0 and not rows for count, rows in state(metric))


@pytest.mark.parametrize("kind", list(fault.ERRORS), ids=lambda kind: fault.ERRORS[kind][1].split()[0] + str(kind))
def test_flags_of_an_accelerator_raise_at_compute(kind):
    error, text = fault.ERRORS[kind]
    flagged = trusted(torch.tensor([[1, 1, 4]] * 3).T, torch.tensor([0, kind | fault.NAN, kind]))
    for metric in (MeanRank(), MeanRank(storage="counts"), RankCollection(["mrr", "mr"])):
        metric.update(RANKS)
        metric.update(flagged, side="tail")
        for _ in range(2):  # it does not go away
            with pytest.raises(error, match=re.escape(text) + ".*2 ranking tasks"):
                metric.compute()
        metric.reset()
        metric.update(RANKS)
        metric.compute()
    with pytest.raises(error):
        evaluate(flagged, metrics=["mr"])


def test_faults_survive_compaction_and_merging():
    bad = MeanRank(storage="counts")
    bad.update(trusted(torch.ones(3, 1, dtype=torch.int64), torch.tensor([fault.TARGET_RANGE])))
    good = MeanRank(storage="counts")
    good.update(RANKS)
    good.merge_state(bad)
    good.rows.as_one(good.device)  # merges equal rows
    with pytest.raises(IndexError, match="target must lie in"):
        good.compute()
