"""Drop-ins of torchmetrics.retrieval against the installed torchmetrics, as in its own tests."""

import inspect
import itertools
import math
import pickle

import pytest
import torch
from torchmetrics import MetricCollection, retrieval as peer

from torchrankmetrics import RankCollection, RankMetricWarning, compare, evaluate
from torchrankmetrics.integrations import torchmetrics as own

pytestmark = pytest.mark.filterwarnings("ignore:relevant items of one query")
NAMES = [
    "RetrievalMRR",
    "RetrievalMAP",
    "RetrievalNormalizedDCG",
    "RetrievalPrecision",
    "RetrievalRecall",
    "RetrievalHitRate",
    "RetrievalFallOut",
    "RetrievalRPrecision",
    "RetrievalAUROC",
]
ACTIONS = ["neg", "pos", "skip"]
CUTS = [None, 1, 3, 10, 50]
every_class = pytest.mark.parametrize("name", NAMES)


def problem(seed=0, documents=600, queries=40):
    """Scores above 0 without ties, labels, indexes; queries without relevant or other documents."""
    generator = torch.Generator().manual_seed(seed)
    indexes = torch.randint(queries, (documents,), generator=generator) * 7
    preds = (torch.randperm(documents, generator=generator) + 1.0) / documents
    target = (torch.rand(documents, generator=generator) < 0.25).long()
    target[indexes < 5 * 7] = 0
    target[(indexes >= 5 * 7) & (indexes < 9 * 7)] = 1
    return preds, target, indexes


def options_of(name, cuts=CUTS):
    cuts = [{}] if name == "RetrievalRPrecision" else [{"top_k": k} for k in cuts]
    if name == "RetrievalPrecision":
        cuts = [cut | {"adaptive_k": yes} for cut, yes in itertools.product(cuts, (False, True))]
    return cuts


def value_of(module, name, options, batches):
    metric = getattr(module, name)(**options)
    for batch in batches:
        metric.update(*batch)
    return metric.compute()


def assert_equal(name, options, batches):
    found = value_of(own, name, options, batches)
    expected = value_of(peer, name, options, batches)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-7), options


@every_class
def test_the_constructor_is_that_of_torchmetrics(name):
    mine, theirs = (inspect.signature(getattr(one, name)).parameters for one in (own, peer))
    assert list(mine) == list(theirs)
    assert {key: one.default for key, one in mine.items()} == {
        key: one.default for key, one in theirs.items()
    }
    metric = getattr(own, name)()
    assert metric.higher_is_better == getattr(peer, name)().higher_is_better


@every_class
@pytest.mark.parametrize("action", ACTIONS)
def test_values_for_every_cut_aggregation_and_empty_query(name, action):
    whole = problem()
    batches = list(zip(*(column.split(250) for column in whole), strict=True))
    for cut, aggregation in itertools.product(
        options_of(name), ("mean", "median", "min", "max", torch.quantile)
    ):
        options = cut | {"empty_target_action": action, "aggregation": aggregation}
        if aggregation is torch.quantile:
            options["aggregation"] = lambda values, dim: values.quantile(0.3, dim=dim)
        assert_equal(name, options, batches)


@every_class
def test_shapes_types_and_ignored_labels(name):
    preds, target, indexes = problem(1)
    for cut in options_of(name, [None, 4]):
        for shape in ((600,), (30, 20), (5, 4, 30)):
            given = [column.view(shape) for column in (preds, target, indexes)]
            assert_equal(name, cut, [given])
        # torchmetrics 1.9.0 slices by a float
        floats = () if name == "RetrievalRPrecision" else (torch.float32,)
        for kind in (torch.bool, torch.int32, *floats):
            assert_equal(name, cut, [(preds, target.to(kind), indexes)])
        assert_equal(name, cut, [(preds.double(), target, indexes)])
        ignored = target.clone()
        ignored[::3] = -100
        for label in (-100, 1):
            given = (preds, ignored if label == -100 else target, indexes)
            assert_equal(name, cut | {"ignore_index": label}, [given])


