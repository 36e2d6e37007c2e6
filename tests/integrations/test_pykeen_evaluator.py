"""Our evaluator against PyKEEN's: its names and arguments, the same ranks and values, except with NaN scores."""

import json
import math

import pytest
import torch

from pykeen_lookup import QUIET, Lookup, assert_parity, evaluated, splits_of
from torchrankmetrics import KnownTriples, RankDefinition, RankMetric, RankMetricWarning

pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")

from pykeen.datasets import get_dataset
from pykeen.evaluation import (
    ClassificationEvaluator,
    MacroRankBasedEvaluator,
    RankBasedEvaluator,
    SampledRankBasedEvaluator,
    evaluator_resolver,
)
from pykeen.triples import TriplesFactory

from torchrankmetrics.integrations.pykeen import (
    RankCollectionEvaluator,
    SampledRankCollectionEvaluator,
    known_triples,
    rank_table,
)


@pytest.fixture(scope="module", params=["nations", "kinships"])
def dataset(request):
    return get_dataset(dataset=request.param)


def both(dataset, **options):
    """Results of PyKEEN's evaluator and of ours on the test triples, with the evaluators."""
    evaluators = RankBasedEvaluator(clear_on_finalize=False), RankCollectionEvaluator()
    return [(evaluated(dataset, evaluator, **options), evaluator) for evaluator in evaluators]


def names(evaluator):
    return {key.metric for key in evaluator.computed()}


def test_parity_of_every_key(dataset):
    (theirs, _), (ours, _) = both(dataset)
    assert theirs.get_metric("both.optimistic.mr") < theirs.get_metric("both.pessimistic.mr")
    assert assert_parity(theirs, ours) == 225


def test_table_of_a_finished_evaluator_holds_the_same_ranks(dataset):
    (_, theirs), (ours, evaluator) = both(dataset)
    test = splits_of(dataset)[2]
    table = rank_table(theirs, test)
    assert table.compact().rows.equal(ours.table.rows)
    assert table.rows.equal(rank_table(theirs, test.numpy()).rows)
    assert not rank_table(theirs).has_groups()
    assert evaluator.collection.table().rows.equal(ours.table.rows)
    assert rank_table(evaluator, test).rows.equal(rank_table(evaluator).rows)
    with pytest.raises(ValueError, match=rf"triples must be the {len(test)} that were evaluated, got {len(test) - 2}"):
        rank_table(evaluator, test[2:])
    for side in ("head", "tail"):
        part = table.select(side=side)
        assert part.sample_id.tolist() == list(range(len(test)))
        expected = known_triples(dataset).num_candidates(test, side)
        assert part.ranks.num_candidates.equal(expected)
        assert part.group.equal(test[:, 1])


def test_raw_evaluation_and_one_side(nations):
    model, test = Lookup(nations), splits_of(nations)[2]
    result = RankCollectionEvaluator(["mr", "count"], filtered=False).evaluate(model, test, targets=("tail",), **QUIET)
    assert {key.side for key in result.data} == {"both", "tail"}
    h, r, t = test.T
    scores = model.scores[r, h]
    true = scores.gather(1, t[:, None])
    realistic = ((scores > true).sum(1) + 1 + (scores >= true).sum(1)) / 2
    assert result.get_metric("mr") == pytest.approx(realistic.mean().item(), rel=1e-6)
    assert result.table.ranks.num_candidates.unique().tolist() == [14]


def test_restriction_to_some_entities(nations):
    entities = [11, 0, 3, 5, 7, 13, 2, 9, 1, 4, 8, 10]  # in this order
    options = {"restrict_entities_to": entities, "pre_filtered_triples": False}
    (theirs, _), (ours, evaluator) = both(nations, **options)
    assert_parity(theirs, ours)
    assert ours.table.ranks.num_candidates.max() <= len(entities)
    test = splits_of(nations)[2]
    with pytest.raises(ValueError, match="must contain the head of every evaluated triple; 1 is missing"):
        evaluator.evaluate(Lookup(nations), test, restrict_entities_to=[0, 13], do_time_consuming_checks=False, **QUIET)
    assert_parity(*(result for result, _ in both(nations)))


