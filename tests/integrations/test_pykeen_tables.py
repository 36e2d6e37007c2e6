"""Ranks of PyKEEN's evaluators as a RankTable, triples of its datasets as KnownTriples."""

import math

import pytest

from pykeen_lookup import QUIET, Lookup, splits_of
from torchrankmetrics import KnownTriples

pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")

from pykeen.evaluation import ClassificationEvaluator, RankBasedEvaluator
from pykeen.triples import TriplesFactory

from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator, known_triples, rank_table


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
