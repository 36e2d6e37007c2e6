"""Bad input of metrics: an error that names the argument, what came and what was expected; and nothing has changed."""

import math
import re

import pytest
import torch

from torchrankmetrics import (
    ExactExpectation,
    HitsAtK,
    MeanRank,
    MonteCarloExpectation,
    PowerMeanRank,
    PrecomputedExpectation,
    RankCollection,
    RankDefinition,
    RankMetric,
    Ranks,
    RankTable,
    evaluate,
)
from torchrankmetrics.ranking import flags as fault

SCORES = torch.tensor([[0.3, 0.9, 0.1, 0.4], [0.8, 0.2, 0.5, 0.4]])
TARGET = torch.tensor([1, 2])
NAN, INF = float("nan"), float("inf")


def ranks(optimistic=(1, 2), pessimistic=(2, 2), num_candidates=4):
    return Ranks(torch.tensor(optimistic), torch.tensor(pessimistic), num_candidates)


BAD_UPDATES = {
    # scores and targets
    "target beyond N": (IndexError, "target must lie in .*4", lambda m: m.update(SCORES, torch.tensor([1, 4]))),
    "target negative": (IndexError, "target must lie in .*-1", lambda m: m.update(SCORES, torch.tensor([1, -1]))),
    "target (B, 1)": (ValueError, r"target of shape \(2, 1\)", lambda m: m.update(SCORES, TARGET[:, None])),
    "target too short": (ValueError, "target must be .*2", lambda m: m.update(SCORES, TARGET[:1])),
    "target of floats": (TypeError, "target must hold integers.*float32", lambda m: m.update(SCORES, TARGET.float())),
    "target of bools": (TypeError, "target must hold integers.*bool", lambda m: m.update(SCORES, TARGET.bool())),
    "target missing": (ValueError, "target is missing", lambda m: m.update(SCORES)),
    "target on another device": (ValueError, "target must be on .*cpu", lambda m: m.update(SCORES, TARGET.to("meta"))),
    "scores of one dimension": (ValueError, r"scores must be \(B, N\)", lambda m: m.update(SCORES[0], TARGET)),
    "scores without candidates": (ValueError, "at least one candidate", lambda m: m.update(SCORES[:, :0], TARGET)),
    "scores complex": (TypeError, "scores must be real", lambda m: m.update(SCORES.cfloat(), TARGET)),
    "scores of another type": (TypeError, "scores must be a torch.Tensor", lambda m: m.update(SCORES.numpy(), TARGET)),
    # exclusion
    "excluded column beyond N": (
        IndexError,
        "exclude must",
        lambda m: m.update(SCORES, TARGET, exclude=torch.tensor([[0], [4]])),
    ),
    "excluded column negative": (
        IndexError,
        "exclude must",
        lambda m: m.update(SCORES, TARGET, exclude=torch.tensor([[0], [-1]])),
    ),
    "target outside the restriction": (
        ValueError,
        "target must be a candidate.* column 2",
        lambda m: m.update(SCORES, TARGET, exclude=torch.tensor([False, False, True, False])),
    ),
    "exclude of another shape": (
        ValueError,
        r"exclude as bool must be \(B, N\)",
        lambda m: m.update(SCORES, TARGET, exclude=torch.zeros(2, 3, dtype=torch.bool)),
    ),
    "exclude of another type": (TypeError, "exclude must be", lambda m: m.update(SCORES, TARGET, exclude={1: 2})),
    # ranks
    "target beside ranks": (ValueError, "target must not be given", lambda m: m.update(ranks(), TARGET)),
    "exclude beside ranks": (ValueError, "exclude must not be given", lambda m: m.update(ranks(), exclude=TARGET)),
    # what is said about the tasks
    "side unknown": (ValueError, 'side must be "head", "tail" or None, got \'both\'', {"side": "both"}),
    "group of floats": (TypeError, "group must hold integers, got torch.float", {"group": [0.5, 1.0]}),
    "group too long": (ValueError, r"group must be .*\(2,\).*\(3,\)", {"group": torch.tensor([1, 2, 3])}),
    "group (B, 1)": (ValueError, r"group must be .*\(2, 1\)", {"group": torch.tensor([[1], [2]])}),
    "group of bools": (TypeError, "group must hold integers", {"group": [True, False]}),
    "group on another device": (ValueError, "group must be on", {"group": torch.zeros(2, device="meta").long()}),
    "sample id of floats": (TypeError, "sample_id must hold integers", {"sample_id": torch.tensor([0.0, 1.0])}),
    "sample id too short": (ValueError, r"sample_id must be .*\(1,\)", {"sample_id": [3]}),
    "one sample id for all": (ValueError, "sample_id must be", {"sample_id": 3}),
    "weight negative": (ValueError, r"weight must be .*-0\.5 for task 1", {"weight": [1.0, -0.5]}),
    "weight NaN": (ValueError, "weight must be finite.*nan for task 0", {"weight": [NAN, 1.0]}),
    "weight infinite": (ValueError, "weight must be finite.*inf for task 1", {"weight": torch.tensor([1.0, INF])}),
    "weights all zero": (ValueError, "weight must not be zero for every task", {"weight": [0.0, 0.0]}),
    "one weight of zero": (ValueError, "weight must not be zero for every task", {"weight": 0}),
    "weight of bools": (TypeError, "weight must hold real numbers", {"weight": [True, False]}),
    "weight complex": (TypeError, "weight must hold real numbers", {"weight": torch.ones(2, dtype=torch.cfloat)}),
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


def values(metric):
    result = metric.compute()
    return {key: float(x) for key, x in result.items()} if isinstance(result, dict) else float(result)


@pytest.mark.parametrize("kind", metrics())
@pytest.mark.parametrize("case", BAD_UPDATES)
def test_update_refuses_and_nothing_changes(kind, case):
    error, message, call = BAD_UPDATES[case]
    metric = metrics()[kind]
    fresh = state(metric)
    if isinstance(call, dict):
        options, call = call, lambda m: m.update(ranks(), **options)
    with pytest.raises(error, match=message):
        call(metric)
    assert state(metric) == fresh
    metric.update(SCORES, TARGET, weight=[1.0, 2.0], side="head")
    before, value = state(metric), values(metric)
    with pytest.raises(error, match=message):
        call(metric)
    assert state(metric) == before
    assert values(metric) == value


@pytest.mark.parametrize("case", [name for name, (_, _, call) in BAD_UPDATES.items() if isinstance(call, dict)])
def test_forward_refuses_and_nothing_changes(case):
    error, message, options = BAD_UPDATES[case]
    for metric in metrics().values():
        metric(SCORES, TARGET)
        before, value = state(metric), values(metric)
        with pytest.raises(error, match=message):
            metric(ranks(), **options)
        assert (state(metric), values(metric)) == (before, value)


def test_a_metric_of_one_side_or_a_macro_average_needs_to_know():
    for metric in (MeanRank(side="tail"), RankCollection(["mr"], sides=["both", "tail"]), RankCollection(["head_mr"])):
        with pytest.raises(ValueError, match="side must be passed to update"):
            metric.update(SCORES, TARGET)
        assert all(count == 0 and not rows for count, rows in state(metric))
    for metric in (MeanRank(average="macro"), RankCollection([MeanRank(average="macro"), "mrr"])):
        with pytest.raises(ValueError, match="group must be passed to update"):
            metric.update(SCORES, TARGET)
        assert all(count == 0 and not rows for count, rows in state(metric))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 1], None, 4), ValueError, "ranks must lie between 1 and num_candidates; task 0 has optimistic=0"),
        (([1, 5], None, 4), ValueError, "ranks must lie between 1 and num_candidates; task 1 has optimistic=5"),
        (([1, 1], [1, 5], 4), ValueError, "ranks must lie between .* task 1 .* pessimistic=5, num_candidates=4"),
        (([1, 3], [1, 2], 4), ValueError, "optimistic ranks must not be above pessimistic ranks; task 1"),
        (([1, 1], None, 0), ValueError, "num_candidates must be at least 1"),
        (([1, 1], None, [2, 0]), ValueError, "num_candidates must be at least 1.*; task 1"),
        (([1.0, 2.0], None, 4), TypeError, "optimistic must be integers, got torch.float64"),
        (([1, 2], [1.5, 2.0], 4), TypeError, "pessimistic must be integers"),
        (([1, 2], None, [4.0, 4.0]), TypeError, "num_candidates must be integers"),
        (([True, True], None, 4), TypeError, "optimistic must be integers, got torch.bool"),
        (([[1], [2]], None, 4), ValueError, r"optimistic must be \(tasks,\).*\(2, 1\)"),
        (([1, 2], [2], 4), ValueError, r"pessimistic must have the shape of optimistic, \(2,\); got \(1,\)"),
        (([1, 2], None, [4]), ValueError, "num_candidates must have the shape"),
        (([1, 2], None, None), ValueError, "num_candidates is required"),
    ],
)
def test_ranks(arguments, error, message):
    with pytest.raises(error, match=message):
        Ranks(*arguments)