def test_a_diverged_model_ranks_last(nations):
    model = Lookup(nations)
    model.scores[:] = math.nan
    with pytest.warns(RankMetricWarning, match="NaN"):
        result = evaluated(nations, RankCollectionEvaluator(), model)
    ranks = result.table.ranks
    assert ranks.optimistic.equal(ranks.num_candidates)
    assert ranks.num_candidates.double().mean() == pytest.approx(7.955, abs=1e-3)
    assert result.get_metric("amri") == pytest.approx(-1)


def test_evaluators_without_ranks_raise(nations):
    test = splits_of(nations)[2]
    evaluator = RankBasedEvaluator()
    evaluated(nations, evaluator)
    with pytest.raises(ValueError, match="clear_on_finalize=False"):
        rank_table(evaluator)
    theirs, nan = RankBasedEvaluator(clear_on_finalize=False), Lookup(nations)
    nan.scores[:20] = math.nan
    theirs.evaluate(nan, test, **QUIET)
    assert min(part.min() for part in theirs.ranks["head", "pessimistic"]) == 0  # better than the best
    with pytest.raises(ValueError, match="num_candidates must be at least 1"):
        rank_table(theirs, test)


def test_known_triples_are_those_of_all_sources_without_inverses(nations):
    train, valid, test = splits_of(nations)
    ids = {"entity_to_id": nations.entity_to_id, "relation_to_id": nations.relation_to_id}
    inverse = TriplesFactory.from_labeled_triples(nations.training.triples, **ids, create_inverse_triples=True)
    for sources, splits in (
        ((nations,), (train, valid, test)),
        ((nations.training, nations.validation), (train, valid)),
        ((nations.training,), (train,)),
        ((inverse,), (train,)),
    ):
        expected = KnownTriples(*splits, num_entities=14)
        for side in ("head", "tail"):
            assert known_triples(*sources).num_candidates(test, side).equal(expected.num_candidates(test, side))


def test_sources_that_number_differently_raise(nations):
    other = TriplesFactory.from_labeled_triples(nations.validation.triples[:, [2, 1, 0]][:50])
    with pytest.raises(ValueError, match="sources must number their triples alike"):
        known_triples(nations.training, other)


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


IDS = torch.zeros(201, 3, dtype=torch.int64)


def sampled(dataset, metrics=("mr",), **options):
    return SampledRankCollectionEvaluator(dataset.testing, metrics, **{"num_negatives": 2, **options})


def of_training(dataset):
    sampled(dataset).evaluate(Lookup(dataset), dataset.training.mapped_triples, **QUIET)


def relations(evaluator):
    evaluator.process_scores_(IDS[:2], "relation", torch.rand(2, 55))


