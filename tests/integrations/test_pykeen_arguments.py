"""PyKEEN's names, classes and arguments work with our evaluators: metrics, bootstrap, macro average, sampling."""

import json
import math

import pytest
import torch

from pykeen_lookup import QUIET, Lookup, assert_parity, splits_of
from torchrankmetrics import RankDefinition, RankMetric, RankMetricWarning

pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")

from pykeen.evaluation import MacroRankBasedEvaluator, RankBasedEvaluator, SampledRankBasedEvaluator, evaluator_resolver

from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator, SampledRankCollectionEvaluator, rank_table


def run(dataset, evaluator, **options):
    train, valid, test = splits_of(dataset)
    options = {"additional_filter_triples": [train, valid], **QUIET, **options}
    return evaluator.evaluate(Lookup(dataset), test, **options)


def names(evaluator):
    return {key.metric for key in evaluator.computed()}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ("hits@5", {"hits_at_5"}),
        (["z_hits_at_k"], {"z_hits_at_10", "z_hits_at_k"}),
        (["hits@10", "tie_rate", RankMetric("mr")], {"hits_at_10", "tie_rate", "arithmetic_mean_rank"}),
        (["arithmetic_mean_rank", "p_mr"], {"arithmetic_mean_rank", "p_mr"}),
        ({"mine": "hits@3", "other": "mr"}, {"mine", "other"}),
        ([RankMetric(RankDefinition("dcg", f=lambda r: 1 / (1 + r).log2()))], {"dcg"}),
    ],
)
def test_metrics_are_taken_in_every_form(metrics, expected):
    assert names(RankCollectionEvaluator(metrics=metrics)) == expected


def test_every_metric_of_pykeen_is_taken_by_its_key_and_the_evaluators_by_their_names():
    assert evaluator_resolver.lookup("rankcollection") is RankCollectionEvaluator
    assert evaluator_resolver.lookup("sampledrankcollection") is SampledRankCollectionEvaluator
    theirs = {metric.key for metric in RankBasedEvaluator().metrics}
    every = names(RankCollectionEvaluator())
    assert every >= theirs
    assert names(RankCollectionEvaluator(sorted(theirs))) >= theirs
    assert names(RankCollectionEvaluator(["p_mr"], add_defaults=True)) == every | {"p_mr"}


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        (["mmr"], ValueError, "unknown metric 'mmr'; did you mean"),
        (["hits_at_k"], ValueError, "'hits_at_k' needs a number of first places, for example hits_at_10"),
        ([torch.nn.Linear], TypeError, "must be a str, got type"),
        (3, TypeError, "metrics must be names, RankMetric instances or a dict, got int"),
        ([], ValueError, "metrics is empty"),
    ],
)
def test_bad_metrics_raise(metrics, error, message):
    with pytest.raises(error, match=message):
        RankCollectionEvaluator(metrics=metrics)


def test_macro_average_is_by_query_as_in_pykeen(nations):
    theirs, ours = MacroRankBasedEvaluator(), RankCollectionEvaluator(average="macro")
    theirs, result = run(nations, theirs), run(nations, ours)
    differ = {"variance", "standard_deviation", "median_absolute_deviation", "inverse_median_rank", "count"}
    theirs.data = {key: value for key, value in theirs.data.items() if key.metric not in differ}
    assert assert_parity(theirs, result) == 9 * 20
    micro = run(nations, RankCollectionEvaluator())
    assert abs(micro.get_metric("mrr") - result.get_metric("mrr")) > 1e-3
    test = splits_of(nations)[2]
    queries = {*map(tuple, test[:, [0, 1]].tolist())}
    assert len(result.table.select(side="tail").group.unique()) == len(queries)
    both = len(queries) + len({*map(tuple, test[:, [1, 2]].tolist())})
    assert len(result.table.group.unique()) == both


