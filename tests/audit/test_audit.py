"""The audit: cases agree with brute force, ours passes every check, a fault fails its own.

Also the committed results.
"""

import json
import math
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch

import reference_ranks
from scripts import ROOT, load_script
from torchrankmetrics import RankCollection, evaluate, rank_scores
from torchrankmetrics.audit import CHECKS, MAX_CANDIDATES, assert_evaluator, audit
from torchrankmetrics.audit.cases import CASES, largest

SMALL = 100_000  # candidates; cases of 2^24 have tests of their own


def realistic(scores, target, exclude):
    return rank_scores(scores, target, exclude=exclude).realistic


def metrics_of(scores, target, exclude, names=("mr", "mrr", "hits@3", "amri")):
    return evaluate(rank_scores(scores, target, exclude=exclude), metrics=list(names))


def collected(scores, target, exclude):
    metric = RankCollection()
    metric.update(scores, target, exclude=exclude)
    return metric.compute()


def failing(evaluator, **options):
    return {finding.check for finding in audit(evaluator, max_candidates=SMALL, **options).failures}


@pytest.mark.parametrize("name", CASES)
def test_ranks_of_cases_are_those_of_brute_force(name):
    for case in CASES[name]:
        if case.scores.shape[1] > 2000:
            continue
        lines = reference_ranks.lines(case.ranks)
        for i, row in enumerate(case.scores.double().tolist()):
            out = () if case.exclude is None else case.exclude[i].nonzero().flatten().tolist()
            low, high, count, _ = reference_ranks.rank(row, int(case.target[i]), out)
            if case.has_nan_target:
                assert lines[i][2] == count
                assert lines[i][0] <= low <= high <= lines[i][1] == count
            else:
                assert lines[i] == (low, high, count), (str(case), i)


def test_large_cases_have_the_ranks_of_their_notes():
    wide, half = CASES["integer_overflow"][-1], CASES["float_counters"][0]
    for case, rank in ((largest(), 2**24 + 3), (wide, 68_000), (half, 703)):
        assert case.ranks.optimistic.tolist() == case.ranks.pessimistic.tolist() == [rank]
    assert float(torch.tensor(float(2**24 + 3), dtype=torch.float32)) != 2**24 + 3


@pytest.mark.parametrize("rule", ["optimistic", "realistic", "pessimistic"])
def test_our_ranks_pass_every_check_by_each_rule(rule):
    report = audit(
        lambda scores, target, exclude: getattr(rank_scores(scores, target, exclude=exclude), rule),
        max_candidates=MAX_CANDIDATES if rule == "realistic" else SMALL,
    )
    assert report.ties == (rule,)
    skipped = {finding.check for finding in report.findings if finding.status == "skipped"}
    assert skipped == {"values", "k_above_candidates"}
    assert {finding.status for finding in report.findings} == {"passed", "skipped"}


@pytest.mark.parametrize(
    "evaluator",
    [
        collected,
        metrics_of,
        lambda s, t, e: evaluate(s, t, exclude=e, metrics=["auc", "gmr", "p_mr", "z_mrr", "hmr"]),
    ],
)
def test_our_metrics_pass_every_check(evaluator):
    report = audit(evaluator, max_candidates=MAX_CANDIDATES if evaluator is collected else SMALL)
    assert not report.failures
    assert report.ties[0] == "realistic"


@pytest.mark.parametrize("rule", ["optimistic", "realistic", "pessimistic", "expected"])
def test_the_rule_is_inferred_from_values(rule):
    def plain_keys(scores, target, exclude):
        values = evaluate(
            scores, target, exclude=exclude, metrics=["mr", "mrr", "hits@10"], rank_types=[rule]
        )
        return dict(zip(("mr", "mrr", "hits@10", "loss"), [*values.values(), 1.0], strict=True))

    report = audit(plain_keys, max_candidates=SMALL)
    assert report.ties == (rule,)
    assert not report.failures
    assert report["values"].message == "not compared: loss"
    # a rule that is given: what a name alone could not tell apart
    if rule in ("realistic", "expected"):
        assert failing(plain_keys, ties=rule) == set()
        assert failing(plain_keys, ties="pessimistic") == {"ties"}


