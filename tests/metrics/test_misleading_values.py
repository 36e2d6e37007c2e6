"""Warnings of right values that mislead: masks by -inf, ties that decide, nothing to evaluate."""

import warnings

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, RankMetric, RankMetricWarning, Ranks, evaluate
from torchrankmetrics.integrations.trec import evaluate_run, rank_run

N = 14  # candidates, as in Nations
TARGET = torch.arange(40) % N
CONSTANT = torch.zeros(40, N)
TIES = (
    r"100% of the targets tie .* order decides about hits_at_10: it is 1\.0000 with optimistic and "
    r"0\.0000 with pessimistic ranks \(0\.7143 expected"
)


def masked_scores(mask=-torch.inf, dtype=torch.float32):
    scores = torch.randn(40, N, generator=torch.Generator().manual_seed(0)).to(dtype)
    known = torch.zeros(40, N, dtype=torch.bool)
    known[:, ::2] = True
    known[torch.arange(40), TARGET] = False
    return scores.masked_fill(known, mask), known


def nothing_is_warned(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return not caught


def filled(metrics, *batches, **arguments):
    collection = RankCollection(metrics)
    for scores in batches:
        collection.update(scores, TARGET, **arguments)
    return collection


class TestMasks:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_inf_in_place_of_exclude_is_a_warning_where_chance_matters(self, dtype):
        scores, _ = masked_scores(dtype=dtype)
        match = r"26 of the first 56 scores are -inf: .* num_candidates, .* exclude=, True"
        with pytest.warns(RankMetricWarning, match=match):
            filled(["mrr", "z_mrr"], scores)
        with pytest.warns(RankMetricWarning, match=match):
            RankMetric("mrr", view="p_value").update(scores, TARGET)
        with pytest.warns(RankMetricWarning, match=match):
            evaluate(scores, TARGET, "adjusted_mrr")

    def test_an_array_is_read_too(self):
        with pytest.warns(RankMetricWarning, match="scores are -inf"):
            filled("z_mrr", masked_scores()[0].numpy())

    def test_base_values_excluded_candidates_and_later_batches_do_not_warn(self):
        scores, known = masked_scores()
        plain = masked_scores(0.0)[0]
        assert nothing_is_warned(lambda: filled(["mrr", "hits@3"], scores))
        assert nothing_is_warned(lambda: filled("z_mrr", scores, exclude=known))
        # the first batch is a sample: a model may have an impossible candidate here and there
        assert nothing_is_warned(lambda: filled("z_mrr", plain, scores))
        assert nothing_is_warned(lambda: filled("z_mrr", -plain.long()))

    def test_a_metric_warns_once_whatever_the_epochs(self):
        scores, _ = masked_scores()
        with pytest.warns(RankMetricWarning) as caught:
            collection = filled("z_mrr", scores, scores)
        assert len(caught) == 1
        collection.reset()
        assert nothing_is_warned(lambda: collection.update(scores[5:], TARGET[5:]))
        assert nothing_is_warned(lambda: collection(scores[:5], TARGET[:5]))


class TestTies:
    @pytest.mark.parametrize("metrics", ["hits@10", "adjusted_hits@10", ["mr", "z_hits@10"]])
    def test_a_constant_scorer_is_a_warning_with_the_values_of_other_orders(self, metrics):
        collection = filled(metrics, CONSTANT)
        with pytest.warns(RankMetricWarning, match=TIES):
            collection.compute()
        with pytest.warns(RankMetricWarning, match=TIES):
            evaluate(CONSTANT, TARGET, metrics)
        with pytest.warns(RankMetricWarning, match=TIES):
            evaluate(Ranks([1] * 40, [N] * 40, N), metrics=metrics)

    def test_a_metric_warns_once(self):
        metric = RankMetric("hits@10")
        metric.update(CONSTANT, TARGET)
        with pytest.warns(RankMetricWarning, match=TIES):
            metric.compute()
        metric.update(CONSTANT[:20], TARGET[:20])
        assert nothing_is_warned(metric.compute)

    def test_no_warning_if_few_tie_or_nothing_depends_on_it_or_it_is_shown(self):
        few = torch.rand(40, N, generator=torch.Generator().manual_seed(1))
        few[:2] = 0
        assert nothing_is_warned(filled("hits@10", few).compute)
        assert nothing_is_warned(filled(["mr", "count", "tie_rate", "hits@20"], CONSTANT).compute)
        # the expectation over orders is the default of metrics of queries
        assert nothing_is_warned(filled(["rr", "success@10"], CONSTANT).compute)
        assert nothing_is_warned(filled("pessimistic_hits@10", CONSTANT).compute)
        types = ("realistic", "pessimistic")
        assert nothing_is_warned(lambda: evaluate(CONSTANT, TARGET, "hits@10", rank_types=types))
        # realistic ranks alone are not known to tie
        assert nothing_is_warned(lambda: evaluate([1.5, 2.5] * 20, N, "hits@1"))


class TestNothing:
    NOTHING = "0 ranking tasks were given, so that values are NaN"

    @pytest.mark.parametrize("ranks", [[], np.array([]), Ranks([], None, 5)])
    def test_evaluate(self, ranks):
        number = None if isinstance(ranks, Ranks) else 10
        with pytest.warns(RankMetricWarning, match=self.NOTHING) as caught:
            assert np.isnan(evaluate(ranks, number, ["mrr"])["mrr"])
        assert len(caught) == 1

    @pytest.mark.parametrize("make", [RankMetric, RankCollection])
    def test_empty_updates(self, make):
        metric = make("mrr")
        metric.update(torch.zeros(0, 5), torch.zeros(0).long())
        with pytest.warns(RankMetricWarning, match=self.NOTHING) as caught:
            metric.compute()
        assert len(caught) == 1
        metric.update(torch.rand(1, 5), torch.zeros(1).long())  # such as a last batch
        assert nothing_is_warned(metric.compute)

    @pytest.mark.parametrize("function", [rank_run, lambda *files: evaluate_run(*files, "rr")])
    @pytest.mark.parametrize("qrels", [{}, {"q": {}}, {"q": {"d": 0}}])
    def test_qrels_without_a_relevant_document(self, function, qrels):
        with pytest.warns(RankMetricWarning) as caught:
            function(qrels, {"q": {"d": 1.0}})
        (only,) = caught
        assert f"no relevant document in any of {len(qrels)} queries" in str(only.message)

    @pytest.mark.parametrize(
        "run", [{"q": {"d": 1.0}, "p": {}}, {"q": {"d": 1.0}}], ids=["empty list", "no list"]
    )
    def test_a_query_with_an_empty_list_counts_as_one_without_a_list(self, run):
        qrels = {"q": {"d": 1}, "p": {"d": 1}}
        with pytest.warns(RankMetricWarning, match="1 queries have no list in run.* 'p'"):
            assert evaluate_run(qrels, run, "rr") == {"rr": 0.5}
