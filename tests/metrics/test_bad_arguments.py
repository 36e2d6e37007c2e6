"""Bad arguments of constructors and functions: a short error names the argument, its value and what is expected."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torchmetrics import MeanMetric

import torchrankmetrics as trm
from torchrankmetrics import MeanRank, RankCollection, RankDefinition, RankMetric, Ranks, RankTable, compare, evaluate
from torchrankmetrics.definitions import power_mean_rank
from torchrankmetrics.definitions.candidates import integers
from torchrankmetrics.null import ExactExpectation
from torchrankmetrics.queries import QueryDefinition
from torchrankmetrics.ranking import RankAccumulator
from torchrankmetrics.validation import one_number

NAN = float("nan")
RANKS = Ranks([1, 2], [2, 2], 4)
TABLE = RankTable.from_ranks(RANKS, side="tail")
EYE = torch.eye(2)

TYPE_ERRORS = [
    (lambda: RankCollection(["mr", MeanMetric()]), "got MeanMetric; a MetricCollection contains it"),
    (lambda: RankCollection(expectation=torch.ones(2)), "expectation must have a method moments"),
    (lambda: RankAccumulator(torch.ones(2), [0, 1], 3), r"shape must be \(B, N\), two ints, got 3"),
    (lambda: TABLE.select(group=torch.ones(3)), "group must be an int"),
    (lambda: RankCollection(3), "metrics must be names, RankMetric instances or a dict, got int"),
    (lambda: RankCollection([trm.HitsAtK]), r"a metric must be an instance, such as HitsAtK\(...\), got the class"),
    (lambda: compare(RANKS, RANKS, 3), "^a metric must be a RankDefinition.*, got int"),
    (lambda: TABLE.confidence_intervals(["mrr"], seed="1"), "seed must be an int, got '1'"),
    (lambda: RankCollection({"own": lambda r: 1 / r}), r"write RankDefinition\('my_metric', f=function\)"),
    (lambda: RankDefinition("x", f=lambda r: 1 / math.log2(r + 1)), r"torch\.log2"),
    (lambda: RankDefinition("x", optimum="1"), "^optimum must be a number or None, got '1'"),
    (lambda: evaluate([1, 2], [4.0, 4.0]), "num_candidates must hold integers"),
    (lambda: evaluate([1, 2], 4, wheels=4), "wheels"),
    (lambda: evaluate(), "takes ranks .*or scores"),
    (lambda: evaluate(["a"]), "ranks must hold numbers, got list of <U1"),
    (lambda: trm.rank_triples(None, "x", [[0, 0, 1]], None), "^score_heads must be a function.*got 'x'"),
    (lambda: trm.rank_triples(None, max, [[0, 0, 1]], torch.ones(2)), "^known must be .*got Tensor"),
    (lambda: RankTable.concatenate(3), "^tables must be a sequence of RankTables, got 3"),
    (lambda: RankTable.from_numpy(3), "^arrays must be a dict of arrays by name, got int"),
    (lambda: MeanRank().moments([4, 4], weight="zzz"), "^weight must hold numbers, got str"),
    (lambda: RankCollection(["mrr"]).merge_state(MeanRank()), "other must be a RankCollection"),
]
VALUE_ERRORS = [
    (lambda: trm.HitsAtK(0), "k must be an int of at least 1 and .*, got 0"),
    (lambda: trm.PowerMeanRank(NAN), "p must be a real number"),
    (lambda: RankMetric("mrx"), "unknown metric 'mrx'; did you mean 'mr' or 'mrr'"),
    (lambda: RankCollection({"a": "mrr"}, "mr"), "a dict of metrics must be the only argument"),
    (lambda: MeanRank(view="index"), "view must be one of 'base'.*got 'index'"),
    (lambda: MeanRank(rank_type="random"), "rank_type must be one of .*got 'random'"),
    (lambda: MeanRank(side="left"), "side must be one of 'both', 'head', 'tail', 'relation'; got 'left'"),
    (lambda: RankCollection(sides=("i2t", "head")), "sides must be one of 'both', 'head'.*got 'i2t'"),
    (lambda: MeanRank(average="weighted"), "average must be one of 'micro', 'macro'"),
    (lambda: MeanRank(storage="sums"), "storage must be one of 'ranks', 'counts'; got 'sums'"),
    (lambda: MeanRank(k=3), "Unexpected keyword arguments: `k`"),
    (lambda: RankCollection([]), "metrics is empty"),
    (lambda: RankCollection(["mrr"], prefix=3), "prefix"),
    (lambda: compare(RANKS, RANKS, seed=-1), "seed must be an int of at least 0, got -1"),
    (lambda: RankDefinition("x", f=lambda r: r - r), "higher_is_better cannot be derived for 'x'"),
    (lambda: RankDefinition("x", f=lambda r: (r - 1).log()), "f and g must give a finite tensor"),
    (lambda: RankDefinition("x", f=torch.sum), "of the shape of the ranks"),
    (lambda: RankTable(torch.zeros(3, 7).long()), r"rows must be \(n, 10\), got \(3, 7\)"),
    (lambda: TABLE.select(side="both"), "side must be"),
    (lambda: evaluate([0, 1], 4), "ranks must lie between 1 and num_candidates"),
    (lambda: evaluate([1.25, 2], 4), "multiples of 1/2.*1.25"),
    (lambda: evaluate([1, 2], metrics=["amri"]), "num_candidates is needed for 'amri'"),
    (lambda: evaluate([1, 2], [4]), "num_candidates must have the shape"),
    (lambda: evaluate(RANKS, 4), "num_candidates must not be given with a Ranks"),
    (lambda: evaluate([1.5], 4, ["optimistic_mr"]), "'optimistic_mr' needs optimistic and pessimistic"),
    (lambda: evaluate(torch.eye(3), [[0], [1, 2, 1], [2]]), "got 1 twice in entry 1"),
    (lambda: evaluate([1, 2], 4, ["tail_mr"]), r"sides \['tail'\] are requested, but the side of the tasks is unknown"),
    (lambda: evaluate([[1], [2]], 4), r"target must be .*got 4; ranks would be \(tasks,\)"),
    (lambda: evaluate([1, 2], 4, exclude=EYE), "target and exclude belong to scores"),
    (lambda: evaluate(EYE, 4, target=[0, 1]), "num_candidates must not be given with scores"),
    (lambda: evaluate(torch.rand(3, 8), torch.rand(9, 8)), r"rank_embeddings\(queries, candidates, tar"),
    (lambda: trm.rank_embeddings(EYE, EYE, [0]), "target must"),
    (lambda: evaluate(torch.eye(9), [*range(9)], exclude=torch.ones(9, 5).long()), r"exclude\.tolist\(\)"),
    (lambda: evaluate(TABLE, weight=[1, 1]), "weight must not be given with a RankTable"),
    (lambda: evaluate(TABLE, metrics=[MeanRank(average="macro")]), "needs a group for every task"),
    (lambda: evaluate(3, 5), r"^ranks must be \(tasks,\)"),
    (lambda: evaluate(RANKS, side=[]), "^side must be one of"),
    (lambda: MeanRank().moments([3, 2**63]), "num_candidates must fit in int64, got 9223372036854775808"),
    (lambda: MeanRank().merge_state(3), "Expected incoming state"),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [*((TypeError, *case) for case in TYPE_ERRORS), *((ValueError, *case) for case in VALUE_ERRORS)],
)
def test_errors_name_the_argument_as_the_caller_writes_it(error, call, message):
    with pytest.raises(error, match=message):
        call()


def test_branches_and_functions_of_python_in_f_are_errors_with_the_spelling_of_torch():
    with pytest.raises((TypeError, ValueError), match=r"torch\.where\(r <= 10"):
        RankDefinition("x", f=lambda r: 1 / r if r <= 10 else 0)


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
    for use in (lambda x: trm.Ranks([1, 2], None, x), lambda x: trm.adjust("0.5", "mrr", x)):
        assert repr(use(np.uint8(9))) == repr(use(torch.tensor(9))) == repr(use(9))
