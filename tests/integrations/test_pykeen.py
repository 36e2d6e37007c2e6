"""Our evaluator against PyKEEN's, alone and in loops and pipelines.

Compared are names, arguments and values; NaN never helps.
"""

import json
import math

import pytest
import torch

from pykeen_lookup import QUIET, Lookup, assert_parity, evaluated, splits_of
from scripts import EXAMPLES, fork_script
from torchrankmetrics import (
    KnownTriples,
    RankDefinition,
    RankMetric,
    RankMetricWarning,
    RankTable,
    evaluate,
)

pytest.importorskip(
    "pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'"
)

from pykeen import evaluation as peers
from pykeen.datasets import get_dataset
from pykeen.evaluation import RankBasedEvaluator, evaluator_resolver
from pykeen.pipeline import pipeline
from pykeen.trackers import PythonResultTracker
from pykeen.triples import TriplesFactory

from torchrankmetrics.integrations.pykeen import (
    RankCollectionEvaluator,
    RankResults,
    SampledRankCollectionEvaluator,
    early_stopping,
    known_triples,
    rank_table,
)


@pytest.fixture(scope="module", params=["nations", "kinships"])
def dataset(request):
    return get_dataset(dataset=request.param)


def both(dataset, **options):
    """Results of PyKEEN's evaluator and of ours on the test triples, with the evaluators."""
    evaluators = RankBasedEvaluator(clear_on_finalize=False), RankCollectionEvaluator()
    return [(evaluated(dataset, evaluator, **options), evaluator) for evaluator in evaluators]


def names(evaluator):
    return {key.metric for key in evaluator.computed()}


def test_every_key_has_the_value_of_pykeen_and_the_tables_the_same_ranks(dataset):
    (values, theirs), (ours, evaluator) = both(dataset)
    assert values.get_metric("both.optimistic.mr") < values.get_metric("both.pessimistic.mr")
    assert assert_parity(values, ours) == 225
    test = splits_of(dataset)[2]
    table = rank_table(theirs, test)
    assert table.compact().rows.equal(ours.table.rows)
    assert table.rows.equal(rank_table(theirs, test.numpy()).rows)
    assert not rank_table(theirs).has_groups()
    assert evaluator.collection.table().rows.equal(ours.table.rows)
    assert rank_table(evaluator, test).rows.equal(rank_table(evaluator).rows)
    with pytest.raises(
        ValueError,
        match=rf"triples must be the {len(test)} that were evaluated, got {len(test) - 2}",
    ):
        rank_table(evaluator, test[2:])
    for side in ("head", "tail"):
        part = table.select(side=side)
        assert part.sample_id.tolist() == list(range(len(test)))
        assert part.ranks.num_candidates.equal(known_triples(dataset).num_candidates(test, side))
        assert part.group.equal(test[:, 1])


def test_raw_evaluation_and_one_side(nations):
    model, test = Lookup(nations), splits_of(nations)[2]
    result = RankCollectionEvaluator(["mr", "count"], filtered=False).evaluate(
        model, test, targets=("tail",), **QUIET
    )
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
    (theirs, _), (ours, evaluator) = both(nations, **options)
    assert_parity(theirs, ours)
    assert ours.table.ranks.num_candidates.max() <= len(entities)
    test = splits_of(nations)[2]
    with pytest.raises(
        ValueError, match="must contain the head of every evaluated triple; 1 is missing"
    ):
        evaluator.evaluate(
            Lookup(nations),
            test,
            restrict_entities_to=[0, 13],
            do_time_consuming_checks=False,
            **QUIET,
        )
    assert_parity(*(result for result, _ in both(nations)))


def test_a_diverged_model_ranks_last(nations):
    model = Lookup(nations)
    model.scores[:] = math.nan
    with pytest.warns(RankMetricWarning, match="NaN"):
        result = evaluated(nations, RankCollectionEvaluator(), model)
    ranks = result.table.ranks
    assert ranks.optimistic.equal(ranks.num_candidates)
    assert ranks.num_candidates.double().mean() == pytest.approx(7.955, abs=1e-3)
    assert result.get_metric("amri") == pytest.approx(-1)


