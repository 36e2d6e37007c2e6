"""PyKEEN's pipeline, early stopper and search with our evaluator: parity with its own, but for NaN."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchrankmetrics import KnownTriples, RankDefinition, RankMetric, RankMetricWarning, RankTable, evaluate
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.rows import SIDE_BITS

pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")

from pykeen.datasets import get_dataset
from pykeen.evaluation import LCWAEvaluationLoop, RankBasedEvaluator, SampledRankBasedEvaluator
from pykeen.hpo import hpo_pipeline
from pykeen.pipeline import pipeline
from pykeen.triples import TriplesFactory

from torchrankmetrics.integrations.pykeen import (
    RankCollectionEvaluator,
    RankResults,
    early_stopping,
    known_triples,
    objective,
    rank_table,
)

QUIET = {"use_tqdm": False, "batch_size": 64}


class Lookup(torch.nn.Module):
    """What PyKEEN's evaluators ask of a model, with scores from a table; integers are often tied."""

    use_inverse_triples = can_slice_t = can_slice_h = False
    device = torch.device("cpu")

    def __init__(self, dataset, levels=8, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.num_entities, self.num_relations = dataset.num_entities, dataset.num_relations
        shape = (self.num_relations, self.num_entities, self.num_entities)
        self.scores = torch.randint(levels, shape, generator=generator).float()

    def predict(self, hrt_batch, target, **_):
        h, r, t = hrt_batch.T
        return self.scores[r, h].clone() if target == "tail" else self.scores[r, :, t].clone()


def splits_of(dataset):
    return [part.mapped_triples for part in (dataset.training, dataset.validation, dataset.testing)]


@pytest.fixture(scope="module", params=["nations", "kinships", "umls"])
def dataset(request):
    return get_dataset(dataset=request.param)


@pytest.fixture(scope="module")
def nations():
    return get_dataset(dataset="nations")


def both(dataset, model, **options):
    """Results of PyKEEN's evaluator and of ours on the test triples, with the evaluators."""
    train, valid, test = splits_of(dataset)
    evaluators = RankBasedEvaluator(clear_on_finalize=False), RankCollectionEvaluator()
    options = {"additional_filter_triples": [train, valid], **QUIET, **options}
    return [(evaluator.evaluate(model, test, **options), evaluator) for evaluator in evaluators]


def assert_parity(theirs, ours):
    theirs, ours = theirs.to_flat_dict(), ours.to_flat_dict()
    assert set(theirs) <= set(ours)
    for key, value in theirs.items():
        # realistic ranks are float32 there; what is left near 0, against chance, keeps the error of the base value
        near = 2e-4 if ".z_" in key else 1e-6
        assert ours[key] == pytest.approx(value, rel=1e-5, abs=near if ".z_" in key or ".adjusted" in key else 0), key
    return len(theirs)


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
    for side, column in (("head", 0), ("tail", 2)):
        part = table.select(side=side)
        assert part.sample_id.tolist() == list(range(len(test)))
        expected = known_triples(dataset).num_candidates(test, side)
        assert part.ranks.num_candidates.equal(expected)
        assert part.group.equal(test[:, 1]), column


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
    with pytest.raises(ValueError, match="restrict_entities_to must hold the true head of every task; 1 is missing"):
        evaluator.evaluate(Lookup(nations), test, restrict_entities_to=[0, 13], do_time_consuming_checks=False, **QUIET)
    assert_parity(*(result for result, _ in both(nations, Lookup(nations))))


def test_evaluation_loop_of_lcwa(nations):
    train, valid, _ = splits_of(nations)
    results = []
    for evaluator in (RankBasedEvaluator(), RankCollectionEvaluator()):
        loop = LCWAEvaluationLoop(
            nations.testing, evaluator=evaluator, model=Lookup(nations), additional_filter_triples=[train, valid]
        )
        results.append(loop.evaluate(batch_size=64, use_tqdm=False))
    assert_parity(*results)


def test_a_new_evaluation_starts_afresh(nations):
    train, valid, test = splits_of(nations)
    evaluator = RankCollectionEvaluator(["mr"])
    evaluator.evaluate(Lookup(nations, seed=1), valid, additional_filter_triples=train, **QUIET)
    again = evaluator.evaluate(Lookup(nations), test, additional_filter_triples=[train, valid], **QUIET)
    fresh = RankCollectionEvaluator(["mr"]).evaluate(
        Lookup(nations), test, additional_filter_triples=[train, valid], use_tqdm=False, batch_size=7
    )
    assert again.data == fresh.data
    assert again.table.rows.equal(fresh.table.rows)


# --- NaN never helps --------------------------------------------------------------------------------------------------


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


def test_a_nan_candidate_counts_as_better(nations):
    model, (train, valid, test) = Lookup(nations), splits_of(nations)
    model.scores[:, :, 5] = math.nan
    evaluator = RankCollectionEvaluator(["mr"], filtered=True)
    with pytest.warns(RankMetricWarning, match="NaN"):
        got = evaluator.evaluate(
            model, test, additional_filter_triples=[train, valid], targets=("tail",), **QUIET
        ).table
    true = {tuple(x) for x in torch.cat([train, valid, test]).tolist()}
    for (h, r, t), row in zip(test.tolist(), got.ranks.optimistic[got.sample_id.argsort()].tolist(), strict=True):
        s = model.scores[r, h].tolist()
        others = [e for e in range(14) if e != t and (h, r, e) not in true]
        better = sum(math.isnan(s[e]) or (math.isnan(s[t]) or s[e] > s[t]) for e in others)
        assert row == 1 + better


def test_without_a_mask_a_nan_of_the_true_score_ranks_last(nations):
    model = Lookup(nations)
    model.scores[:] = math.nan
    loop = LCWAEvaluationLoop(
        nations.testing,
        evaluator=RankCollectionEvaluator(["mr"]),
        model=model,
        additional_filter_triples=[nations.training.mapped_triples],
    )
    with pytest.warns(RankMetricWarning, match="NaN"):
        result = loop.evaluate(batch_size=64, use_tqdm=False)
    assert result.get_metric("mr") == 14


# --- pipeline, early stopping, search ---------------------------------------------------------------------------------


def run(**options):
    arguments = {
        "dataset": "nations",
        "model": "distmult",
        "model_kwargs": {"embedding_dim": 4},
        "training_kwargs": {"num_epochs": 4, "use_tqdm": False},
        "evaluation_kwargs": QUIET,
        "random_seed": 0,
        "device": "cpu",
    }
    return pipeline(**(arguments | options))


@pytest.mark.parametrize(
    ("metric", "larger", "key"),
    [
        ("mr", False, "both.realistic.arithmetic_mean_rank"),
        ("tail.best.gmr", False, "tail.optimistic.geometric_mean_rank"),
        ("z_hits_at_3", True, "both.realistic.z_hits_at_3"),
    ],
)
@pytest.mark.trains
def test_pipeline_with_early_stopping(nations, metric, larger, key, tmp_path):
    kwargs = early_stopping(metric, frequency=1, patience=1, relative_delta=0.0)
    assert kwargs["metric"] == key
    assert kwargs["larger_is_better"] is larger
    seen = []
    kwargs["result_callbacks"] = [lambda stopper, result, epoch: seen.append(stopper.evaluator.collection.table())]
    evaluator = RankCollectionEvaluator()
    result = run(
        evaluator=evaluator, stopper="early", stopper_kwargs=kwargs | {"best_model_path": tmp_path / "best.pt"}
    )
    train, valid, test = splits_of(nations)
    history = result.stopper.results
    assert len(history) == len(seen)
    for table, value in zip(seen, history, strict=True):
        assert value == pytest.approx(next(iter(evaluate(table, metrics=[metric]).values())), rel=1e-12)
    assert result.stopper.best_metric == (max if larger else min)(history)
    sides = seen[0].select(side="tail")
    no_test = KnownTriples(train, valid, num_entities=14)
    assert sides.ranks.num_candidates[sides.sample_id.argsort()].equal(no_test.num_candidates(valid, "tail"))
    # the final evaluation: the test triples, filtered by all
    table = result.metric_results.table
    assert table.rows.equal(evaluator.collection.table().rows)
    tails = table.select(side="tail")
    assert tails.ranks.num_candidates[tails.sample_id.argsort()].equal(
        known_triples(nations).num_candidates(test, "tail")
    )
    assert result.get_metric("mrr") == pytest.approx(evaluate(table, metrics=["mrr"])["mrr"], rel=1e-12)
    assert result.get_metric(key) == result.metric_results.to_flat_dict()[key]


@pytest.mark.trains
def test_pipeline_by_class_saves_and_gives_the_values_of_its_own_evaluator(tmp_path):
    ours, theirs = run(evaluator=RankCollectionEvaluator), run()
    assert_parity(theirs.metric_results, ours.metric_results)
    ours.save_to_directory(tmp_path / "run")
    assert (tmp_path / "run" / "results.json").exists()
    path = tmp_path / "ranks.npz"
    ours.metric_results.table.save(path)
    assert RankTable.load(path).num_tasks == 402
    assert len(ours.metric_results.to_df()) == len(ours.metric_results.data)


@pytest.mark.trains
def test_search_goes_the_right_way():
    assert objective("amri")["direction"] == "maximize"
    asked = objective("mr")
    search = hpo_pipeline(
        dataset="nations",
        model="distmult",
        model_kwargs={"embedding_dim": 4},
        loss="marginranking",
        training_kwargs={"num_epochs": 1, "use_tqdm": False, "batch_size": 512},
        evaluator=RankCollectionEvaluator,
        evaluator_kwargs={"metrics": ["mr"], "rank_types": ["realistic"]},
        evaluation_kwargs=QUIET,
        n_trials=3,
        device="cpu",
        sampler="random",
        sampler_kwargs={"seed": 0},
        **asked,
    )
    values = [trial.value for trial in search.study.trials]
    assert len(set(values)) > 1
    assert search.study.best_value == min(values)
    assert all(trial.user_attrs[asked["metric"]] == trial.value for trial in search.study.trials)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (None, "both.realistic.inverse_harmonic_mean_rank"),
        ("hits_at_k", "both.realistic.hits_at_10"),
        ("hits@k", "both.realistic.hits_at_10"),
        ("tail.hits@5", "tail.realistic.hits_at_5"),
        ("hits_at_k.5", "both.realistic.hits_at_5"),
        ("adjusted_hits_at_k", "both.realistic.adjusted_hits_at_10"),
        ("zahk", "both.realistic.z_hits_at_k"),
        ("rank_std", "both.realistic.standard_deviation"),
        ("head.worst.amr", "head.pessimistic.adjusted_arithmetic_mean_rank"),
        ("p_mrr", "both.realistic.p_mrr"),
    ],
)
def test_names_of_both_sides_resolve(name, key):
    assert RankResults.key_to_string(name) == key
    assert RankResults.key_to_string(key) in (key, key.replace("_k", "_10"))


