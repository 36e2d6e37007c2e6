"""Cost: for any number of metrics, scores are ranked once and rows are read once.

Moments need only the distinct candidate counts.
"""

import pytest
import torch

from reference import METRICS
from scripts import ROOT, forked
from torchrankmetrics import RankCollection, Ranks, evaluate
from torchrankmetrics.metrics import analysis as analysis_module
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.table import blocks as blocks_module


def calls_of(monkeypatch, module, name):
    calls = []
    original = getattr(module, name)
    monkeypatch.setattr(
        module, name, lambda *args, **kwargs: calls.append(1) or original(*args, **kwargs)
    )
    return calls


@pytest.mark.parametrize(
    "metrics", [["mrr"], [*METRICS, "amri", "z_mrr", "adjusted_gmr", "tail_mr", "optimistic_mr"]]
)
def test_scores_are_ranked_once_and_rows_read_once_for_any_number_of_metrics(metrics, monkeypatch):
    ranked = calls_of(monkeypatch, blocks_module, "rank_dense")
    read = calls_of(monkeypatch, analysis_module, "canonical_rows")
    collection = RankCollection(metrics)
    for batch in range(3):
        collection.update(torch.rand(4, 9), torch.arange(4), side="tail")
        assert len(ranked) == batch + 1
    assert len(read) == 0
    assert len(collection["mrr"].rows) == 3
    first = collection.compute()
    assert len(read) == 1
    assert collection.compute() == first
    collection.summary()
    collection.table()
    assert len(read) == 1  # the rows are the same
    collection(torch.rand(4, 9), torch.arange(4), side="tail")
    assert (len(ranked), len(read)) == (4, 2)  # the batch alone, once
    collection.compute()
    assert len(read) == 3


def test_null_moments_see_distinct_candidate_counts_only():
    seen = []

    class Spy:
        def moments(self, definition, counts, weights=None):
            seen.append(len(counts.num_candidates))
            return DEFAULT_EXPECTATION.moments(definition, counts, weights)

        def supports(self, definition):
            return True

    N = torch.arange(30_000) % 7 + 5
    evaluate(Ranks(torch.ones_like(N), None, N), metrics=["amri", "z_mrr"], expectation=Spy())
    assert seen == [7, 7]


COUNT = """
import warnings
import torch
warnings.simplefilter("always")
from torchrankmetrics import rank_scores
for _ in range(2):
    ranks = rank_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([0]))
print(ranks.optimistic.item())
try:
    rank_scores(torch.eye(3), torch.arange(3), backend="numba")
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "environment", "why"),
    [
        ("", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT"),
        # as it does beside a NumPy that is too new for it
        ("Numba needs NumPy 2.3 or less", {}, "Numba needs NumPy"),
    ],
)
def test_where_numba_is_unusable_torch_counts_with_one_warning(tmp_path, before, environment, why):
    pytest.importorskip("numba")
    if before:
        (tmp_path / "numba").mkdir()
        (tmp_path / "numba" / "__init__.py").write_text(f"raise ImportError({before!r})")
        before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    anew = ["torchrankmetrics", "numba"]
    result = forked("-c", before + COUNT, cwd=ROOT, environment=environment, anew=anew)
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first == "2"
    assert why in second
    assert result.stderr.count("RankMetricWarning") == 1
    assert why in result.stderr