def test_evaluators_without_ranks_raise(nations):
    evaluator = RankBasedEvaluator()
    evaluated(nations, evaluator)
    with pytest.raises(ValueError, match="clear_on_finalize=False"):
        rank_table(evaluator)
    theirs, nan = RankBasedEvaluator(clear_on_finalize=False), Lookup(nations)
    nan.scores[:20] = math.nan
    theirs.evaluate(nan, splits_of(nations)[2], **QUIET)
    # better than the best
    assert min(part.min() for part in theirs.ranks["head", "pessimistic"]) == 0
    with pytest.raises(ValueError, match="num_candidates must be at least 1"):
        rank_table(theirs)


@pytest.mark.filterwarnings("ignore:the look-up of known positives")
def test_known_triples_are_those_of_all_sources_without_inverses(nations):
    train, valid, test = splits_of(nations)
    ids = {"entity_to_id": nations.entity_to_id, "relation_to_id": nations.relation_to_id}
    inverse = TriplesFactory.from_labeled_triples(
        nations.training.triples, **ids, create_inverse_triples=True
    )
    for sources, splits in (
        ((nations,), (train, valid, test)),
        ((nations.training, nations.validation), (train, valid)),
        ((nations.training,), (train,)),
        ((inverse,), (train,)),
    ):
        expected = KnownTriples(*splits, num_entities=14)
        for side in ("head", "tail"):
            assert (
                known_triples(*sources)
                .num_candidates(test, side)
                .equal(expected.num_candidates(test, side))
            )


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ("hits@5", {"hits_at_5"}),
        (["z_hits_at_k"], {"z_hits_at_10", "z_hits_at_k"}),
        (
            ["hits@10", "tie_rate", RankMetric("mr")],
            {"hits_at_10", "tie_rate", "arithmetic_mean_rank"},
        ),
        (["arithmetic_mean_rank", "p_mr"], {"arithmetic_mean_rank", "p_mr"}),
        ({"mine": "hits@3", "other": "mr"}, {"mine", "other"}),
        ([RankMetric(RankDefinition("dcg", f=lambda r: 1 / (1 + r).log2()))], {"dcg"}),
    ],
)
def test_metrics_are_taken_in_every_form(metrics, expected):
    assert names(RankCollectionEvaluator(metrics=metrics)) == expected


def test_every_metric_of_pykeen_is_taken_by_its_key_and_the_evaluators_by_their_names():
    assert evaluator_resolver.lookup("rankcollection") is RankCollectionEvaluator
    assert evaluator_resolver.lookup("sampledrankcollection") is SampledRankCollectionEvaluator
    theirs = {metric.key for metric in RankBasedEvaluator().metrics}
    every = names(RankCollectionEvaluator())
    assert every >= theirs
    assert names(RankCollectionEvaluator(sorted(theirs))) >= theirs
    assert names(RankCollectionEvaluator(["p_mr"], add_defaults=True)) == every | {"p_mr"}


IDS = torch.zeros(201, 3, dtype=torch.int64)


def sampled(dataset, metrics=("mr",), **options):
    return SampledRankCollectionEvaluator(
        dataset.testing, metrics, **{"num_negatives": 2, **options}
    )


def of_training(dataset):
    sampled(dataset).evaluate(Lookup(dataset), dataset.training.mapped_triples, **QUIET)


def relations(evaluator):
    evaluator.process_scores_(IDS[:2], "relation", torch.rand(2, 55))


def other_numbers(dataset):
    known_triples(
        dataset.training, TriplesFactory.from_labeled_triples(dataset.validation.triples[:50])
    )