def test_metrics_that_pykeen_lacks_and_own_ones(nations):
    dcg = RankDefinition("dcg", f=lambda r: 1 / (1 + r).log2())
    evaluator = RankCollectionEvaluator({"dcg": RankMetric(dcg), "ties": "tie_rate"}, rank_types=["realistic"])
    result = evaluator.evaluate(Lookup(nations), splits_of(nations)[2], **QUIET)
    assert 0 < result.get_metric("both.realistic.dcg") < 1
    assert 0 < result.get_metric("both.realistic.ties") < 1
    named = RankCollectionEvaluator(["mrr"], views=["p_value", "base"], rank_types=["realistic"])
    result = named.evaluate(Lookup(nations), splits_of(nations)[2], **QUIET)
    assert 0 < result.get_metric("tail.p_mrr") < 1
    with pytest.raises(ValueError, match=r"'gmr' \(both.realistic.geometric_mean_rank\) was not computed; there are"):
        result.get_metric("gmr")


# --- tables and known triples -----------------------------------------------------------------------------------------


def test_ranks_among_sampled_candidates_are_marked(nations):
    train, valid, test = splits_of(nations)
    evaluator = SampledRankBasedEvaluator(nations.testing, num_negatives=5, clear_on_finalize=False)
    evaluator.evaluate(Lookup(nations), test, additional_filter_triples=[train, valid], **QUIET)
    table = rank_table(evaluator)
    assert table.to_numpy()["sampled"].all()
    assert (table.rows[:, 3] >> SIDE_BITS & fault.SAMPLED).bool().all()
    assert table.ranks.num_candidates.max() == 6  # PyKEEN filters those that it sampled


