"""PyKEEN's evaluation loops, pipeline and early stopper: fresh evaluations, NaN never helps, relations, names."""

import math

import pytest
import torch

from pykeen_lookup import QUIET, Lookup, assert_parity, evaluated, splits_of
from scripts import EXAMPLES, fork_script
from torchrankmetrics import KnownTriples, RankMetricWarning, RankTable, evaluate

pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")

from pykeen.evaluation import LCWAEvaluationLoop, RankBasedEvaluator
from pykeen.pipeline import pipeline
from pykeen.trackers import PythonResultTracker

from torchrankmetrics.integrations.pykeen import (
    RankCollectionEvaluator,
    RankResults,
    early_stopping,
    known_triples,
    rank_table,
)


def run_pipeline(**options):
    arguments = {"dataset": "nations", "model": "distmult", "model_kwargs": {"embedding_dim": 4}}
    arguments |= {"training_kwargs": {"num_epochs": 2, "use_tqdm": False}, "evaluation_kwargs": QUIET}
    return pipeline(**(arguments | {"random_seed": 0, "device": "cpu"} | options))


def loop_of(dataset, evaluator, model, **options):
    train, valid, _ = splits_of(dataset)
    options = {"additional_filter_triples": [train, valid], **options}
    return LCWAEvaluationLoop(dataset.testing, evaluator=evaluator, model=model, **options)


def test_every_evaluation_of_a_loop_starts_afresh(nations):
    models = [Lookup(nations, seed=seed) for seed in range(3)]
    evaluator = RankCollectionEvaluator(["mrr", "count"])
    loop = loop_of(nations, evaluator, models[0])
    for model in models:
        loop.model = model
        result = loop.evaluate(**QUIET)
        fresh = loop_of(nations, RankCollectionEvaluator(["mrr", "count"]), model).evaluate(**QUIET)
        assert result.data == fresh.data
        assert result.get_metric("count") == 402
        assert result.table.rows.equal(fresh.table.rows)
        assert evaluator.collection.table().rows.equal(fresh.table.rows)  # readable until the next batch
    with pytest.raises(ValueError, match="no ranks: call evaluate first"):
        evaluator.finalize()
    triples = splits_of(nations)[2][:5]
    evaluator.process_scores_(triples, "tail", torch.rand(5, 14), dense_positive_mask=torch.zeros(5, 14))
    assert evaluator.collection.table().num_tasks == 5
    assert evaluator.finalize().get_metric("count") == 5


@pytest.mark.slow
@pytest.mark.trains
def test_the_loop_callback_logs_every_epoch_by_itself(nations):
    runs = {}
    for evaluator, kwargs in (("rankbased", {}), ("rankcollection", {"known": known_triples(nations)})):
        tracker = PythonResultTracker()
        callback = {"factory": nations.testing, "prefix": "test", "evaluator": evaluator, "evaluator_kwargs": kwargs}
        callback["additional_filter_triples"] = [nations.training, nations.validation]
        training = {"num_epochs": 3, "use_tqdm": False, "callbacks": "evaluation-loop"}
        run_pipeline(result_tracker=tracker, training_kwargs=training | {"callbacks_kwargs": callback | QUIET})
        name = "test.both.realistic.inverse_harmonic_mean_rank"
        runs[evaluator] = [step[name] for step in tracker.metrics.values() if name in step]
    assert len(runs["rankbased"]) == 3
    assert len(set(runs["rankbased"])) == 3
    assert runs["rankcollection"] == pytest.approx(runs["rankbased"], rel=1e-6)


def with_nan(dataset, where):
    model = Lookup(dataset)
    model.scores[where] = math.nan
    return model


NAN = {
    "a column": (slice(None), slice(None), slice(3, 6)),
    "here and there": torch.rand(55, 14, 14, generator=torch.Generator().manual_seed(1)) < 0.3,
    "all": (...,),
}