def test_sampled_evaluation_has_the_values_of_pykeen(nations):
    train, valid, _ = splits_of(nations)
    filtering = {"additional_filter_triples": [train, valid]}
    theirs = SampledRankBasedEvaluator(nations.testing, num_negatives=3, clear_on_finalize=False, **filtering)
    negatives = {f"{side}_negatives": ids for side, ids in theirs.negative_samples.items()}
    ours = evaluator_resolver.make("sampledrankcollection", evaluation_factory=nations.testing, **negatives)
    with pytest.warns(RankMetricWarning, match="undefined"):  # hits at 5 and 10 among four
        result = run(nations, ours)
    expected = run(nations, theirs)
    for key, value in expected.data.items():
        if not math.isnan(result.data[key]):
            assert result.data[key] == pytest.approx(value, rel=1e-5, abs=2e-4), key
    table = rank_table(theirs, splits_of(nations)[2])
    assert table.compact().rows.equal(result.table.rows)
    assert result.table.to_numpy()["sampled"].all()
    assert "sampled" in str(result.table.summary())


def test_bad_arguments_of_sampled_evaluation_raise(nations):
    train, _, test = splits_of(nations)
    ids = torch.zeros(len(test), 3, dtype=torch.int64)
    for options, message in (
        ({"num_negatives": 15}, r"num_negatives must be in \[1, num_entities\] = \[1, 14\], got 15"),
        ({"num_negatives": 0}, "got 0"),
        ({"head_negatives": ids}, "head_negatives and tail_negatives go together"),
        ({"head_negatives": ids, "tail_negatives": ids[1:]}, r"tail_negatives must be \(201, M\)"),
    ):
        with pytest.raises(ValueError, match=message):
            SampledRankCollectionEvaluator(nations.testing, **options)
    evaluator = SampledRankCollectionEvaluator(nations.testing, ["mr"], num_negatives=2)
    with pytest.raises(ValueError, match="evaluation_factory must hold all triples evaluated"):
        evaluator.evaluate(Lookup(nations), train, **QUIET)
    with pytest.raises(ValueError, match="restrict_entities_to does not go with sampled candidates"):
        run(nations, evaluator, restrict_entities_to=list(range(14)))
    with pytest.raises(ValueError, match="candidates are sampled for head and tail; got target 'relation'"):
        evaluator.process_scores_(test[:2], "relation", torch.rand(2, 55))


def one_candidate(evaluator):
    """An evaluation with zero variance under the null."""
    triples = torch.zeros(4, 3, dtype=torch.int64)
    for side in ("head", "tail"):
        scores = torch.zeros(4, 1)
        evaluator.process_scores_(triples, side, scores, scores, torch.zeros(4, 1))
    return evaluator.finalize()


@pytest.mark.filterwarnings("ignore:each ranking task")  # has one candidate
def test_undefined_values_are_nan_and_absent_from_json(nations):
    theirs = one_candidate(RankBasedEvaluator()).to_flat_dict()
    with pytest.warns(RankMetricWarning, match="undefined"):
        result = one_candidate(RankCollectionEvaluator())
    ours = result.to_flat_dict()
    undefined = {key for key, value in ours.items() if math.isnan(value)}
    assert {key.split(".")[2] for key in undefined & theirs.keys()} == {
        *(f"{view}_{name}" for view in ("z", "adjusted") for name in ("hits_at_k", "inverse_harmonic_mean_rank")),
        *("z_arithmetic_mean_rank", "adjusted_arithmetic_mean_rank_index"),
        *("z_geometric_mean_rank", "adjusted_geometric_mean_rank_index"),
    }
    assert all(ours[key] == value for key, value in theirs.items() if key not in undefined)
    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    flat = {f"{s}.{r}.{m}": x for s, rs in written.items() for r, ms in rs.items() for m, x in ms.items()}
    assert flat == {key: value for key, value in ours.items() if key not in undefined}
    defined = run(nations, RankCollectionEvaluator())
    assert len(defined.to_df()) == sum(len(ms) for rs in defined.to_dict().values() for ms in rs.values())