def test_tables_that_cannot_be(nations):
    _, valid, test = splits_of(nations)
    evaluator = RankBasedEvaluator()
    evaluator.evaluate(Lookup(nations), test, **QUIET)
    with pytest.raises(ValueError, match="clear_on_finalize=False"):
        rank_table(evaluator)
    with pytest.raises(TypeError, match="evaluator must be a RankBasedEvaluator, got RankCollectionEvaluator"):
        rank_table(RankCollectionEvaluator())
    (_, theirs), _ = both(nations, Lookup(nations))
    with pytest.raises(ValueError, match="triples must be the 201 that were evaluated, got 199"):
        rank_table(theirs, valid)
    nan = Lookup(nations)
    nan.scores[:20] = math.nan
    theirs.evaluate(nan, test, **QUIET)
    assert min(part.min() for part in theirs.ranks["head", "pessimistic"]) == 0  # better than the best
    with pytest.raises(ValueError, match="num_candidates must be at least 1"):
        rank_table(theirs, test)
    with pytest.raises(ValueError, match="no ranks: evaluate first"):
        RankCollectionEvaluator().finalize()


def test_known_triples(nations):
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


def test_known_triples_that_cannot_be(nations):
    other = TriplesFactory.from_labeled_triples(nations.validation.triples[:, [2, 1, 0]][:50])
    with pytest.raises(ValueError, match="sources must number their triples alike"):
        known_triples(nations.training, other)
    with pytest.raises(ValueError, match="sources is empty"):
        known_triples()
    with pytest.raises(TypeError, match="got Tensor"):
        known_triples(nations.training.mapped_triples)


@pytest.mark.parametrize("name", ["mmr", "both.realistic.nothing", "left.right.mr"])
def test_unknown_metrics_are_told_before_any_training(name):
    with pytest.raises(ValueError, match="unknown metric"):
        early_stopping(name)
    with pytest.raises(ValueError, match="unknown metric"):
        objective(name)


def test_metrics_without_a_direction_are_refused():
    with pytest.raises(ValueError, match="no direction"):
        objective("rank_std")


def test_example_runs(tmp_path):
    example = Path(__file__).parent.parent / "examples" / "pykeen_pipeline.py"
    command = [sys.executable, str(example), "--dataset", "nations", "--epochs", "1", "--trials", "1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "both.realistic.inverse_harmonic_mean_rank" in result.stdout
    assert "2000 ranks among" in result.stdout
    assert "1 trials" in result.stdout