@pytest.mark.parametrize("where", NAN)
def test_nan_never_helps_in_a_loop_with_known_triples(nations, where):
    model = with_nan(nations, NAN[where])
    with pytest.warns(RankMetricWarning, match="NaN"):
        expected = evaluated(nations, RankCollectionEvaluator(["mrr"]), model)
    for known in (nations, known_triples(nations), [nations.training, nations.validation, nations.testing]):
        loop = loop_of(nations, RankCollectionEvaluator(["mrr"], known=known), model)
        with pytest.warns(RankMetricWarning, match="NaN"):
            result = loop.evaluate(**QUIET)
        assert result.data == expected.data
        assert result.table.rows.equal(expected.table.rows)
    # NaN at the bottom instead, which never helps either: no task has a better rank with NaN
    lowest = Lookup(nations)
    lowest.scores[NAN[where]] = -math.inf
    finite = evaluated(nations, RankCollectionEvaluator(["mrr"]), lowest)
    assert (expected.table.ranks.optimistic >= finite.table.ranks.optimistic).all()
    assert expected.get_metric("mrr") < finite.get_metric("mrr")


def test_without_known_triples_a_loop_warns_of_nan_columns(nations):
    model = with_nan(nations, NAN["a column"])
    tails = {"targets": ("tail",)}
    _, _, test = splits_of(nations)
    loop = loop_of(nations, RankCollectionEvaluator(["mrr"]), model, **tails)
    truths = int(torch.isin(test[:, 2], torch.tensor([3, 4, 5])).sum())
    columns = r"3 of 14 columns of the tail scores \(3, 4, 5\) were NaN in every row"
    ranks = f"{truths} of 201 ranking tasks have NaN scores"
    with pytest.warns(RankMetricWarning, match=columns), pytest.warns(RankMetricWarning, match=ranks):
        helped = loop.evaluate(**QUIET).get_metric("mrr")
    with pytest.warns(RankMetricWarning, match="NaN scores"):
        right = loop_of(nations, RankCollectionEvaluator(["mrr"], known=nations), model, **tails).evaluate(**QUIET)
    assert right.get_metric("mrr") < helped  # what the warning is about


def test_a_loop_over_finite_scores_does_not_warn(nations):
    train, valid, _ = splits_of(nations)
    theirs = loop_of(nations, RankBasedEvaluator(), Lookup(nations)).evaluate(**QUIET)
    for known in (None, nations):
        evaluator = RankCollectionEvaluator(known=known)
        assert_parity(theirs, loop_of(nations, evaluator, Lookup(nations)).evaluate(**QUIET))
    # all known, and one split in additional_filter_triples, or the other way round: the same ranks
    expected = evaluated(nations, RankCollectionEvaluator(["mr"])).data
    every = [nations.training, nations.validation, nations.testing]
    for known, filtered in ((every, train), (nations.training, [train, valid])):
        evaluator = RankCollectionEvaluator(["mr"], known=known)
        assert evaluated(nations, evaluator, additional_filter_triples=filtered).data == expected


def test_wrong_known_triples_raise(nations):
    model = Lookup(nations)
    with pytest.raises(ValueError, match="known must contain all filtered triples, the evaluated ones included"):
        loop_of(nations, RankCollectionEvaluator(known=nations.training), model).evaluate(**QUIET)
    larger = KnownTriples(torch.cat(splits_of(nations)), num_entities=20)
    evaluator = RankCollectionEvaluator(known=larger)
    with pytest.raises(ValueError, match="known has 20 entities, but the head scores have 14 columns"):
        loop_of(nations, evaluator, model).evaluate(**QUIET)
    assert evaluator.collection.table().num_tasks == 0


class WithRelations(Lookup):
    """Scores of relations too."""

    def predict(self, hrt_batch, target, **_):
        h, _, t = hrt_batch.T
        return self.scores[:, h, t].T.clone() if target == "relation" else super().predict(hrt_batch, target)


