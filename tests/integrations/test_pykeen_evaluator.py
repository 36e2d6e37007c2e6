"""Our evaluator against PyKEEN's: the same ranks and values, except with NaN scores, which never help."""

import math

import pytest

from pykeen_lookup import QUIET, Lookup, assert_parity, splits_of
from torchrankmetrics import KnownTriples, RankMetricWarning

pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")

from pykeen.datasets import get_dataset
from pykeen.evaluation import ClassificationEvaluator, RankBasedEvaluator
from pykeen.triples import TriplesFactory

from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator, known_triples, rank_table


@pytest.fixture(scope="module", params=["nations", "kinships"])
def dataset(request):
    return get_dataset(dataset=request.param)


def both(dataset, model, **options):
    """Results of PyKEEN's evaluator and of ours on the test triples, with the evaluators."""
    train, valid, test = splits_of(dataset)
    evaluators = RankBasedEvaluator(clear_on_finalize=False), RankCollectionEvaluator()
    options = {"additional_filter_triples": [train, valid], **QUIET, **options}
    return [(evaluator.evaluate(model, test, **options), evaluator) for evaluator in evaluators]


def test_parity_of_every_key(dataset):
    (theirs, _), (ours, _) = both(dataset, Lookup(dataset))
    assert theirs.get_metric("both.optimistic.mr") < theirs.get_metric("both.pessimistic.mr")
    assert assert_parity(theirs, ours) == 225


def test_table_of_a_finished_evaluator_holds_the_same_ranks(dataset):
    (_, theirs), (ours, evaluator) = both(dataset, Lookup(dataset))
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
    (theirs, _), (ours, evaluator) = both(nations, Lookup(nations), **options)
    assert_parity(theirs, ours)
    assert ours.table.ranks.num_candidates.max() <= len(entities)
    test = splits_of(nations)[2]
    with pytest.raises(
        ValueError, match="restrict_entities_to must contain the head of every evaluated triple; 1 is missing"
    ):
        evaluator.evaluate(Lookup(nations), test, restrict_entities_to=[0, 13], do_time_consuming_checks=False, **QUIET)
    assert_parity(*(result for result, _ in both(nations, Lookup(nations))))


def test_a_diverged_model_ranks_last(nations):
    model, (train, valid, test) = Lookup(nations), splits_of(nations)
    model.scores[:] = math.nan
    evaluator = RankCollectionEvaluator()
    with pytest.warns(RankMetricWarning, match="NaN"):
        result = evaluator.evaluate(model, test, additional_filter_triples=[train, valid], **QUIET)
    ranks = result.table.ranks
    assert ranks.optimistic.equal(ranks.num_candidates)
    assert ranks.num_candidates.double().mean() == pytest.approx(7.955, abs=1e-3)
    assert result.get_metric("amri") == pytest.approx(-1)


def test_evaluators_without_ranks_raise(nations):
    train, valid, test = splits_of(nations)
    evaluator = RankBasedEvaluator()
    evaluator.evaluate(Lookup(nations), test, **QUIET)
    with pytest.raises(ValueError, match="clear_on_finalize=False"):
        rank_table(evaluator)
    with pytest.raises(ValueError, match="evaluator has no ranks; call evaluate first"):
        rank_table(RankCollectionEvaluator())
    with pytest.raises(TypeError, match="a RankBasedEvaluator or a RankCollectionEvaluator, got ClassificationEval"):
        rank_table(ClassificationEvaluator())
    theirs = RankBasedEvaluator(clear_on_finalize=False)
    theirs.evaluate(Lookup(nations), test, additional_filter_triples=[train, valid], **QUIET)
    with pytest.raises(ValueError, match="triples must be the 201 that were evaluated, got 199"):
        rank_table(theirs, valid)
    nan = Lookup(nations)
    nan.scores[:20] = math.nan
    theirs.evaluate(nan, test, **QUIET)
    assert min(part.min() for part in theirs.ranks["head", "pessimistic"]) == 0  # better than the best
    with pytest.raises(ValueError, match="num_candidates must be at least 1"):
        rank_table(theirs, test)
    with pytest.raises(ValueError, match="no ranks: call evaluate first"):
        RankCollectionEvaluator().finalize()


def test_known_triples_are_those_of_all_sources_without_inverses(nations):
    train, valid, test = splits_of(nations)
    for sources, splits in (
        ((nations,), (train, valid, test)),
        ((nations.training, nations.validation), (train, valid)),
        ((nations.training,), (train,)),
    ):
        expected = KnownTriples(*splits, num_entities=14)
        for side in ("head", "tail"):
            assert known_triples(*sources).num_candidates(test, side).equal(expected.num_candidates(test, side))
    inverse = TriplesFactory.from_labeled_triples(
        nations.training.triples,
        entity_to_id=nations.entity_to_id,
        relation_to_id=nations.relation_to_id,
        create_inverse_triples=True,
    )
    expected = KnownTriples(train, num_entities=14)
    assert known_triples(inverse).num_candidates(test, "tail").equal(expected.num_candidates(test, "tail"))


def test_wrong_sources_raise(nations):
    other = TriplesFactory.from_labeled_triples(nations.validation.triples[:, [2, 1, 0]][:50])
    with pytest.raises(ValueError, match="sources must number their triples alike"):
        known_triples(nations.training, other)
    with pytest.raises(ValueError, match="sources is empty"):
        known_triples()
    with pytest.raises(TypeError, match="got Tensor"):
        known_triples(nations.training.mapped_triples)
