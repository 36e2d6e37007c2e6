"""Bad input of constructors, functions, updates: errors name argument and value; rows stay."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from torchmetrics import MeanMetric

import torchrankmetrics as trm
from bits import bits
from torchrankmetrics import (
    MeanRank,
    RankCollection,
    RankDefinition,
    RankMetric,
    Ranks,
    RankTable,
    compare,
    evaluate,
)
from torchrankmetrics.definitions import power_mean_rank
from torchrankmetrics.definitions.sample import integers
from torchrankmetrics.null import ExactExpectation
from torchrankmetrics.queries import QueryDefinition
from torchrankmetrics.ranking import RankAccumulator, flags as fault
from torchrankmetrics.ranking.ranks import trusted
from torchrankmetrics.validation import one_number

NAN = float("nan")
RANKS = Ranks([1, 2], [2, 2], 4)
TABLE = RankTable.from_ranks(RANKS, side="tail")
EYE = torch.eye(2)

TYPE_ERRORS = [
    (
        lambda: RankCollection(["mr", MeanMetric()]),
        "got MeanMetric; put it next to a RankCollection",
    ),
    (
        lambda: RankCollection(expectation=torch.ones(2)),
        "expectation must be an instance with the methods moments",
    ),
    (lambda: RankAccumulator(torch.ones(2), [0, 1], 3), r"shape must be \(B, N\), two ints, got 3"),
    (lambda: TABLE.select(group=torch.ones(3)), "group must be an int"),
    (lambda: RankCollection(3), "metrics must be names, RankMetric instances or a dict, got int"),
    (
        lambda: RankCollection([trm.HitsAtK]),
        r"a metric must be an instance, such as HitsAtK\(...\), got the class",
    ),
    (lambda: compare(RANKS, RANKS, 3), "^a metric must be a RankDefinition.*, got int"),
    (lambda: TABLE.confidence_intervals(["mrr"], seed="1"), "seed must be an int, got '1'"),
    (
        lambda: RankCollection({"own": lambda r: 1 / r}),
        r"write RankDefinition\('my_metric', f=function\)",
    ),
    (lambda: RankDefinition("x", f=lambda r: 1 / math.log2(r + 1)), r"torch\.log2"),
    (lambda: RankDefinition("x", f=lambda r: 1 / r if r <= 10 else 0), r"torch\.where\(r <= 10"),
    (lambda: RankDefinition("x", optimum="1"), "^optimum must be a number or None, got '1'"),
    (lambda: evaluate([1, 2], [4.0, 4.0]), "num_candidates must contain integers"),
    (lambda: evaluate([1, 2], 4, wheels=4), "wheels"),
    (lambda: evaluate(), "takes ranks .*or scores"),
    (lambda: evaluate(["a"]), "ranks must contain numbers, got text such as 'a'"),
    (
        lambda: trm.rank_triples(None, "x", [[0, 0, 1]], None),
        "^score_heads must be a function.*got 'x'",
    ),
    (
        lambda: trm.rank_triples(None, max, [[0, 0, 1]], torch.ones(2)),
        "^known must be .*got Tensor",
    ),
    (lambda: RankTable.concatenate(3), "^tables must be a sequence of RankTables, got 3"),
    (lambda: RankTable.from_numpy(3), "^arrays must be a dict of arrays by name, got int"),
    (lambda: MeanRank().moments([4, 4], weight="zzz"), "^weight must contain numbers, got str"),
    (lambda: RankCollection(["mrr"]).merge_state(MeanRank()), "other must be a RankCollection"),
    (
        lambda: trm.HitsAtK(top_k=3),
        r"^HitsAtK.__init__\(\) missing a required argument: 'k'; did you mean 'k'",
    ),
    (lambda: MeanRank("mrr"), r"^MeanRank.__init__\(\) too many positional arguments$"),
    (
        lambda: trm.adjust("0.3", "mrr", "fb15k237", side="tail"),
        r"did you mean 'num_candidates' instead of 'side'\? datasets.candidate_c",
    ),
]
VALUE_ERRORS = [
    (lambda: trm.HitsAtK(0), "k must be an int of at least 1, got 0"),
    (lambda: trm.PowerMeanRank(NAN), "p must be a real number"),
    (lambda: RankMetric("mrrr"), "unknown metric 'mrrr'; did you mean 'mrr'"),
    (lambda: RankMetric("mrx"), "unknown metric 'mrx'; RankCollection.names.. and the command"),
    (lambda: RankCollection({"a": "mrr"}, "mr"), "a dict of metrics must be the only argument"),
    (lambda: MeanRank(view="index"), "view must be one of 'base'.*got 'index'"),
    (lambda: MeanRank(rank_type="random"), "rank_type must be one of .*got 'random'"),
    (
        lambda: MeanRank(side="left"),
        "side must be one of 'both', 'head', 'tail', 'relation'; got 'left'",
    ),
    (
        lambda: RankCollection(sides=("i2t", "head")),
        "sides must be one of 'both', 'head'.*got 'i2t'",
    ),
    (lambda: MeanRank(average="weighted"), "average must be one of 'micro', 'macro'"),
    (lambda: MeanRank(storage="sums"), "storage must be one of 'ranks', 'counts'; got 'sums'"),
    (lambda: MeanRank(k=3), "Unexpected keyword arguments: `k`"),
    (lambda: RankCollection([]), "metrics is empty"),
    (lambda: RankCollection(["mrr"], prefix=3), "prefix"),
    (lambda: compare(RANKS, RANKS, seed=-1), "seed must be an int of at least 0, got -1"),
    (lambda: RankDefinition("x", f=lambda r: r - r), "higher_is_better must be passed for 'x'"),
    (lambda: RankDefinition("x", f=lambda r: (r - 1).log()), "f and g must give a finite tensor"),
    (lambda: RankDefinition("x", f=torch.sum), "of their input's shape"),
    (lambda: RankTable(torch.zeros(3, 7).long()), r"rows must be \(n, 10\), got \(3, 7\)"),
    (lambda: TABLE.select(side="both"), "side must be"),
    (lambda: evaluate([0, 1], 4), "ranks must start at 1, but task 0 has rank 0"),
    (lambda: evaluate([1.25, 2], 4), "multiples of 1/2.*1.25"),
    (lambda: evaluate([1, 2], metrics=["amri"]), "num_candidates is needed for 'amri'"),
    (lambda: evaluate([1, 2], [4]), "num_candidates must have the shape"),
    (lambda: evaluate(RANKS, 4), "num_candidates must not be given with a Ranks"),
    (
        lambda: evaluate([1.5], 4, ["optimistic_mr"]),
        "'optimistic_mr' needs optimistic and pessimistic",
    ),
    (lambda: evaluate(torch.eye(3), [[0], [1, 2, 1], [2]]), "got 1 twice in entry 1"),
    (lambda: evaluate([1, 2], 4, ["tail_mr"]), r"sides \['tail'\] need the side of every task"),
    (lambda: evaluate([[1], [2]], 4), r"target must be .*got 4; ranks would be \(tasks,\)"),
    (lambda: evaluate([1, 2], 4, exclude=EYE), "target and exclude belong to scores"),
    (lambda: evaluate(EYE, 4, target=[0, 1]), "num_candidates must not be given with scores"),
    (
        lambda: evaluate(torch.rand(3, 8), torch.rand(9, 8)),
        r"rank_embeddings\(queries, candidates, tar",
    ),
    (lambda: trm.rank_embeddings(EYE, EYE, [0]), "target must"),
    (
        lambda: evaluate(torch.eye(9), [*range(9)], exclude=torch.ones(9, 5).long()),
        r"exclude\.tolist\(\)",
    ),
    (lambda: evaluate(TABLE, weight=[1, 1]), "weight must not be given with a RankTable"),
    (lambda: evaluate(TABLE, metrics=[MeanRank(average="macro")]), "needs a group for every task"),
    (lambda: evaluate(3, 5), r"^ranks must be \(tasks,\)"),
    (lambda: evaluate(RANKS, side=[]), "^side must be one of"),
    (
        lambda: MeanRank().moments([3, 2**63]),
        "num_candidates must fit in int64, got 9223372036854775808",
    ),
    (lambda: MeanRank().merge_state(3), "Expected incoming state"),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        *((TypeError, *case) for case in TYPE_ERRORS),
        *((ValueError, *case) for case in VALUE_ERRORS),
    ],
)
def test_errors_name_the_argument_as_the_caller_writes_it(error, call, message):
    with pytest.raises(error, match=message):
        call()


LONG = "ab_" * 33_333 + "c"
MODELS = {"a": Ranks([1, 2, 5] * 20, None, 9), "b": Ranks([2, 1, 4] * 20, None, 9)}


@pytest.mark.parametrize(
    "call",
    [
        lambda: evaluate([1, 2], 9, metrics=[LONG]),
        lambda: evaluate([1, 2], 9, metrics=["mr"], views=LONG),
        lambda: evaluate([1, 2], LONG, metrics=["mr"]),
        lambda: evaluate([1, 2], 9, **{LONG: 1}),
        lambda: trm.adjust("3.5", "mr", "9" * 100_000),
        lambda: compare(MODELS, "mrr", baseline=LONG),
        lambda: compare(MODELS, ["mrr", "mr"])[LONG],
        lambda: integers(LONG, "num_candidates"),
        lambda: power_mean_rank(LONG),
        lambda: RankDefinition(LONG, f=lambda r: r * 0 + 1),
        lambda: QueryDefinition(LONG),
    ],
)
def test_messages_are_short_whatever_an_argument_holds(call):
    with pytest.raises((ValueError, TypeError, KeyError)) as error:
        call()
    assert len(str(error.value)) < 1000


def test_a_function_that_is_not_finite_on_some_rank_is_an_error_not_a_number():
    metric = RankMetric(RankDefinition("x", f=lambda r: 1 / (r - 3)))
    metric.update(RANKS)
    metric.compute()
    metric.update(Ranks([3], None, 4))
    with pytest.raises(ValueError, match="f must be finite on every rank >= 1; at rank 3"):
        metric.compute()


def test_a_metric_without_exact_moments_raises_with_the_remedy():
    # a weighted MAD of many tasks: no algorithm known
    metric = RankMetric(RankDefinition("mad", aggregation="mad", optimum=None), view="normalized")
    metric.update(Ranks(torch.ones(30).long(), None, 14), weight=torch.arange(30) % 3)
    with pytest.raises(
        ValueError, match=r"'mad' has no exact expectation.*MonteCarloExpectation\(samples="
    ):
        metric.compute()

    class Never(ExactExpectation):
        def supports(self, definition):
            return False

    with pytest.raises(ValueError, match=r"'mr' has no moments from expectation=.*None for exact"):
        MeanRank(view="z_score", expectation=Never())


def test_adding_metrics_is_all_or_nothing():
    collection = RankCollection(["mrr"])
    used = MeanRank()
    used.update(RANKS)
    for wrong in (["mr", "nonsense"], ["gmr", "mrr"], [MeanRank(), MeanRank()], [used], ["mr", 3]):
        with pytest.raises((ValueError, TypeError)):
            collection.add_metrics(wrong)
        assert list(collection.keys()) == ["mrr"]
    assert used.compute() == 1.75


def test_one_number_is_of_python_numpy_or_a_tensor_without_dimensions():
    kinds = [np.float32, np.float16, np.longdouble, np.array, torch.tensor, Fraction]
    assert [type(one_number(kind(2))) for kind in kinds] == [float, float, float, int, int, float]
    wrong = [True, np.True_, torch.tensor(True), 1j, "1", [1], np.array([1]), None]
    assert [one_number(one) for one in wrong] == [None] * len(wrong)
    assert one_number(torch.tensor(2.0, requires_grad=True)) == 2


@pytest.mark.parametrize(
    "use",
    [lambda x: trm.Ranks([1, 2], None, x), lambda x: trm.adjust("0.5", "mrr", x)],
    ids=["ranks", "adjust"],
)
def test_an_integer_of_any_type_is_one_number(use):
    assert repr(use(np.uint8(9))) == repr(use(torch.tensor(9))) == repr(use(9))


SCORES = torch.tensor([[0.3, 0.9, 0.1, 0.4], [0.8, 0.2, 0.5, 0.4]])
TARGET = torch.tensor([1, 2])

THIRD = torch.tensor([False, False, True, False])
NO_LIST = "preds must be a torch.Tensor or an array of scores .* got list: pass torch.tensor"
OUTSIDE = "target must be a candidate.* column 2"
BAD_UPDATES = {
    "target beyond N": (
        IndexError,
        "target must lie in .*4",
        lambda m: m.update(SCORES, torch.tensor([1, 4])),
    ),
    "target missing": (ValueError, "target is missing", lambda m: m.update(SCORES)),
    "scores of another type": (TypeError, NO_LIST, lambda m: m.update(SCORES.tolist(), TARGET)),
    "excluded column beyond N": (
        IndexError,
        "exclude must",
        lambda m: m.update(SCORES, TARGET, exclude=([0], [4])),
    ),
    "target outside": (ValueError, OUTSIDE, lambda m: m.update(SCORES, TARGET, exclude=THIRD)),
    "target beside ranks": (
        ValueError,
        "target must not be given",
        lambda m: m.update(RANKS, TARGET),
    ),
    "exclude beside ranks": (
        ValueError,
        "exclude must not be given",
        lambda m: m.update(RANKS, exclude=TARGET),
    ),
    "side unknown": (
        ValueError,
        "side must be one of None, 'head', 'tail', 'relation'; got 'both'",
        {"side": "both"},
    ),
    "group of floats": (
        TypeError,
        "group must contain integers, got torch.float",
        {"group": [0.5, 1.0]},
    ),
    "group too long": (
        ValueError,
        r"group must be .*\(2,\).*\(3,\)",
        {"group": torch.tensor([1, 2, 3])},
    ),
    "group of bools": (TypeError, "group must contain integers", {"group": [True, False]}),
    "group on another device": (
        ValueError,
        "group must be on",
        {"group": torch.zeros(2, device="meta").long()},
    ),
    "sample id of floats": (
        TypeError,
        "sample_id must contain integers",
        {"sample_id": torch.tensor([0.0, 1.0])},
    ),
    "one sample id for all": (ValueError, "sample_id must be", {"sample_id": 3}),
    "weight negative": (ValueError, r"weight must be .*-0\.5 for task 1", {"weight": [1.0, -0.5]}),
    "weight NaN": (
        ValueError,
        "weight must be finite.*nan for task 0",
        {"weight": [math.nan, 1.0]},
    ),
    "weight infinite": (
        ValueError,
        "weight must be finite.*inf for task 1",
        {"weight": torch.tensor([1.0, math.inf])},
    ),
    "weight of bools": (TypeError, "weight must contain real numbers", {"weight": [True, False]}),
    "weight too long": (ValueError, r"weight must be .*\(3,\)", {"weight": [1.0, 1.0, 1.0]}),
}


def state(metric):
    members = (
        list(metric.values(copy_state=False)) if isinstance(metric, RankCollection) else [metric]
    )
    return [(member.update_count, [block.tolist() for block in member.rows]) for member in members]


@pytest.mark.parametrize(
    "make",
    [
        MeanRank,
        lambda: MeanRank(storage="counts"),
        lambda: RankMetric(
            RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r)), view="z_score"
        ),
        lambda: RankCollection(["mrr", "mr", "z_mrr"]),
    ],
    ids=["ranks", "counts", "z-score", "collection"],
)
@pytest.mark.parametrize("case", BAD_UPDATES)
def test_a_bad_update_raises_and_changes_nothing(case, make):
    error, message, call = BAD_UPDATES[case]
    metric = make()
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


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("side", lambda: MeanRank(side="tail")),
        ("side", lambda: RankCollection(["mr"], sides=["both", "tail"])),
        ("side", lambda: RankCollection(["head_mr"])),
        ("group", lambda: MeanRank(average="macro")),
        ("group", lambda: RankCollection([MeanRank(average="macro"), "mrr"])),
    ],
    ids=["metric of a side", "sides=", "name of a side", "macro", "macro in a collection"],
)
def test_one_side_or_a_macro_average_needs_the_side_or_the_group(name, make):
    metric = make()
    with pytest.raises(ValueError, match=f"{name} must be passed to update"):
        metric.update(SCORES, TARGET)
    assert all(count == 0 and not rows for count, rows in state(metric))


@pytest.mark.parametrize(
    "kind", list(fault.ERRORS), ids=lambda kind: fault.ERRORS[kind][1].split()[0] + str(kind)
)
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
