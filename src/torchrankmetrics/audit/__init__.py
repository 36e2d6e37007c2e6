"""Checks any evaluator of ranks or rank-based metrics on small cases with known results."""

import json
import math
from dataclasses import asdict, dataclass

from torchrankmetrics.audit.cases import DESCRIPTIONS
from torchrankmetrics.audit.run import Battery, Evaluator, Finding
from torchrankmetrics.definitions.sample import RANK_TYPES
from torchrankmetrics.validation import check_choice

__all__ = ["CHECKS", "MAX_CANDIDATES", "Finding", "Report", "assert_evaluator", "audit"]

CHECKS = tuple(DESCRIPTIONS)
MAX_CANDIDATES = 1 << 25


@dataclass(frozen=True)
class Report:
    """The findings of an audit, in the order of ``CHECKS``.

    Attributes:
        evaluator (str): its name.
        ties (tuple): the tie rules that its results follow: one; several, if its metrics do not distinguish them; none,
            if it follows no rule.
        findings (tuple): one per check.
    """

    evaluator: str
    ties: tuple[str, ...]
    findings: tuple[Finding, ...]

    def __getitem__(self, check: str) -> Finding:
        """The finding of a check by its name; KeyError for an unknown one."""
        return {finding.check: finding for finding in self.findings}[check]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings with status "failed" or "error"."""
        return tuple(finding for finding in self.findings if finding.is_failure)

    def __str__(self) -> str:
        rule = " or ".join(self.ties) or ("no rule" if self["ties"].status == "failed" else "unknown")
        head = f"{self.evaluator}: {len(self.failures)} of {len(self.findings)} checks failed; ties: {rule}"
        return "\n".join([head, *map(str, self.findings)])

    def to_dict(self) -> dict[str, object]:
        """Return a dict with evaluator, ties, and checks, one record each; NaN and infinite values are strings."""

        def plain(value: object) -> object:
            return str(value) if isinstance(value, float) and not math.isfinite(value) else value

        checks = [{key: plain(value) for key, value in asdict(finding).items()} for finding in self.findings]
        return {"evaluator": self.evaluator, "ties": list(self.ties), "checks": checks}

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON."""
        return json.dumps(self.to_dict(), indent=1)


def audit(
    evaluator: Evaluator, *, ties: str | None = None, pairs: bool = False, max_candidates: int = MAX_CANDIDATES
) -> Report:
    """Check an evaluator on small cases with known results.

    Args:
        evaluator (callable): a function of scores (B, N), target (B,) int64 and exclude, a bool mask (B, N) that is
            True for excluded candidates, or None. It returns ranks (B,), or a dict of metrics, of which those with a
            known name are compared. It gets copies. Several relevant items of a query are several rows.
            NotImplementedError skips a case.
        ties (str, default None): the required tie rule, "optimistic", "realistic", "pessimistic" or "expected"
            (metrics averaged over the orders of tied candidates). None accepts any one rule.
        pairs (bool, default False): pass exclude as int64 (2, P) pairs of (row, column) instead of a mask.
        max_candidates (int, default 2^25): skip larger cases; the largest has 2^24 + 4 candidates, 67 MB of scores.

    Returns:
        A ``Report``: ``print(report)``, ``report["nan_truth"].status``, ``report.failures``, ``report.to_json()``.

    Raises:
        TypeError: if evaluator is not a function, or its first result is neither ranks nor a dict.
        ValueError: for an unknown rule, or if no key of the dict names a metric.

    >>> from torchrankmetrics import rank_scores
    >>> audit(lambda scores, target, exclude: rank_scores(scores, target, exclude=exclude).realistic).failures
    ()
    """
    if not callable(evaluator):
        raise TypeError(f"evaluator must be a function (scores, target, exclude), got {type(evaluator).__name__}")
    if ties is not None:
        check_choice("ties", ties, RANK_TYPES)
    run = Battery(evaluator, pairs, ties, max_candidates)
    findings = run.findings()
    return Report(str(getattr(evaluator, "__qualname__", type(evaluator).__qualname__)), tuple(run.rules), findings)


def assert_evaluator(
    evaluator: Evaluator, ties: str | None = None, *, pairs: bool = False, max_candidates: int = MAX_CANDIDATES
) -> None:
    """Raise AssertionError with all failed checks and their smallest cases; arguments as for ``audit``.

    Args:
        evaluator (callable): as in ``audit``.
        ties (str, default None): as in ``audit``.
        pairs (bool, default False): as in ``audit``.
        max_candidates (int, default 2^25): as in ``audit``.

    >>> from torchrankmetrics import rank_scores
    >>> assert_evaluator(lambda scores, target, exclude: rank_scores(scores, target, exclude=exclude).realistic)
    """
    report = audit(evaluator, ties=ties, pairs=pairs, max_candidates=max_candidates)
    if report.failures:
        lines = [f"  {finding.check} ({finding.description})\n    {finding}" for finding in report.failures]
        raise AssertionError("\n".join([f"{report.evaluator} fails {len(lines)} of {len(CHECKS)} checks", *lines]))