RESTRICTED = {"restrict_entities_to": list(range(14))}
BAD = [
    (lambda _: RankCollectionEvaluator(["mmr"]), ValueError, "unknown metric 'mmr'; did you mean"),
    (lambda _: RankCollectionEvaluator(["hits_at_k"]), ValueError, "needs a number of first places, .* hits_at_10"),
    (lambda _: RankCollectionEvaluator([torch.nn.Linear]), TypeError, "or a name such as 'mrr', got type"),
    (lambda _: RankCollectionEvaluator(3), TypeError, "metrics must be names, RankMetric instances or a dict, got int"),
    (lambda _: RankCollectionEvaluator([]), ValueError, "metrics is empty"),
    (lambda _: RankCollectionEvaluator().finalize(), ValueError, "no ranks: call evaluate first"),
    (lambda _: rank_table(RankCollectionEvaluator()), ValueError, "evaluator has no ranks; call evaluate first"),
    (lambda _: rank_table(ClassificationEvaluator()), TypeError, "a RankBasedEvaluator or .*, got ClassificationEval"),
    (lambda _: known_triples(), ValueError, "sources is empty"),
    (lambda d: known_triples(d.training.mapped_triples), TypeError, "sources must be triples factories .*, got Tensor"),
    (lambda d: RankCollectionEvaluator(known=d.training.mapped_triples), TypeError, "sources must be triples fact"),
    (lambda d: RankCollectionEvaluator(filtered=False, known=d), ValueError, "known must be None if filtered is False"),
    (lambda d: sampled(d, num_negatives=15), ValueError, r"must be in \[1, num_entities\] = \[1, 14\], got 15"),
    (lambda d: sampled(d, num_negatives=0), ValueError, "got 0"),
    (lambda d: sampled(d, head_negatives=IDS), ValueError, "head_negatives and tail_negatives go together"),
    (lambda d: sampled(d, head_negatives=IDS, tail_negatives=IDS[1:]), ValueError, r"tail_.* must be \(201, M\)"),
    (of_training, ValueError, "evaluation_factory must hold all triples evaluated"),
    (lambda d: evaluated(d, sampled(d), **RESTRICTED), ValueError, "restrict_entities_to does not go with sampled"),
    (lambda d: relations(sampled(d)), ValueError, "are sampled for head and tail; got target 'relation'"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_arguments_raise(nations, call, error, message):
    with pytest.raises(error, match=message):
        call(nations)


def test_macro_average_is_by_query_as_in_pykeen(nations):
    theirs, ours = MacroRankBasedEvaluator(), RankCollectionEvaluator(average="macro")
    theirs, result = evaluated(nations, theirs), evaluated(nations, ours)
    differ = {"variance", "standard_deviation", "median_absolute_deviation", "inverse_median_rank", "count"}
    theirs.data = {key: value for key, value in theirs.data.items() if key.metric not in differ}
    assert assert_parity(theirs, result) == 9 * 20
    micro = evaluated(nations, RankCollectionEvaluator())
    assert abs(micro.get_metric("mrr") - result.get_metric("mrr")) > 1e-3
    tails, heads = (len(splits_of(nations)[2][:, columns].unique(dim=0)) for columns in ([0, 1], [1, 2]))
    assert len(result.table.select(side="tail").group.unique()) == tails
    assert len(result.table.group.unique()) == tails + heads


def test_sampled_evaluation_has_the_values_of_pykeen(nations):
    train, valid, _ = splits_of(nations)
    filtering = {"additional_filter_triples": [train, valid]}
    theirs = SampledRankBasedEvaluator(nations.testing, num_negatives=3, clear_on_finalize=False, **filtering)
    negatives = {f"{side}_negatives": ids for side, ids in theirs.negative_samples.items()}
    ours = evaluator_resolver.make("sampledrankcollection", evaluation_factory=nations.testing, **negatives)
    with pytest.warns(RankMetricWarning, match="undefined"):  # hits at 5 and 10 among four
        result = evaluated(nations, ours)
    expected = evaluated(nations, theirs)
    for key, value in expected.data.items():
        if not math.isnan(result.data[key]):
            assert result.data[key] == pytest.approx(value, rel=1e-5, abs=2e-4), key
    table = rank_table(theirs, splits_of(nations)[2])
    assert table.compact().rows.equal(result.table.rows)
    assert result.table.to_numpy()["sampled"].all()
    assert "sampled" in str(result.table.summary())


def one_candidate(evaluator):
    """An evaluation with zero variance under the null."""
    for side in ("head", "tail"):
        evaluator.process_scores_(IDS[:4], side, *torch.zeros(3, 4, 1))
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
    defined = evaluated(nations, RankCollectionEvaluator())
    assert len(defined.to_df()) == sum(len(ms) for rs in defined.to_dict().values() for ms in rs.values())
