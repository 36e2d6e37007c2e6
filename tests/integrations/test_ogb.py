"""The evaluator that replaces OGB's, against OGB 1.3.6 if installed and the published formulas."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from torchrankmetrics import RankCollection, RankMetricWarning, Ranks, evaluate
from torchrankmetrics.integrations.ogb import OGB_METRICS, Evaluator

SCORES = st.sampled_from([-1.5, -0.5, 0.0, 0.5, 1.0, 2.5, float("inf"), float("-inf")])
BY_KIND = {"hits": "ogbl-ddi", "mrr": "ogbl-citation2", "rocauc": "ogbl-vessel"}


@pytest.fixture(scope="module")
def ogb():
    reason = "OGB is not installed: pip install ogb (its formulas are tested without it)"
    return pytest.importorskip("ogb.linkproppred", reason=reason)


def problem(seed=0, positives=60, negatives=40, shared=False):
    generator = torch.Generator().manual_seed(seed)
    positive = torch.randint(-3, 6, (positives,), generator=generator).float()  # ties
    shape = (negatives,) if shared else (positives, negatives)
    return {
        "y_pred_pos": positive,
        "y_pred_neg": torch.randint(-4, 5, shape, generator=generator).float(),
    }


def numpy(predictions):
    return {key: value.numpy() for key, value in predictions.items()}


@pytest.mark.parametrize("name", OGB_METRICS)
@pytest.mark.parametrize("negatives", [3, 130])
def test_the_numbers_are_those_of_ogb(ogb, name, negatives):
    theirs, ours = ogb.Evaluator(name), Evaluator(name)
    assert ours.eval_metric == theirs.eval_metric
    assert getattr(ours, "K", None) == getattr(theirs, "K", None)
    for seed in range(2):
        case = problem(seed, negatives=negatives, shared=theirs.eval_metric != "mrr")
        expected, found = theirs.eval(case), ours.eval(case)
        assert list(found) == list(expected)
        for key, value in expected.items():
            exact = isinstance(value, torch.Tensor)
            assert (
                torch.equal(found[key], value)
                if exact
                else found[key] == pytest.approx(value, rel=1e-14)
            )


@pytest.mark.parametrize("k", [1, 5, 10, 40, 41])
def test_hits_at_another_k_and_of_arrays_are_those_of_ogb(k, ogb):
    theirs, ours, case = (
        ogb.Evaluator("ogbl-collab"),
        Evaluator("ogbl-collab"),
        problem(shared=True),
    )
    theirs.K = ours.K = k
    assert ours.eval(case) == theirs.eval(case)
    assert ours.eval(numpy(case)) == theirs.eval(numpy(case))


def test_ogb_puts_nan_first_and_rejects_arrays_for_mrr(ogb):
    theirs, ours, case = ogb.Evaluator("ogbl-biokg"), Evaluator("ogbl-biokg"), problem()
    with pytest.raises(TypeError, match="dim"):
        theirs.eval(numpy(case))
    assert torch.equal(ours.eval(numpy(case))["mrr_list"], ours.eval(case)["mrr_list"])
    diverged = {key: value * torch.nan for key, value in case.items()}
    assert theirs.eval(diverged)["mrr_list"].mean() == 1
    with pytest.warns(RankMetricWarning, match="NaN"):
        assert torch.equal(ours.eval(diverged)["mrr_list"], torch.full((60,), 1 / 41))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(SCORES, min_size=1, max_size=6),
    st.lists(SCORES, min_size=1, max_size=8),
    st.integers(1, 9),
)
def test_published_formulas_of_shared_negatives(positive, negatives, k):
    """Hits@K: share above the K-th highest negative (1 if fewer); ROC-AUC: over all pairs."""
    case = {"y_pred_pos": torch.tensor(positive), "y_pred_neg": torch.tensor(negatives)}
    hits = Evaluator("ogbl-ppa")
    hits.K = k
    limit = sorted(negatives, reverse=True)[k - 1] if k <= len(negatives) else -np.inf
    above = [k > len(negatives) or score > limit for score in positive]
    assert hits.eval(case) == {f"hits@{k}": sum(above) / len(positive)}
    pairs = [(p > n) + (p == n) / 2 for p in positive for n in negatives]
    assert Evaluator("ogbl-vessel").eval(case)["rocauc"] == pytest.approx(
        sum(pairs) / len(pairs), abs=1e-14
    )


@pytest.mark.parametrize("kind", BY_KIND)
def test_results_hold_ranks_for_every_other_metric(kind):
    case = problem(shared=kind != "mrr")
    result = Evaluator(BY_KIND[kind]).eval(case)
    collection = RankCollection()
    collection.update(result.ranks)
    assert result.evaluate() == {key: value.item() for key, value in collection.compute().items()}
    assert result.evaluate() == evaluate(case)
    own = {
        "hits": ("hits@20", "pessimistic"),
        "mrr": ("mrr", "realistic"),
        "rocauc": ("auc", "realistic"),
    }[kind]
    (ours,) = evaluate(case, metrics=[own[0]], rank_types=[own[1]]).values()
    theirs = (
        result["mrr_list"].double().mean().item() if kind == "mrr" else next(iter(result.values()))
    )
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_evaluate_takes_the_dict_in_every_form():
    ragged = {
        "y_pred_pos": np.array([0.5, 0.2]),
        "y_pred_neg": [np.array([0.9]), np.array([0.1, 0.3])],
    }
    assert evaluate(ragged, metrics=["mr"]) == {"mr": 2.0}
    padded = {
        "y_pred_pos": torch.tensor([0.5, 0.2]),
        "y_pred_neg": torch.tensor([[0.9, 9.0], [0.1, 0.3]]),
    }
    padding = torch.tensor([[False, True], [False, False]])
    assert evaluate(padded, metrics=["mr"], exclude=padding) == {"mr": 2.0}
    assert evaluate({**padded, "exclude": padding}, metrics=["mr"]) == {"mr": 2.0}
    with pytest.warns(RankMetricWarning, match=r"y_pred_neg is \(B, M\).* pass y_pred_neg \(M,\)"):
        Evaluator("ogbl-ddi").eval(padded)
    # float64 and float32
    mixed = {"y_pred_pos": np.array([0.5]), "y_pred_neg": torch.tensor([0.9, 0.5])}
    assert evaluate(mixed, metrics=["mr"]) == {"mr": 2.5}


P, N = torch.zeros(2), torch.zeros(2, 3)
BOTH = {"y_pred_pos": P, "y_pred_neg": N}
BAD = [
    (lambda: Evaluator("ogbl-citation"), "name must be one of 'ogbl-ppa'"),
    (lambda: evaluate({"y_pred_pos": P}), r"may contain .* got \['y_pred_pos'\]"),
    (lambda: evaluate({**BOTH, "eval_metric": ["mrr"]}), "got"),
    (lambda: evaluate(BOTH, 4), "num_candidates must not"),
    (lambda: Evaluator("ogbl-ddi").eval({"y_pred_pos": P[:0], "y_pred_neg": P}), "at least one"),
    (
        lambda: Evaluator("ogbl-vessel").eval({**BOTH, "y_pred_neg": P[:0]}),
        "y_pred_neg must contain a negative",
    ),
    (lambda: Ranks.from_negatives(P, [P]), "a vector for each of 2 positives, without"),
    (
        lambda: Ranks.from_negatives({**BOTH, "exclude": N > 0}, exclude=N > 0),
        "exclude must be given once",
    ),
    (lambda: Ranks.from_negatives(BOTH, N), "negatives must not"),
    (lambda: Ranks.from_negatives(P, N, exclude=N > 0, indexes=[0]), r"indexes must be \(T,\)"),
    (lambda: Ranks.from_negatives(P, N, exclude=N), r"exclude must be bool \(B, M\)"),
    (lambda: Ranks.from_negatives(P, P, indexes=[0]), r"indexes must be \(T,\)"),
    (lambda: Ranks.from_negatives(P, [P, N]), r"negatives\[1\] must be \(M_1,\)"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_raises(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(IndexError, match=r"indexes must lie in .*; got 2$"):
        Ranks.from_negatives(P, P, indexes=[0, 2])