def test_graded_labels_and_ties_of_ndcg_are_those_of_torchmetrics():
    preds, target, indexes = problem(2)
    labels = target * torch.arange(600) % 4
    for k in CUTS:
        for scores in (preds, (preds * 8).round()):
            assert_equal("RetrievalNormalizedDCG", {"top_k": k}, [(scores, labels, indexes)])
            assert_equal("RetrievalNormalizedDCG", {"top_k": k}, [(scores, labels / 3, indexes)])


@every_class
def test_an_empty_query_is_an_error_at_compute(name):
    metric = getattr(own, name)(empty_target_action="error")
    indexes = torch.tensor([0, 0, 1])
    full = torch.ones(3, dtype=torch.long)
    empty, whole = (full, 1 - full) if name == "RetrievalFallOut" else (1 - full, full)
    metric.update(torch.rand(3), empty, indexes)
    with pytest.raises(ValueError, match="for every index, got 2 without any; empty_target_action"):
        metric.compute()
    metric.update(torch.rand(3), whole, indexes)
    assert math.isfinite(metric.compute())


@every_class
def test_forward_is_the_value_of_the_batch_and_reset_forgets(name):
    mine, theirs = getattr(own, name)(), getattr(peer, name)()
    for batch in zip(*(column.split(200) for column in problem(3)), strict=True):
        assert mine(*batch).item() == pytest.approx(theirs(*batch).item(), rel=1e-5)
    assert mine.compute().item() == pytest.approx(theirs.compute().item(), rel=1e-5)
    copy = pickle.loads(pickle.dumps(mine)).clone()
    assert copy.compute() == mine.compute()
    mine.reset()
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert mine.compute().isnan()


def test_queries_that_are_all_skipped_are_zero():
    metric = own.RetrievalMRR(empty_target_action="skip")
    metric.update(torch.rand(2), torch.zeros(2, dtype=torch.long), torch.tensor([0, 1]))
    assert metric.compute() == 0


def job_values(batches):
    return [
        value_of(own, name, options | {"empty_target_action": action}, batches).item()
        for name in NAMES
        for options in options_of(name, [None, 3])
        for action in ("neg", "skip")
    ]


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_lists_that_two_processes_share_are_whole(pool):
    columns = problem(4, documents=200, queries=12)
    expected = [
        value_of(peer, name, options | {"empty_target_action": action}, [columns]).item()
        for name in NAMES
        for options in options_of(name, [None, 3])
        for action in ("neg", "skip")
    ]
    batches = list(zip(*(column.split(40) for column in columns), strict=True))
    for found in pool.run(job_values, [(batches[:2],), (batches[2:],)]):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_a_plain_collection_has_the_keys_and_values_of_torchmetrics():
    batches = list(zip(*(column.split(250) for column in problem(5)), strict=True))
    mine, theirs = (
        MetricCollection([getattr(module, name)() for name in NAMES]) for module in (own, peer)
    )
    for preds, target, indexes in batches:
        mine.update(preds, target, indexes=indexes)
        theirs.update(preds, target, indexes=indexes)
    found, expected = mine.compute(), theirs.compute()
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert found[key].item() == pytest.approx(value.item(), rel=1e-5)


def test_a_rank_collection_names_the_equal_metric():
    with pytest.raises(ValueError, match="MetricCollection, or the collection's own 'rr_at_5'"):
        RankCollection([own.RetrievalMRR(top_k=5)])


