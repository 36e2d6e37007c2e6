"""Which laws an evaluator keeps: any function that makes ranks or metrics of scores, asked small cases with answers."""

from torchrankmetrics.audit.answers import RULES, Asked, Evaluator
from torchrankmetrics.audit.battery import Battery, Finding, Report, assertion
from torchrankmetrics.validation import check_choice

__all__ = ["Finding", "Report", "assert_evaluator", "audit"]

MAX_CANDIDATES = 1 << 25


def audit(
    evaluator: Evaluator, *, ties: str | None = None, pairs: bool = False, max_candidates: int = MAX_CANDIDATES
) -> Report:
    """Ask an evaluator small cases with known answers, and say which laws it keeps.

    Args:
        evaluator: ``(scores (B, N), target (B,) int64, exclude bool (B, N), True = no candidate, or None)`` -> ranks
            (B,), or a dict of metrics, of which those with a known name are compared. It gets clones; several answers
            of a query come as rows. NotImplementedError says that it takes no such case.
        ties: "optimistic", "realistic", "pessimistic" or "expected" (metrics averaged over the orders of a tie): the
            rule it must have; None: any one.
        pairs: exclude comes as int64 (2, P) pairs of (row, column) in the place of a mask.
        max_candidates: cases with more are left out; the largest has 2^24 + 4, 67 MB of scores.

    Returns:
        A ``Report``: ``print(report)``, ``report["nan_truth"].status``, ``report.failures``, ``report.to_json()``.

    Raises:
        TypeError: if it is no function, or its first answer is neither ranks nor a dict.
        ValueError: for an unknown rule, or if no key of its dict names a metric.

    >>> from torchrankmetrics import rank_scores
    >>> audit(lambda scores, target, exclude: rank_scores(scores, target, exclude=exclude).realistic).failures
    ()
    """
    if not callable(evaluator):
        raise TypeError(f"evaluator must be a function (scores, target, exclude), got {type(evaluator).__name__}")
    if ties is not None:
        check_choice("ties", ties, RULES)
    name = str(getattr(evaluator, "__qualname__", type(evaluator).__qualname__))
    return Battery(Asked(evaluator, pairs), ties, max_candidates).report(name)


def assert_evaluator(
    evaluator: Evaluator, ties: str | None = None, *, pairs: bool = False, max_candidates: int = MAX_CANDIDATES
) -> None:
    """Audit an evaluator in a test.

    Args:
        evaluator: as for ``audit``, like the others.
        ties: as there.
        pairs: as there.
        max_candidates: as there.

    Raises:
        AssertionError: if it breaks a law or raises where there is an answer; with the smallest case of each.
        TypeError, ValueError: as ``audit``.
    """
    report = audit(evaluator, ties=ties, pairs=pairs, max_candidates=max_candidates)
    if report.failures:
        raise assertion(report.failures, report.evaluator)