@pytest.mark.parametrize(
    ("targets", "known"), [(("relation",), False), (("head", "relation", "tail"), True), (("tail", "relation"), True)]
)
def test_relation_prediction_has_the_keys_and_values_of_pykeen(nations, targets, known):
    theirs_by = RankBasedEvaluator(clear_on_finalize=False)
    ours_by = RankCollectionEvaluator(known=nations if known else None)
    loops = (loop_of(nations, one, WithRelations(nations), targets=targets) for one in (theirs_by, ours_by))
    theirs, ours = (loop.evaluate(**QUIET) for loop in loops)
    assert assert_parity(theirs, ours) == 75 * (1 + len(targets))
    assert {key.side for key in ours.data} == {"both", *targets}
    assert ours.get_metric("relation.mrr") == ours.get_metric("relation.realistic.inverse_harmonic_mean_rank")
    # sides and tables
    test = splits_of(nations)[2]
    table = rank_table(theirs_by, test)
    assert table.compact().rows.equal(ours.table.rows)
    assert all(side in repr(ours.table) for side in targets)
    relations = ours.table.select(side="relation")
    assert relations.num_tasks == len(test)
    pairs = torch.cat(splits_of(nations))[:, [0, 2]]
    expected = [56 - int((pairs == pair).all(1).sum()) for pair in test[:, [0, 2]]]
    assert relations.ranks.num_candidates.tolist() == expected
    sides = [row.side for row in ours.table.summary().rows if row.metric == "mr"]
    assert sides == ([*sorted(targets, key=["head", "tail", "relation"].index), "both"] if targets[1:] else [*targets])


@pytest.mark.slow
@pytest.mark.trains
def test_pipeline_with_early_stopping(nations, tmp_path):
    metric, key = "tail.best.gmr", "tail.optimistic.geometric_mean_rank"
    kwargs = early_stopping(metric, frequency=1, patience=1, relative_delta=0.0)
    assert kwargs["metric"] == key
    assert kwargs["larger_is_better"] is False
    assert early_stopping("z_hits_at_3")["larger_is_better"] is True
    seen = []
    kwargs["result_callbacks"] = [lambda stopper, result, epoch: seen.append(stopper.evaluator.collection.table())]
    evaluator = RankCollectionEvaluator()
    kwargs["best_model_path"] = tmp_path / "best.pt"
    result = run_pipeline(evaluator=evaluator, stopper="early", stopper_kwargs=kwargs)
    history = result.stopper.results
    assert len(history) == len(seen)
    for table, value in zip(seen, history, strict=True):
        assert value == pytest.approx(next(iter(evaluate(table, metrics=[metric]).values())), rel=1e-12)
    assert result.stopper.best_metric == min(history)
    table = result.metric_results.table
    assert table.rows.equal(evaluator.collection.table().rows)
    assert result.get_metric("mrr") == pytest.approx(evaluate(table, metrics=["mrr"])["mrr"], rel=1e-12)
    assert result.get_metric(key) == result.metric_results.to_flat_dict()[key]


@pytest.mark.slow
@pytest.mark.trains
def test_pipeline_by_class_saves_and_gives_the_values_of_its_own_evaluator(tmp_path):
    ours, theirs = run_pipeline(evaluator=RankCollectionEvaluator), run_pipeline()
    assert_parity(theirs.metric_results, ours.metric_results)
    ours.save_to_directory(tmp_path / "run")
    assert (tmp_path / "run" / "results.json").exists()
    ours.metric_results.table.save(tmp_path / "ranks.npz")
    assert RankTable.load(tmp_path / "ranks.npz").num_tasks == 402
    assert len(ours.metric_results.to_df()) == len(ours.metric_results.data)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (None, "both.realistic.inverse_harmonic_mean_rank"),
        ("hits_at_k", "both.realistic.hits_at_10"),
        ("hits@k", "both.realistic.hits_at_10"),
        ("tail.hits@5", "tail.realistic.hits_at_5"),
        ("hits_at_k.5", "both.realistic.hits_at_5"),
        ("adjusted_hits_at_k", "both.realistic.adjusted_hits_at_10"),
        ("zahk", "both.realistic.z_hits_at_10"),
        ("rank_std", "both.realistic.standard_deviation"),
        ("head.worst.amr", "head.pessimistic.adjusted_arithmetic_mean_rank"),
        ("p_mrr", "both.realistic.p_mrr"),
    ],
)
def test_names_of_both_sides_resolve(name, key):
    assert RankResults.key_to_string(name) == key
    assert RankResults.key_to_string(key) == key.replace("_at_k", "_at_10")


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    command = (EXAMPLES / "pykeen_pipeline.py", "--dataset", "nations", "--epochs", "3", "--trials", "1")
    printed = fork_script(*command, cwd=tmp_path)
    assert "both.realistic.inverse_harmonic_mean_rank" in printed
    assert "AMRI of the training triples, every 3 epochs: 0." in printed
    assert "2000 ranks among" in printed
    assert "1 trials" in printed
