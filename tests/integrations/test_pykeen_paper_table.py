"""PyKEEN pipelines of two models become the LaTeX table of a paper; values against PyKEEN's own evaluator."""

import pytest

from torchrankmetrics.study import RankStudy

pykeen = pytest.importorskip("pykeen")
pytestmark = [pytest.mark.trains, pytest.mark.filterwarnings("ignore")]


def test_pipelines_become_a_paper_table():
    from pykeen.datasets import Nations
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.pipeline import pipeline

    from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator

    study, dataset, theirs = RankStudy(), Nations(), {}
    for model in ("TransE", "DistMult"):
        result = pipeline(
            dataset=dataset,
            model=model,
            evaluator=RankCollectionEvaluator(),
            training_kwargs={"num_epochs": 3, "use_tqdm": False},
            evaluation_kwargs={"use_tqdm": False, "batch_size": 64},
            random_seed=0,
            device="cpu",
        )
        study.add(result, model=model, dataset="Nations")
        own = RankBasedEvaluator().evaluate(
            result.model,
            dataset.testing.mapped_triples,
            batch_size=64,
            additional_filter_triples=[dataset.training.mapped_triples, dataset.validation.mapped_triples],
            use_tqdm=False,
        )
        theirs[model] = [own.get_metric("mrr"), own.get_metric("hits_at_10")]
        assert [result.get_metric("mrr"), result.get_metric("hits@10")] == pytest.approx(theirs[model], rel=1e-5)

    table = study.table(["mrr", "hits@10"])
    lines = table.to_latex(percent=True, digits=1, baseline="TransE").splitlines()
    assert any("MRR & Hits@10" in line for line in lines)
    for model, values in theirs.items():
        (row,) = (line for line in lines if line.startswith(f"{model} &"))
        assert all(f"{100 * value:.1f}" in row for value in values)
    assert any("different from TransE" in line for line in lines)
    assert any("not significantly better than random ranking" in line for line in lines)  # three epochs of Nations
    with pytest.raises(ValueError, match="view must be one of"):
        study.table("mrr", "hits@10")