@pytest.mark.parametrize("kind", list(fault.ERRORS), ids=lambda kind: fault.ERRORS[kind][1].split()[0] + str(kind))
def test_what_an_accelerator_could_only_flag_is_raised_at_compute(kind):
    error, text = fault.ERRORS[kind]
    one = torch.ones(3, dtype=torch.int64)
    flagged = Ranks.trusted(one, one, one * 4, torch.tensor([0, kind | fault.NAN, kind]))
    for metric in (MeanRank(), MeanRank(storage="counts"), RankCollection(["mrr", "mr"])):
        metric.update(ranks())
        metric.update(flagged, side="tail")
        for _ in range(2):  # it does not go away
            with pytest.raises(error, match=re.escape(text) + ".*2 ranking tasks"):
                metric.compute()
        metric.reset()
        metric.update(ranks())
        metric.compute()
    with pytest.raises(error):
        evaluate(flagged, metrics=["mr"])


def test_faults_survive_compaction_and_merging():
    one = torch.ones(1, dtype=torch.int64)
    bad = MeanRank(storage="counts")
    bad.update(Ranks.trusted(one, one, one, torch.tensor([fault.TARGET_RANGE])))
    bad._compact()
    good = MeanRank(storage="counts")
    good.update(ranks())
    good.merge_state(bad)
    good._compact()
    with pytest.raises(IndexError, match="target must lie in"):
        good.compute()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: HitsAtK(0), ValueError, "k must be at least 1, got 0"),
        (lambda: HitsAtK(-3), ValueError, "k must be at least 1, got -3"),
        (lambda: HitsAtK(2.0), TypeError, "k must be an int, got 2.0 of type float"),
        (lambda: HitsAtK(True), TypeError, "k must be an int"),
        (lambda: HitsAtK("10"), TypeError, "k must be an int"),
        (lambda: PowerMeanRank(NAN), ValueError, "p must be a real number"),
        (lambda: PowerMeanRank("2"), TypeError, "p must be a real number"),
        (lambda: RankMetric("mrr"), TypeError, "definition must be a RankDefinition, got str"),
        (lambda: MeanRank(view="index"), ValueError, "view must be one of 'base'.*got 'index'"),
        (lambda: MeanRank(rank_type="random"), ValueError, "rank_type must be one of .*got 'random'"),
        (lambda: MeanRank(side="both"), ValueError, "side must be one of None, 'head', 'tail'; got 'both'"),
        (lambda: MeanRank(average="weighted"), ValueError, "average must be one of 'micro', 'macro'"),
        (lambda: MeanRank(storage="sums"), ValueError, "storage must be one of 'ranks', 'counts'; got 'sums'"),
        (lambda: MeanRank(expectation="exact"), TypeError, "expectation must have a method moments"),
        (lambda: MeanRank(k=3), ValueError, "Unexpected keyword arguments: `k`"),
        (lambda: RankCollection([]), ValueError, "metrics is empty"),
        (lambda: RankCollection({}), ValueError, "metrics is empty"),
        (lambda: RankCollection(3), TypeError, "metrics must be names, RankMetric instances or a dict, got int"),
        (lambda: RankCollection(["mrr"], prefix=3), ValueError, "prefix"),
        (lambda: RankCollection([MonteCarloExpectation()]), TypeError, "metric name must be a str"),
        (lambda: RankDefinition("a/b"), ValueError, r"name must match \[a-z\]"),
        (lambda: RankDefinition("x", aggregation="sum"), ValueError, "aggregation must be one of .*got 'sum'"),
        (lambda: RankDefinition("x", f=lambda r: r - r), ValueError, "higher_is_better cannot be derived for 'x'"),
        (lambda: RankDefinition("x", f=lambda r: (r - 1).log()), ValueError, "f and g must give a finite tensor"),
        (lambda: RankDefinition("x", f=torch.sum), ValueError, "of the shape of the ranks"),
        (lambda: RankDefinition("x", f=lambda r: 1.0), ValueError, "f and g must give a finite tensor"),
        (lambda: MonteCarloExpectation(1), ValueError, "samples must be at least 2"),
        (lambda: PrecomputedExpectation([]), ValueError, "num_candidates is empty"),
        (lambda: RankTable([[1]]), TypeError, "rows must be an int64 tensor, got list"),
        (lambda: RankTable(torch.zeros(3, 8)), TypeError, "rows must be an int64 tensor, got torch.float32"),
        (lambda: RankTable(torch.zeros(3, 7).long()), ValueError, r"rows must be \(n, 8\), got \(3, 7\)"),
    ],
)
def test_constructors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_function_that_is_not_finite_on_some_rank_is_an_error_not_a_number():
    metric = RankMetric(RankDefinition("x", f=lambda r: 1 / (r - 3)))
    metric.update(ranks())
    metric.compute()
    metric.update(Ranks([3], None, 4))
    with pytest.raises(ValueError, match="f must be finite on every rank >= 1; at rank 3"):
        metric.compute()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: evaluate([0, 1], 4), ValueError, "ranks must lie between 1 and num_candidates"),
        (lambda: evaluate([1, 5], 4), ValueError, "ranks must lie between 1 and num_candidates"),
        (lambda: evaluate([1.25, 2], 4), ValueError, "multiples of 1/2.*1.25"),
        (lambda: evaluate([NAN, 2], 4), ValueError, "multiples of 1/2.*nan"),
        (lambda: evaluate([INF, 2], 4), ValueError, "multiples of 1/2.*inf"),
        (lambda: evaluate([1, 2], metrics=["amri"]), ValueError, "num_candidates is needed for 'amri'"),
        (lambda: evaluate([1, 2], [4.0, 4.0]), TypeError, "num_candidates must be integers"),
        (lambda: evaluate([1, 2], [4]), ValueError, "num_candidates must have the shape"),
        (lambda: evaluate(ranks(), 4), ValueError, "num_candidates must not be given with a Ranks"),
        (lambda: evaluate([1.5], 4, ["optimistic_mr"]), ValueError, "'optimistic_mr' needs optimistic and pessimistic"),
        (lambda: evaluate([1.5], 4, ["expected_mr"]), ValueError, "'expected_mr' needs optimistic and pessimistic"),
        (lambda: evaluate([1.5], 4, ["tie_rate"]), ValueError, "'tie_rate' needs optimistic and pessimistic"),
        (lambda: evaluate([1, 2], 4, weight=[0, 0]), ValueError, "weight must not be zero"),
        (lambda: evaluate([1, 2], 4, [MeanRank(average="macro")]), ValueError, "group must be passed"),
        (lambda: evaluate([1, 2], 4, ["tail_mr"]), ValueError, r"sides \['tail'\] are asked for, but ranks say none"),
        (lambda: evaluate([1, 2], 4, ["mmr"]), ValueError, "unknown metric 'mmr'"),
        (lambda: evaluate([1, 2], 4, wheels=4), ValueError, "wheels"),
        (
            lambda: evaluate(RankTable.from_ranks(ranks()), weight=[1, 1]),
            ValueError,
            "weight and group must not be given with a RankTable",
        ),
        (
            lambda: evaluate(RankTable.from_ranks(ranks()), metrics=[MeanRank(average="macro")]),
            ValueError,
            "average='macro' needs a group for every task",
        ),
        (lambda: MeanRank().moments([4, 0]), ValueError, "num_candidates must be at least 1"),
        (lambda: MeanRank().moments([4.0]), TypeError, "num_candidates must be integers"),
        (lambda: MeanRank().moments([4, 4], weight=[1.0]), ValueError, "weights must have one entry per task"),
        (lambda: MeanRank().moments([4, 4], weight=[1.0, -1.0]), ValueError, "weights must be finite and not negative"),
        (lambda: MeanRank().moments([]), ValueError, "num_candidates is empty"),
        (lambda: RankTable.from_ranks(ranks()).select(side="both"), ValueError, "side must be"),
    ],
)
def test_functions(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_metric_without_an_exact_answer_says_so_and_what_would_help():
    # a weighted MAD of many tasks: no algorithm known
    metric = RankMetric(RankDefinition("mad", aggregation="mad", optimum=None), view="normalized")
    metric.update(Ranks(torch.ones(30).long(), None, 14), weight=torch.arange(30) % 3)
    with pytest.raises(ValueError, match=r"'mad' has no exact expectation.*MonteCarloExpectation\(samples="):
        metric.compute()

    class Never(ExactExpectation):
        def answers(self, definition):
            return False

    with pytest.raises(ValueError, match="'mr' has no exact expectation"):
        MeanRank(view="z_score", expectation=Never())


def test_adding_metrics_is_all_or_nothing():
    collection = RankCollection(["mrr"])
    used = MeanRank()
    used.update(ranks())
    for wrong in (["mr", "nonsense"], ["gmr", "mrr"], [MeanRank(), MeanRank()], [used], ["mr", 3]):
        with pytest.raises((ValueError, TypeError)):
            collection.add_metrics(wrong)
        assert list(collection.keys()) == ["mrr"]
    with pytest.raises(ValueError, match="'mr' has been updated before"):
        RankCollection([used])
    assert used.compute() == 1.75


def test_merging_something_else():
    collection = RankCollection(["mrr"])
    for other in (MeanRank(), {"rows": []}, 3):
        with pytest.raises(TypeError, match="other must be a RankCollection"):
            collection.merge_state(other)
    with pytest.raises(ValueError, match="Expected incoming state"):
        MeanRank().merge_state(3)


def test_empty_batches_are_fine():
    for metric in metrics().values():
        once = metric.clone()
        once.update(SCORES, TARGET)
        metric.update(torch.empty(0, 5), torch.empty(0, dtype=torch.int64), weight=[], group=[], sample_id=[])
        nothing = metric.compute()
        assert all(x.isnan() for x in (nothing.values() if isinstance(nothing, dict) else [nothing]))
        metric.update(SCORES, TARGET)
        assert values(metric) == values(once)


def test_compute_before_update_is_nan_with_the_warning_of_torchmetrics():
    for metric in (MeanRank(), RankCollection(["mr", "z_mrr"]), RankCollection(["count"])):
        with pytest.warns(UserWarning, match="was called before the ``update`` method"):
            result = metric.compute()
        for key, value in result.items() if isinstance(result, dict) else [("mr", result)]:
            assert value == 0 if key == "count" else math.isnan(value)