RESTRICTED = {"restrict_entities_to": list(range(14))}
BAD = [
    (lambda _: RankCollectionEvaluator(["mmr"]), ValueError, "unknown metric 'mmr'; did you mean"),
    (
        lambda _: RankCollectionEvaluator(["hits_at_k"]),
        ValueError,
        "needs a number of first places, .* hits_at_10",
    ),
    (
        lambda _: RankCollectionEvaluator([torch.nn.Linear]),
        TypeError,
        "or a name such as 'mrr', got type",
    ),
    (
        lambda _: RankCollectionEvaluator(3),
        TypeError,
        "metrics must be names, RankMetric instances or a dict, got int",
    ),
    (lambda _: RankCollectionEvaluator([]), ValueError, "metrics is empty"),
    (lambda _: RankCollectionEvaluator().finalize(), ValueError, "no ranks: call evaluate first"),
    (
        lambda _: rank_table(RankCollectionEvaluator()),
        ValueError,
        "evaluator has no ranks; call evaluate first",
    ),
    (
        lambda _: rank_table(peers.ClassificationEvaluator()),
        TypeError,
        "a RankBasedEvaluator or .*, got ClassificationEval",
    ),
    (lambda _: known_triples(), ValueError, "sources is empty"),
    (
        lambda d: known_triples(d.training.mapped_triples),
        TypeError,
        "sources must be triples factories .*, got Tensor",
    ),
    (
        lambda d: known_triples(d, None),
        TypeError,
        "sources must be triples factories .*, got NoneType",
    ),
    (
        lambda d: RankCollectionEvaluator(known=d.training.mapped_triples),
        TypeError,
        "sources must be triples fact",
    ),
    (
        lambda d: RankCollectionEvaluator(filtered=False, known=d),
        ValueError,
        "known must be None if filtered is False",
    ),
    (
        lambda d: sampled(d, num_negatives=15),
        ValueError,
        "num_negatives must be an int of at least 1 and below 15, got 15",
    ),
    (lambda d: sampled(d, num_negatives=0), ValueError, "got 0"),
    (
        lambda d: sampled(d, head_negatives=IDS),
        ValueError,
        "[Ee]ither both, head and tail negatives",
    ),
    (
        lambda d: sampled(d, head_negatives=IDS, tail_negatives=IDS[1:]),
        ValueError,
        r"tail_.* must be \(201, M\)",
    ),
    (other_numbers, ValueError, "sources must number their triples alike"),
    (of_training, ValueError, "evaluation_factory must contain all triples evaluated"),
    (
        lambda d: evaluated(d, sampled(d), **RESTRICTED),
        ValueError,
        "restrict_entities_to does not go with sampled",
    ),
    (
        lambda d: relations(sampled(d)),
        ValueError,
        "are sampled for head and tail; got target 'relation'",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_arguments_raise(nations, call, error, message):
    with pytest.raises(error, match=message):
        call(nations)


def test_macro_average_is_by_query_as_in_pykeen(nations):
    theirs, ours = peers.MacroRankBasedEvaluator(), RankCollectionEvaluator(average="macro")
    theirs, result = evaluated(nations, theirs), evaluated(nations, ours)
    differ = {
        "variance",
        "standard_deviation",
        "median_absolute_deviation",
        "inverse_median_rank",
        "count",
    }
    theirs.data = {key: value for key, value in theirs.data.items() if key.metric not in differ}
    assert assert_parity(theirs, result) == 9 * 20
    micro = evaluated(nations, RankCollectionEvaluator())
    assert abs(micro.get_metric("mrr") - result.get_metric("mrr")) > 1e-3
    tails, heads = (
        len(splits_of(nations)[2][:, columns].unique(dim=0)) for columns in ([0, 1], [1, 2])
    )
    assert len(result.table.select(side="tail").group.unique()) == tails
    assert len(result.table.group.unique()) == tails + heads


def test_sampled_evaluation_has_the_values_of_pykeen(nations):
    train, valid, _ = splits_of(nations)
    filtering = {"additional_filter_triples": [train, valid]}
    theirs = peers.SampledRankBasedEvaluator(
        nations.testing, num_negatives=3, clear_on_finalize=False, **filtering
    )
    negatives = {f"{side}_negatives": ids for side, ids in theirs.negative_samples.items()}
    ours = evaluator_resolver.make(
        "sampledrankcollection", evaluation_factory=nations.testing, **negatives
    )
    with pytest.warns(RankMetricWarning, match="undefined"):  # hits at 5 and 10 among four
        result = evaluated(nations, ours)
    expected = evaluated(nations, theirs)
    for key, value in expected.data.items():
        if not math.isnan(result.data[key]):
            assert result.data[key] == pytest.approx(value, rel=1e-5, abs=2e-4), key
    table = rank_table(theirs, splits_of(nations)[2])
    assert table.compact().rows.equal(result.table.rows)
    assert result.table.to_numpy()["sampled"].all()
    assert "sampled" in str(result.table.summary())
    lists = {side: ids.tolist() for side, ids in negatives.items()}
    assert sampled(nations, **lists).negative_samples["tail"].equal(negatives["tail_negatives"])


def one_candidate(evaluator):
    """An evaluation with zero variance under the null."""
    for side in ("head", "tail"):
        evaluator.process_scores_(IDS[:4], side, *torch.zeros(3, 4, 1))
    return evaluator.finalize()


@pytest.mark.filterwarnings("ignore:each ranking task")  # has one candidate
def test_undefined_values_are_nan_and_absent_from_json(nations):
    theirs = one_candidate(RankBasedEvaluator()).to_flat_dict()
    with pytest.warns(RankMetricWarning, match="undefined"):
        result = one_candidate(RankCollectionEvaluator())
    ours = result.to_flat_dict()
    undefined = {key for key, value in ours.items() if math.isnan(value)}
    assert {key.split(".")[2] for key in undefined & theirs.keys()} == {
        *(
            f"{view}_{name}"
            for view in ("z", "adjusted")
            for name in ("hits_at_k", "inverse_harmonic_mean_rank")
        ),
        *("z_arithmetic_mean_rank", "adjusted_arithmetic_mean_rank_index"),
        *("z_geometric_mean_rank", "adjusted_geometric_mean_rank_index"),
    }
    assert all(ours[key] == value for key, value in theirs.items() if key not in undefined)
    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    flat = {
        f"{s}.{r}.{m}": x
        for s, rs in written.items()
        for r, ms in rs.items()
        for m, x in ms.items()
    }
    assert flat == {key: value for key, value in ours.items() if key not in undefined}
    defined = evaluated(nations, RankCollectionEvaluator())
    assert len(defined.to_df()) == sum(
        len(ms) for rs in defined.to_dict().values() for ms in rs.values()
    )


def run_pipeline(**options):
    arguments = {"dataset": "nations", "model": "distmult", "model_kwargs": {"embedding_dim": 4}}
    arguments |= {
        "training_kwargs": {"num_epochs": 2, "use_tqdm": False},
        "evaluation_kwargs": QUIET,
    }
    return pipeline(**(arguments | {"random_seed": 0, "device": "cpu"} | options))


def loop_of(dataset, evaluator, model, **options):
    train, valid, _ = splits_of(dataset)
    options = {"additional_filter_triples": [train, valid], **options}
    return peers.LCWAEvaluationLoop(dataset.testing, evaluator=evaluator, model=model, **options)


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
        # readable until the next batch
        assert evaluator.collection.table().rows.equal(fresh.table.rows)
    with pytest.raises(ValueError, match="no ranks: call evaluate first"):
        evaluator.finalize()
    evaluator.process_scores_(
        IDS[:5], "tail", torch.rand(5, 14), dense_positive_mask=torch.zeros(5, 14)
    )
    assert evaluator.collection.table().num_tasks == 5
    assert evaluator.finalize().get_metric("count") == 5


@pytest.mark.slow
@pytest.mark.trains
def test_the_loop_callback_logs_every_epoch_by_itself(nations):
    runs = {}
    for evaluator, kwargs in (
        ("rankbased", {}),
        ("rankcollection", {"known": known_triples(nations)}),
    ):
        tracker = PythonResultTracker()
        callback = {
            "factory": nations.testing,
            "prefix": "test",
            "evaluator": evaluator,
            "evaluator_kwargs": kwargs,
        }
        callback["additional_filter_triples"] = [nations.training, nations.validation]
        training = {"num_epochs": 3, "use_tqdm": False, "callbacks": "evaluation-loop"}
        run_pipeline(
            result_tracker=tracker,
            training_kwargs=training | {"callbacks_kwargs": callback | QUIET},
        )
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
    for known in (
        nations,
        known_triples(nations),
        [nations.training, nations.validation, nations.testing],
    ):
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
    with (
        pytest.warns(RankMetricWarning, match=columns),
        pytest.warns(RankMetricWarning, match=ranks),
    ):
        helped = loop.evaluate(**QUIET).get_metric("mrr")
    with pytest.warns(RankMetricWarning, match="NaN scores"):
        right = loop_of(
            nations, RankCollectionEvaluator(["mrr"], known=nations), model, **tails
        ).evaluate(**QUIET)
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
    with pytest.raises(
        ValueError, match="known must contain all filtered triples, the evaluated ones included"
    ):
        loop_of(nations, RankCollectionEvaluator(known=nations.training), model).evaluate(**QUIET)
    larger = KnownTriples(torch.cat(splits_of(nations)), num_entities=20)
    evaluator = RankCollectionEvaluator(known=larger)
    with pytest.raises(
        ValueError, match="known has 20 entities, but the head scores have 14 columns"
    ):
        loop_of(nations, evaluator, model).evaluate(**QUIET)
    with pytest.raises(
        ValueError, match="known has 20 entities, but the head scores have 14 columns"
    ):
        evaluated(nations, evaluator, **RESTRICTED)
    assert evaluator.collection.table().num_tasks == 0


class WithRelations(Lookup):
    """Scores of relations too."""

    def predict(self, hrt_batch, target, **_):
        h, _, t = hrt_batch.T
        return (
            self.scores[:, h, t].T.clone()
            if target == "relation"
            else super().predict(hrt_batch, target)
        )


@pytest.mark.parametrize(
    ("targets", "known"),
    [(("relation",), False), (("head", "relation", "tail"), True), (("tail", "relation"), True)],
)
def test_relation_prediction_has_the_keys_and_values_of_pykeen(nations, targets, known):
    theirs_by = RankBasedEvaluator(clear_on_finalize=False)
    ours_by = RankCollectionEvaluator(known=nations if known else None)
    loops = (
        loop_of(nations, one, WithRelations(nations), targets=targets)
        for one in (theirs_by, ours_by)
    )
    theirs, ours = (loop.evaluate(**QUIET) for loop in loops)
    assert assert_parity(theirs, ours) == 75 * (1 + len(targets))
    assert {key.side for key in ours.data} == {"both", *targets}
    assert ours.get_metric("relation.mrr") == ours.get_metric(
        "relation.realistic.inverse_harmonic_mean_rank"
    )
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
    assert sides == (
        [*sorted(targets, key=["head", "tail", "relation"].index), "both"]
        if targets[1:]
        else [*targets]
    )


@pytest.mark.slow
@pytest.mark.trains
def test_pipeline_with_early_stopping(nations, tmp_path):
    metric, key = "tail.best.gmr", "tail.optimistic.geometric_mean_rank"
    kwargs = early_stopping(metric, frequency=1, patience=1, relative_delta=0.0)
    assert kwargs["metric"] == key
    assert kwargs["larger_is_better"] is False
    assert early_stopping("z_hits_at_3")["larger_is_better"] is True
    seen = []
    kwargs["result_callbacks"] = [
        lambda stopper, result, epoch: seen.append(stopper.evaluator.collection.table())
    ]
    evaluator = RankCollectionEvaluator()
    kwargs["best_model_path"] = tmp_path / "best.pt"
    result = run_pipeline(evaluator=evaluator, stopper="early", stopper_kwargs=kwargs)
    history = result.stopper.results
    assert len(history) == len(seen)
    for table, value in zip(seen, history, strict=True):
        assert value == pytest.approx(
            next(iter(evaluate(table, metrics=[metric]).values())), rel=1e-12
        )
    assert result.stopper.best_metric == min(history)
    table = result.metric_results.table
    assert table.rows.equal(evaluator.collection.table().rows)
    assert result.get_metric("mrr") == pytest.approx(
        evaluate(table, metrics=["mrr"])["mrr"], rel=1e-12
    )
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
    command = (
        EXAMPLES / "pykeen_pipeline.py",
        "--dataset",
        "nations",
        "--epochs",
        "3",
        "--trials",
        "1",
    )
    printed = fork_script(*command, cwd=tmp_path)
    assert "both.realistic.inverse_harmonic_mean_rank" in printed
    assert "AMRI of the training triples, every 3 epochs: 0." in printed
    assert "2000 ranks among" in printed
    assert "1 trials" in printed