def test_metrics_that_cannot_tell_rules_apart_say_so():
    report = audit(
        lambda s, t, e: {"hits@1": metrics_of(s, t, e, ["hits@1"])["hits_at_1"]},
        max_candidates=SMALL,
    )
    assert report.ties == ("realistic", "pessimistic")
    assert not report.failures


# evaluators with one fault each


def ieee_comparisons(scores, target, exclude):
    better = scores > scores.gather(1, target[:, None])
    if exclude is not None:
        better &= ~exclude
    return 1 + better.sum(1)


def nan_truth_first(scores, target, exclude):
    is_nan = scores.gather(1, target[:, None])[:, 0].isnan() & ~scores.isnan().all(1)
    return torch.where(is_nan, 1.0, realistic(scores, target, exclude))


def divided_by_all(scores, target, exclude):
    ranks = rank_scores(scores, target, exclude=exclude)
    values = evaluate(ranks, metrics=["mr", "hits@3"])
    return values | {
        "amri": 1 - 2 * (values["mr"] - 1) / ranks.num_candidates.double().mean().item()
    }


def unfiltered_chance(scores, target, exclude):
    values = metrics_of(scores, target, exclude)
    return values | {"amri": 1 - 2 * (values["mr"] - 1) / max(scores.shape[1] - 1, 1)}


def sorts_ties_by_index(scores, target, exclude):
    tied = scores == scores.gather(1, target[:, None])
    if exclude is not None:
        tied &= ~exclude
    before = (tied & (torch.arange(scores.shape[1]) < target[:, None])).sum(1)
    return rank_scores(scores, target, exclude=exclude).optimistic + before


def mutates_scores(scores, target, exclude):
    ranks = realistic(scores, target, exclude)
    if exclude is not None:
        scores[exclude] = -math.inf
    return ranks


def drops_listed_target(scores, target, exclude):
    if exclude is None:
        return realistic(scores, target, exclude)
    last = torch.full_like(target, scores.shape[1])
    return torch.where(
        exclude.gather(1, target[:, None])[:, 0], last, realistic(scores, target, exclude)
    )


def filled(scores, target, exclude, value):
    return (
        scores
        if exclude is None
        else torch.where(exclude.scatter(1, target[:, None], False), value, scores)
    )


def masks_by_zero(scores, target, exclude):
    if bool(scores.isfinite().all() & (scores.abs() < 1e9).all()):
        return realistic(filled(scores, target, exclude, 0.0), target, None)
    return realistic(scores, target, exclude)


def applies_sigmoid(scores, target, exclude):
    if scores.dtype == torch.float32 and scores.shape[1] <= 3 and not (scores.abs() > 1e9).any():
        scores = scores.sigmoid()
    return realistic(scores, target, exclude)


def breaks_ties_at_random(scores, target, exclude):
    noise = torch.rand(scores.shape) / 1e4
    return realistic(
        scores + noise if noise.shape[1] < 10 and scores.dtype == torch.bfloat16 else scores,
        target,
        exclude,
    )


