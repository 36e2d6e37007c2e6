"""PyKEEN's pipeline, early stopper and search with our evaluator and our names of metrics."""

import pytest

from pykeen_lookup import QUIET, assert_parity
from scripts import EXAMPLES, fork_script
from torchrankmetrics import RankTable, evaluate

pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")

from pykeen.pipeline import pipeline

from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator, RankResults, early_stopping


def run_pipeline(**options):
    arguments = {
        "dataset": "nations",
        "model": "distmult",
        "model_kwargs": {"embedding_dim": 4},
        "training_kwargs": {"num_epochs": 2, "use_tqdm": False},
        "evaluation_kwargs": QUIET,
        "random_seed": 0,
        "device": "cpu",
    }
    return pipeline(**(arguments | options))


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
    result = run_pipeline(
        evaluator=evaluator, stopper="early", stopper_kwargs=kwargs | {"best_model_path": tmp_path / "best.pt"}
    )
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
    path = tmp_path / "ranks.npz"
    ours.metric_results.table.save(path)
    assert RankTable.load(path).num_tasks == 402
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
