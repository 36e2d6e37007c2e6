"""Bad arguments of constructors and functions: an error that names the argument, what came and what was expected."""

import math

import pytest
import torch
from torchmetrics import MeanMetric

from torchrankmetrics import (
    AdjustedMeanRank,
    HitsAtK,
    MeanRank,
    PowerMeanRank,
    RankCollection,
    RankDefinition,
    RankMetric,
    Ranks,
    RankTable,
    compare,
    evaluate,
    rank_embeddings,
    rank_triples,
)
from torchrankmetrics.datasets import PrecomputedExpectation
from torchrankmetrics.inference import clustered_p_value, equivalence
from torchrankmetrics.null import ExactExpectation, MonteCarloExpectation
from torchrankmetrics.ranking import RankAccumulator

NAN = float("nan")
RANKS = Ranks([1, 2], [2, 2], 4)


TAILS = RankTable.from_ranks(RANKS, side="tail")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: HitsAtK(0), ValueError, "k must be an int of at least 1 and .*, got 0"),
        (lambda: HitsAtK(2.0), TypeError, "k must be an int, got 2.0 of type float"),
        (lambda: PowerMeanRank(NAN), ValueError, "p must be a real number"),
        (lambda: PowerMeanRank("2"), TypeError, "p must be a real number"),
        (
            lambda: RankMetric(3),
            TypeError,
            "a metric must be a RankDefinition, a QueryDefinition or a name such as 'mrr', got int",
        ),
        (lambda: RankMetric("mrx"), ValueError, "unknown metric 'mrx'; did you mean 'mr' or 'mrr'"),
        (lambda: RankMetric("zmrr", view="base"), ValueError, "'zmrr' has view='z_score', but view='base'"),
        (lambda: RankMetric("tail.mrr", side="head"), ValueError, "has side='tail', but side='head'"),
        (lambda: AdjustedMeanRank(view="base"), ValueError, "'amr' has view='normalized', but view='base'"),
        (lambda: RankCollection({"a": "mrr"}, "mr"), ValueError, "a dict of metrics must be the only argument"),
        (lambda: RankCollection(["mr", MeanMetric()]), TypeError, "got MeanMetric; a MetricCollection contains it"),
        (lambda: MeanRank(view="index"), ValueError, "view must be one of 'base'.*got 'index'"),
        (lambda: MeanRank(rank_type="random"), ValueError, "rank_type must be one of .*got 'random'"),
        (
            lambda: MeanRank(side="left"),
            ValueError,
            "side must be one of 'both', 'head', 'tail', 'relation'; got 'left'",
        ),
        (lambda: MeanRank(average="weighted"), ValueError, "average must be one of 'micro', 'macro'"),
        (lambda: MeanRank(storage="sums"), ValueError, "storage must be one of 'ranks', 'counts'; got 'sums'"),
        (lambda: RankCollection(expectation=torch.ones(2)), TypeError, "expectation must have a method moments"),
        (lambda: RankAccumulator(torch.ones(2), [0, 1], 3), TypeError, r"shape must be \(B, N\), two ints, got 3"),
        (lambda: RankTable.from_ranks(RANKS).select(group=torch.ones(3)), TypeError, "group must be an int"),
        (lambda: MeanRank(k=3), ValueError, "Unexpected keyword arguments: `k`"),
        (lambda: RankCollection([]), ValueError, "metrics is empty"),
        (lambda: RankCollection(3), TypeError, "metrics must be names, RankMetric instances or a dict, got int"),
        (lambda: RankCollection(["mrr"], prefix=3), ValueError, "prefix"),
        (lambda: RankCollection([MonteCarloExpectation()]), TypeError, "metric name must be a str"),
        *(
            (ask, TypeError, r"a metric must be an instance, such as HitsAtK\(...\), got the class")
            for ask in (
                lambda: RankCollection([HitsAtK]),
                lambda: compare(Ranks([1, 2], None, 9), Ranks([1, 3], None, 9), HitsAtK),
            )
        ),
        (lambda: compare(RANKS, RANKS, seed=-1), ValueError, "seed must be an int of at least 0, got -1"),
        (lambda: equivalence(RANKS, RANKS, margin=1, seed=0.5), TypeError, "seed must be an int, got 0.5"),
        (lambda: TAILS.confidence_intervals(["mrr"], seed="1"), TypeError, "seed must be an int, got '1'"),
        (lambda: RankDefinition("a/b"), ValueError, r"name must match \[a-z\]"),
        (lambda: RankDefinition("x", aggregation="sum"), ValueError, "aggregation must be one of .*got 'sum'"),
        (lambda: RankDefinition("x", f=lambda r: r - r), ValueError, "higher_is_better cannot be derived for 'x'"),
        (lambda: RankDefinition("x", f=lambda r: (r - 1).log()), ValueError, "f and g must give a finite tensor"),
        (lambda: RankDefinition("x", f=torch.sum), ValueError, "of the shape of the ranks"),
        (lambda: RankDefinition("x", f=lambda r: 1.0), ValueError, "f and g must give a finite tensor"),
        (lambda: RankMetric(lambda r: 1 / r), TypeError, r"write RankDefinition\('my_metric', f=function\)"),
        (
            lambda: RankCollection({"own": lambda r: 1 / r}),
            TypeError,
            r"write RankDefinition\('my_metric', f=function\)",
        ),
        (
            lambda: RankDefinition("x", f=lambda r: 1 / r if r <= 10 else 0),
            (TypeError, ValueError),
            r"torch\.where\(r <= 10",
        ),
        (lambda: RankDefinition("x", f=lambda r: 1 / math.log2(r + 1)), TypeError, r"torch\.log2"),
        (lambda: MonteCarloExpectation(1), ValueError, "samples must be an int of at least 2"),
        (lambda: PrecomputedExpectation([]), ValueError, "num_candidates is empty"),
        (lambda: RankTable([[1]]), TypeError, "rows must be an int64 tensor, got list"),
        (lambda: RankTable(torch.zeros(3, 7).long()), ValueError, r"rows must be \(n, 10\), got \(3, 7\)"),
        (lambda: evaluate([0, 1], 4), ValueError, "ranks must lie between 1 and num_candidates"),
        (lambda: evaluate([1.25, 2], 4), ValueError, "multiples of 1/2.*1.25"),
        (lambda: evaluate([NAN, 2], 4), ValueError, "multiples of 1/2.*nan"),
        (lambda: evaluate([1, 2], metrics=["amri"]), ValueError, "num_candidates is needed for 'amri'"),
        (lambda: evaluate([1, 2], [4.0, 4.0]), TypeError, "num_candidates must hold integers"),
        (lambda: evaluate([1, 2], [4]), ValueError, "num_candidates must have the shape"),
        (lambda: evaluate(RANKS, 4), ValueError, "num_candidates must not be given with a Ranks"),
        (lambda: evaluate([1.5], 4, ["optimistic_mr"]), ValueError, "'optimistic_mr' needs optimistic and pessimistic"),
        (lambda: evaluate(torch.eye(3), [[0], [1, 2, 1], [2]]), ValueError, "got 1 twice in entry 1"),
        (
            lambda: evaluate([1, 2], 4, ["tail_mr"]),
            ValueError,
            r"sides \['tail'\] are requested, but the side of the tasks is unknown",
        ),
        (lambda: evaluate([1, 2], 4, wheels=4), TypeError, "wheels"),
        (lambda: evaluate(), TypeError, "takes ranks .*or scores"),
        (lambda: evaluate(torch.eye(2)), ValueError, r"target must be \(B,\).* scores \(B, N\) = \(2, 2\), got None"),
        (lambda: evaluate([[1], [2]], 4), ValueError, r"target must be .*got 4; ranks would be \(tasks,\)"),
        (lambda: evaluate(scores=[1.0, 2.0], target=[1]), ValueError, r"scores must be \(B, N\)"),
        (lambda: evaluate([1, 2], 4, exclude=torch.eye(2)), ValueError, "target and exclude belong to scores"),
        (lambda: evaluate(torch.eye(2), 4, target=[0, 1]), ValueError, "num_candidates must not be given with scores"),
        (lambda: evaluate(["a"]), TypeError, "ranks must hold numbers, got list of <U1"),
        (
            lambda: evaluate(torch.rand(3, 8), torch.rand(9, 8)),
            ValueError,
            r"rank_embeddings\(queries, candidates, tar",
        ),
        (lambda: rank_embeddings(torch.eye(2), torch.eye(2), [0]), ValueError, "target must"),
        (
            lambda: evaluate(torch.eye(9), torch.arange(9), exclude=torch.ones(9, 5).long()),
            ValueError,
            r"exclude\.tolist\(\)",
        ),
        (
            lambda: evaluate(RankTable.from_ranks(RANKS), weight=[1, 1]),
            ValueError,
            "weight must not be given with a RankTable",
        ),
        (
            lambda: evaluate(RankTable.from_ranks(RANKS), metrics=[MeanRank(average="macro")]),
            ValueError,
            "needs a group for every task",
        ),
        (lambda: MeanRank().moments([4, 0]), ValueError, "num_candidates must be at least 1"),
        (lambda: MeanRank().moments([4.0]), TypeError, "num_candidates must be integers"),
        (
            lambda: MeanRank().moments([3, 2**63]),
            ValueError,
            "num_candidates must fit in int64, got 9223372036854775808",
        ),
        (lambda: MeanRank().moments([4, 4], weight=[1.0]), ValueError, "weight must have one entry per task"),
        (lambda: MeanRank().moments([]), ValueError, "num_candidates is empty"),
        (lambda: RankTable.from_ranks(RANKS).select(side="both"), ValueError, "side must be"),
        (lambda: compare(RANKS, RANKS, 3), TypeError, "^a metric must be a RankDefinition.*, got int"),
        (lambda: clustered_p_value(TAILS, 3, cluster=[0]), TypeError, "^a metric must be a RankDefinition.*, got int"),
        (lambda: evaluate(3, 5), ValueError, r"^ranks must be \(tasks,\)"),
        (lambda: evaluate(RANKS, side=[]), ValueError, "^side must be one of"),
        (lambda: rank_triples(3, None, [[0, 0, 1]], None), TypeError, "^score_tails must be a function.*got 3"),
        (lambda: rank_triples(None, "x", [[0, 0, 1]], None), TypeError, "^score_heads must be a function.*got 'x'"),
        (lambda: rank_triples(None, max, [[0, 0, 1]], 3), TypeError, "^known must be KnownTriples.*got int"),
        (lambda: rank_triples(None, max, [[0, 0, 1]], torch.ones(2)), TypeError, "^known must be .*got Tensor"),
        (lambda: RankDefinition("x", f=3), TypeError, "^f must be a function.*got 3 of type int"),
        (lambda: RankDefinition("x", g=None), TypeError, "^g must be a function.*got None"),
        (lambda: RankDefinition("x", optimum="1"), TypeError, "^optimum must be a number or None, got '1'"),
        (lambda: RankTable.concatenate(3), TypeError, "^tables must be a sequence of RankTables, got 3"),
        (lambda: RankTable.from_numpy(3), TypeError, "^arrays must be a dict of arrays by name, got int"),
        (lambda: MeanRank().moments([4, 4], weight="zzz"), TypeError, "^weight must hold numbers, got str"),
    ],
)
def test_errors_name_the_argument_as_the_caller_writes_it(call, error, message):
    with pytest.raises(error, match=message):
        call()


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
    with pytest.raises(ValueError, match="'mr' has been updated before"):
        RankCollection([used])
    assert used.compute() == 1.75


def test_merging_something_else_is_rejected():
    collection = RankCollection(["mrr"])
    for other in (MeanRank(), {"rows": []}, 3):
        with pytest.raises(TypeError, match="other must be a RankCollection"):
            collection.merge_state(other)
    with pytest.raises(ValueError, match="Expected incoming state"):
        MeanRank().merge_state(3)