def last_chunk_dropped(scores, target, exclude):
    whole = max(4, scores.shape[1] // 4 * 4)
    if scores.shape[1] > whole and int(target.max()) < whole:
        return realistic(scores[:, :whole], target, None if exclude is None else exclude[:, :whole])
    return realistic(scores, target, exclude)


def infinities_out(scores, target, exclude):
    out = (scores == math.inf).scatter(1, target[:, None], False)
    return realistic(scores, target, out if exclude is None else exclude | out)


def one_column_fails(scores, target, exclude):
    if scores.shape[1] == 1:
        raise IndexError("no negatives")
    return realistic(scores, target, exclude)


def drops_last_batch(scores, target, exclude):
    whole = len(target) // 32 * 32 if len(target) > 32 else len(target)
    return metrics_of(scores[:whole], target[:whole], None if exclude is None else exclude[:whole])


def unique_rows(scores, target, exclude):
    rows = torch.cat([scores.double(), target[:, None].double()], 1).unique(dim=0)
    if exclude is None and len(target) > 2 and not rows.isnan().any():
        return metrics_of(rows[:, :-1], rows[:, -1].long(), None)
    return metrics_of(scores, target, exclude)


class Accumulates:
    def __init__(self):
        self.metric = RankCollection()

    def __call__(self, scores, target, exclude):
        self.metric.update(scores, target, exclude=exclude)
        return self.metric.compute()


FAULTS = [  # the checks that fail, and an evaluator of scores, target and exclude
    ("nan_truth nan_candidates all_nan", ieee_comparisons),
    ("nan_truth", nan_truth_first),
    ("plain_ranks", lambda s, t, e: realistic(s, t, e) - 1),
    ("values", divided_by_all),
    ("filter", unfiltered_chance),
    ("filter", lambda s, t, e: realistic(s, t, None)),
    ("ties", sorts_ties_by_index),
    (
        "constant_scorer",
        lambda s, t, e: realistic(s, t, e).where((s != s[:, :1]).any(1) | (s.shape[1] < 3), 1.0),
    ),
    ("scores_unmodified", mutates_scores),
    ("own_target_in_filter", drops_listed_target),
    ("filter_by_finite_values", lambda s, t, e: realistic(filled(s, t, e, -math.inf), t, None)),
    ("negative_scores", masks_by_zero),
    (
        "several_answers",
        lambda s, t, e: realistic(s, t, None if e is None else e.any(0, keepdim=True).expand_as(e)),
    ),
    ("saturated_sigmoid", applies_sigmoid),
    ("bfloat16_ties", breaks_ties_at_random),
    ("permuted_candidates", last_chunk_dropped),
    ("infinities", infinities_out),
    ("integer_overflow", lambda s, t, e: rank_scores(s, t, exclude=e).optimistic.to(torch.int16)),
    (
        "float_counters",
        lambda s, t, e: realistic(s, t, e).to(
            torch.bfloat16 if s.dtype == torch.bfloat16 else None
        ),
    ),
    ("batch_of_one", lambda s, t, e: realistic(s, t, e).squeeze()),
    ("single_candidate", one_column_fails),
    ("last_incomplete_batch", drops_last_batch),
    ("padded_repeats", unique_rows),
    (
        "k_above_candidates",
        lambda s, t, e: metrics_of(s, t, e) | ({"hits_at_3": 0.0} if s.shape[1] <= 3 else {}),
    ),
]


@pytest.mark.parametrize(("checks", "evaluator"), FAULTS)
def test_a_fault_fails_its_check_and_no_other(checks, evaluator):
    report = audit(evaluator, max_candidates=SMALL)
    assert {finding.check for finding in report.failures} == set(checks.split())
    if checks == "filter":
        assert report["several_answers"].message == "the check filter did not pass"
    if checks == "batch_of_one":  # other checks pass batches if a task alone fails
        assert (report["nan_truth"].status, report["batch_of_one"].got) == ("passed", "shape ()")


def test_every_check_is_failed_by_a_fault():  # or, "order_of_batches", below
    assert {check for checks, _ in FAULTS for check in checks.split()} | {
        "order_of_batches"
    } == set(CHECKS)


def test_counts_in_float32_are_found_beyond_its_integers():
    report = audit(lambda s, t, e: realistic(s, t, e).float())
    assert [finding.check for finding in report.failures] == ["float_counters"]
    finding = report["float_counters"]
    assert (finding.got, finding.expected) == (2**24 + 4, 2**24 + 3)


@pytest.mark.parametrize(
    ("evaluator", "check"),
    [
        (Accumulates(), "order_of_batches"),
        (lambda s, t, e: realistic(-s, t, e), "plain_ranks"),  # lower is better
        (lambda s, t, e: [][0], "plain_ranks"),
        (lambda s, t, e: {"mrr": math.nan, "loss": 1.0}, "values"),
    ],
)
def test_a_fault_in_plain_cases_ends_the_audit(evaluator, check):
    report = audit(evaluator, max_candidates=SMALL)
    assert [finding.check for finding in report.failures] == [check]
    skipped = [finding for finding in report.findings if finding.message.startswith("not run: ")]
    assert len(skipped) > 20
    assert {finding.status for finding in skipped} == {"skipped"}
    assert report.ties == ()
    assert "ties: unknown" in str(report)
    # numbers that JSON lacks are words
    loaded = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert [check["got"] for check in loaded["checks"] if check["check"] == "values"] in (
        ["nan"],
        [None],
    )


@pytest.mark.parametrize("answers", ["ranks", "metrics"])
def test_a_nan_that_counts_as_missed_helps_nobody(answers):
    def missed(scores, target, exclude):
        missing = scores.gather(1, target[:, None])[:, 0].isnan()
        if answers == "ranks":
            return torch.where(missing, math.inf, realistic(scores, target, exclude))
        values = metrics_of(scores, target, exclude, ["mrr", "hits@1"])
        return dict.fromkeys(values, 0.0) if missing.any() else values

    report = audit(missed, max_candidates=SMALL)
    assert not report.failures
    assert {report["nan_truth"].status, report["all_nan"].status} == {"passed"}


def test_an_error_is_reported_and_not_a_failure_where_it_is_allowed():
    def picky(scores, target, exclude):
        if scores.isnan().any():
            raise ValueError("scores must not be NaN")
        if exclude is not None:
            raise NotImplementedError("no filter")
        if (scores < 0).any():
            raise ValueError("scores must be\nprobabilities")
        return realistic(scores, target, exclude)

    report = audit(picky, max_candidates=SMALL)
    assert {finding.check for finding in report.failures} == {
        "negative_scores",
        "constant_scorer",
        "saturated_sigmoid",
    }
    found = {
        check: (finding.status, finding.message)
        for check, finding in zip(CHECKS, report.findings, strict=True)
    }
    assert found["negative_scores"] == ("error", "ValueError: scores must be probabilities")
    for check in ("nan_truth", "nan_candidates", "all_nan"):
        assert found[check] == ("skipped", "ValueError: scores must not be NaN")
    assert report["filter"].message == "no filter"
    assert {
        report[check].status for check in ("filter", "several_answers", "own_target_in_filter")
    } == {"skipped"}


def test_a_report_shows_the_smallest_case_and_both_numbers():
    report = audit(ieee_comparisons, max_candidates=SMALL)
    assert str(report).startswith("ieee_comparisons: 3 of 25 checks failed; ties: optimistic\n")
    line = next(line for line in str(report).splitlines() if "nan_truth" in line)
    assert (
        line == "failed    nan_truth                 scores [[nan, 0.5]], target [0]: rank 1, not 2"
    )
    loaded = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert loaded == report.to_dict()
    assert loaded["ties"] == ["optimistic"]
    assert [check["check"] for check in loaded["checks"]] == list(CHECKS)
    with pytest.raises(KeyError, match="none"):
        report["none"]


def test_assert_evaluator_is_silent_or_reports_all():
    assert assert_evaluator(realistic, max_candidates=SMALL) is None
    assert assert_evaluator(realistic, ties="realistic", max_candidates=SMALL) is None
    with pytest.raises(
        AssertionError, match=r"(?s)fails 3 of 25 checks.*nan_truth.*rank 1, not 2.*all_nan"
    ):
        assert_evaluator(ieee_comparisons, max_candidates=SMALL)
    one = r"(?s)fails 1 of 25.*ties.*\[\[0.5, 0.5\]\], target \[0\]: rank 1.5, not 1$"
    with pytest.raises(AssertionError, match=one):
        assert_evaluator(realistic, ties="optimistic", max_candidates=SMALL)


def test_bad_arguments_raise():
    with pytest.raises(ValueError, match="ties must be one of 'realistic'"):
        audit(realistic, ties="nice")
    with pytest.raises(TypeError, match="evaluator must be a function"):
        audit(3)
    with pytest.raises(ValueError, match=r"must name metrics.*\['loss'\]"):
        audit(lambda *_: {"loss": 1.0})


@pytest.mark.parametrize(
    "result", ["one", torch.ones(6) + 1j, torch.ones(6) > 0], ids=["text", "complex", "bool"]
)
def test_ranks_of_an_evaluator_are_real_numbers(result):
    with pytest.raises(TypeError, match=r"must return ranks \(B,\), or a dict"):
        audit(lambda *_, x=result: x)


@pytest.mark.parametrize("result", [torch.ones(2), None, "a"], ids=["two numbers", "none", "text"])
def test_the_value_of_a_metric_is_a_number(result):
    with pytest.raises(TypeError, match=r"must return a number for each metric, got {'mrr': "):
        audit(lambda *_, x=result: {"mrr": x})


def test_results_of_another_shape_or_kind_fail_their_check():
    class Moody:
        def __call__(self, scores, target, exclude):
            return {"mrr": 1.0} if len(target) == 1 else realistic(scores, target, exclude)

    report = audit(Moody(), max_candidates=SMALL)
    assert report.evaluator.endswith("Moody")
    assert [finding.check for finding in report.failures] == ["batch_of_one"]
    assert str(report["batch_of_one"]).endswith("result a dict, not ranks, as before")


def test_the_evaluator_gets_clones_that_share_nothing():
    def wipes(scores, target, exclude):
        ranks = realistic(scores, target, exclude)
        scores.zero_()
        target.zero_()
        return ranks

    report = audit(wipes, max_candidates=SMALL)
    assert [finding.check for finding in report.failures] == ["scores_unmodified"]
    assert report["scores_unmodified"].quantity == "scores"
    assert report.ties == ("realistic",)


script = load_script(ROOT / "benchmarks" / "audit.py")
RESULTS = script.load()
ROWS = {row["name"]: row for row in RESULTS["rows"]}
PEERS = {name: (distribution, make) for name, distribution, make, _, _ in script.PEERS}


def test_committed_results_have_their_table_and_every_evaluator():
    assert script.RESULTS.with_suffix(".md").read_text(encoding="utf-8") == script.tables(RESULTS)

    missing = {gone["name"] for gone in RESULTS["left_out"]}
    assert set(PEERS) | {"torchrankmetrics"} == set(ROWS) | missing
    for row in ROWS.values():
        assert [check["check"] for check in row["checks"]] == list(CHECKS)
    assert {check["status"] for check in ROWS["torchrankmetrics"]["checks"]} == {
        "passed",
        "skipped",
    }


@pytest.mark.parametrize("name", ["PyKEEN", "torchmetrics", "PyG", "scikit-learn"])
def test_results_are_those_of_the_installed_evaluator(name):
    distribution, make = PEERS[name]
    try:
        installed = f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    if installed != ROWS[name]["package"]:
        pytest.skip(f"the results are of {ROWS[name]['package']}, installed is {installed}")
    report = audit(make(), max_candidates=100_000).to_dict()
    assert report["ties"] == ROWS[name]["ties"]
    for now, then in zip(report["checks"], ROWS[name]["checks"], strict=True):
        # of which the results have the case of 2^24 candidates, too
        if now["check"] != "float_counters":
            for key in ("check", "status", "case", "quantity"):
                assert now[key] == then[key]


def test_a_package_that_is_missing_is_named(monkeypatch):
    def absent():
        raise ImportError("no module")

    monkeypatch.setattr(
        script, "PEERS", (("Absent", "no-such-distribution-here", absent, "", None),)
    )
    found = script.results(["Absent"])
    assert [row["name"] for row in found["rows"]] == ["torchrankmetrics"]  # as it was
    assert [gone["name"] for gone in found["left_out"]] == ["Absent"]
    assert "Not audited: Absent (no-such-distribution-here is not installed)." in script.tables(
        found
    )