@every_class
def test_scores_below_zero_have_the_values_of_scores_above(name):
    # torchmetrics 1.9.0 counts relevant documents with them as missed, 1.7.0 does not
    preds, target, indexes = problem(8)
    for options in options_of(name, [None, 3]):
        found = value_of(own, name, options, [(preds - 0.5, target, indexes)])
        expected = value_of(peer, name, options, [(preds, target, indexes)])
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_ties_and_nan():
    one, same = torch.tensor([0, 1, 0]), torch.zeros(3)
    tied = torch.ones(3), one, same.long()
    assert value_of(own, "RetrievalMRR", {}, [tied]) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    nan = torch.tensor([0.5, math.nan, 0.1]), one, same.long()
    with pytest.warns(RankMetricWarning, match="NaN"):
        assert value_of(own, "RetrievalMRR", {}, [nan]) == pytest.approx(1 / 3)
    # the best of three tied documents at the limit is not known
    limit = torch.tensor([0.9, 0.5, 0.5, 0.5]), torch.tensor([0, 1, 0, 0]), torch.zeros(4).long()
    assert value_of(own, "RetrievalAUROC", {"top_k": 2}, [limit]) == 0


def test_bad_arguments_raise_before_the_state_changes():
    with pytest.raises(ValueError, match="adaptive_k must be True or False"):
        own.RetrievalPrecision(adaptive_k=1)
    with pytest.raises(ValueError, match=r"use torchmetrics\.retrieval\.RetrievalAUROC"):
        own.RetrievalAUROC(max_fpr=0.5)
    with pytest.raises(AttributeError, match="no attribute 'RetrievalERR'"):
        own.RetrievalERR  # noqa: B018
    metric = own.RetrievalMAP()
    three = torch.rand(3)
    for target, indexes, error, text in (
        (torch.tensor([0, 1]), torch.zeros(3).long(), ValueError, "must have one shape"),
        (
            torch.tensor([0, 2, 1]),
            torch.zeros(3).long(),
            ValueError,
            "target must be 0 or 1, got 2",
        ),
        (torch.tensor([0, 1, 1]), torch.zeros(3), TypeError, "indexes"),
    ):
        with pytest.raises(error, match=text):
            metric.update(three, target, indexes)
    assert metric.update_count == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"empty_target_action": "nan"}, "empty_target_action must be one of"),
        ({"ignore_index": "a"}, "ignore_index must be an int or None, got 'a'"),
        ({"top_k": 0}, "top_k must"),
        ({"aggregation": "sum"}, "aggregation must be one of"),
    ],
    ids=["empty_target_action", "ignore_index", "top_k", "aggregation"],
)
def test_bad_options_raise(options, text):
    with pytest.raises(ValueError, match=text):
        own.RetrievalRecall(**options)


@pytest.mark.parametrize(
    "name", ["RetrievalPrecisionRecallCurve", "RetrievalRecallAtFixedPrecision"]
)
def test_curves_are_imported_from_torchmetrics(name):
    with pytest.raises(ImportError, match=r"import it from torchmetrics\.retrieval"):
        getattr(own, name)


def test_repeats_of_a_sample_id_count_once():
    preds, target, indexes = problem(6)
    metric = own.RetrievalMAP(ignore_index=-100)
    for part in (torch.arange(400), torch.arange(200, 600)):
        metric.update(preds[part], target[part], indexes[part], sample_id=part)
    assert metric.compute() == value_of(own, "RetrievalMAP", {}, [(preds, target, indexes)])


def test_tables_have_chance_adjusted_values_intervals_and_tests():
    preds, target, indexes = problem(7)
    first, second = own.RetrievalMAP(), own.RetrievalMAP()
    first.update(preds, target, indexes)
    second.update(preds + target, target, indexes)
    options = {"metrics": ["ap", "adjusted_ap"], "empty_queries": "zero"}
    values = evaluate(first.table(), **options)
    assert values["ap"] == pytest.approx(first.compute().item(), rel=1e-6)
    assert values["adjusted_ap"] < values["ap"]
    interval = first.table().confidence_intervals(first)["ap"]
    assert interval.low < values["ap"] < interval.high
    of_queries = [one.table().query_values(first) for one in (second, first)]
    found = compare(*of_queries)
    difference = second.compute() - first.compute()
    assert found.difference == pytest.approx(difference.item(), rel=1e-6)
    assert found.p_value < 0.01
