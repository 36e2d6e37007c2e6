"""Runs the checks on one evaluator, in an order in which a fault fails few of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from torchrankmetrics.audit.cases import CHECKS, LARGEST, Case, largest, ordinary, ranked, stack
from torchrankmetrics.audit.probe import Fault, NoResultError, Probe, Result, hits_k, is_base

Status = Literal["passed", "failed", "error", "skipped"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check (str): its name.
        description (str): the check in one sentence.
        status (str): "passed", "failed" (a wrong number), "error" (an exception where a number is required) or
            "skipped" (nothing could be compared, or an exception that is as good as a number; ``message`` has the
            reason).
        case (str): the smallest case that shows it; "" if the check passed or no case of it was compared.
        quantity (str): "rank", or the key of the metric that is wrong.
        got (float or str): the value of the evaluator.
        expected (float or str): the right value.
        message (str): the exception, the tie rule found, other wrong metrics, or why the check was skipped.
    """

    check: str
    description: str
    status: Status
    case: str = ""
    quantity: str = ""
    got: float | str | None = None
    expected: float | str | None = None
    message: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether the status is "failed" or "error"."""
        return self.status in ("failed", "error")

    def __str__(self) -> str:
        line = f"{self.status:<8}  {self.check:<24}  "
        if self.status == "failed" and self.case:
            got, expected = (f"{x:.9g}" if isinstance(x, float) else str(x) for x in (self.got, self.expected))
            also = f" ({self.message})" if self.message else ""
            return f"{line}{self.case}: {self.quantity} {got}, not {expected}{also}"
        if self.case:
            return f"{line}{self.case}: {self.message}"
        return f"{line}{self.message or self.description}"


class Battery:
    """One audit: the evaluator, the tie rules that its results follow, and the findings so far."""

    def __init__(self, probe: Probe, ties: str | None, max_candidates: int) -> None:
        self.probe = probe
        self.required = ties
        self.max_candidates = max_candidates
        self.rules: list[str] = []
        self.found: dict[str, Finding] = {}

    def findings(self) -> tuple[Finding, ...]:
        """Run all checks; if a basic check fails, the later ones are skipped."""
        reason = self._basic()
        for name, check in CHECKS.items():
            if name == "scores_unmodified":
                case, argument = self.probe.modified or (None, "")
                self._put(name, "failed" if case else "passed", (argument, "changed", "as given"), case=case)
            elif name not in self.found and reason:
                self._put(name, "skipped", message=f"not run: {reason}")
            elif name == "repeated_filter_entries" and not self.probe.pairs:
                self._put(name, "skipped", message="a mask has no repeats; use pairs=True")
            elif name == "k_above_candidates":
                self._hits(check.cases())
            elif name == "ties":
                self._ties(check.cases())
            elif name not in self.found:
                more = [largest()] if name == "float_counters" and self.max_candidates >= LARGEST else []
                self._compare(name, check.cases() + more)
        return tuple(self.found[name] for name in CHECKS)

    def _basic(self) -> str:
        try:
            first = self.probe.first(ordinary())
        except NoResultError as error:
            self._put_error("plain_ranks", error, ordinary())
            return "no result for ranking tasks without ties or filter"
        self._order(first)
        if self.found["order_of_batches"].is_failure:
            return "results depend on earlier calls or on the order of rows"
        if not self._values():
            return "no metric follows its definition"
        self._compare("plain_ranks", [ordinary()])
        return "the ranks without ties or filter are wrong" if self.found["plain_ranks"].is_failure else ""

    def _put(
        self, name: str, status: Status, fault: Fault | None = None, message: str = "", case: Case | None = None
    ) -> None:
        quantity, got, expected = fault if fault and status == "failed" else ("", None, None)
        text = "" if case is None else str(case)
        self.found[name] = Finding(name, CHECKS[name].description, status, text, quantity, got, expected, message)

    def _put_error(self, name: str, error: NoResultError, case: Case) -> None:
        status = "skipped" if error.status == "error" and CHECKS[name].may_raise else error.status
        self._put(name, status, error.fault, str(error), case)

    def _compare(self, name: str, cases: Sequence[Case], rules: Sequence[str] | None = None) -> None:
        """Compare all cases: the first wrong number, else the first exception, else passed if anything was compared."""
        rules = self.rules if rules is None else rules
        raised: tuple[NoResultError, Case] | None = None
        reason, compared = "no case could be compared", False
        for case in cases:
            if case.exclude is not None and name != "filter" and self.found["filter"].status != "passed":
                reason = "the check filter did not pass"
            elif case.scores.shape[1] > self.max_candidates:
                reason = f"it needs {case.scores.shape[1]} candidates"
            elif not self.probe.compares(case):
                reason = "none of the metrics is defined for so few candidates"
            else:
                # a single task is passed as two equal rows: whether one row works is a check of its own
                twice = len(case.target) == 1 and name != "batch_of_one"
                posed = stack(case, case) if twice else case
                try:
                    fault = self.probe.fault(posed, self.probe.results(posed), rules)
                except NoResultError as error:
                    if error.status == "failed":
                        return self._put_error(name, error, case)
                    if error.status == "skipped":
                        reason = str(error)
                    else:
                        raised = raised or (error, case)
                else:
                    compared = True
                    if fault is not None:
                        quantity = fault[0].partition("[")[0] if twice else fault[0]
                        return self._put(name, "failed", (quantity, *fault[1:]), case=case)
        if raised is not None:
            return self._put_error(name, *raised)
        return self._put(name, "passed" if compared else "skipped", message="" if compared else reason)

    def _order(self, first: Result) -> None:
        """The ordinary case again after another one, and with its rows in reverse."""
        plain = ordinary()
        back = torch.arange(len(plain.target) - 1, -1, -1)
        try:
            self.probe.results(ranked([7, 9, 8], 12))
            again = self.probe.results(plain)
            reverse = self.probe.results(Case(plain.scores[back], plain.target[back]))
        except NoResultError as error:
            return self._put_error("order_of_batches", error, plain)
        if self.probe.metrics is None:
            reverse = dict(zip(reverse, reversed(reverse.values()), strict=True))
        for result, what in ((again, "after another batch"), (reverse, "in reverse")):
            for key, value in first.items():
                if not self.probe.near(value, result[key]):
                    case = replace(plain, note=f"{plain.note}, {what}")
                    return self._put("order_of_batches", "failed", (key, result[key], value), case=case)
        return self._put("order_of_batches", "passed")

    def _values(self) -> bool:
        """Compare each metric alone; a wrong one is reported once and not compared again."""
        metrics = self.probe.metrics
        if metrics is None:
            self._put("values", "skipped", message="it returns ranks")
            return True
        wrong = {}
        for key, name in metrics.items():
            self.probe.metrics = {key: name}
            self._compare("values", CHECKS["values"].cases())
            if self.found["values"].is_failure:
                wrong[key] = self.found["values"]
        self.probe.metrics = {key: name for key, name in metrics.items() if key not in wrong}
        if wrong:
            others = list(wrong)[1:]
            finding = next(iter(wrong.values()))
            self.found["values"] = replace(finding, message=f"also {', '.join(others)}" if others else finding.message)
        elif self.probe.unknown:
            self._put("values", "passed", message=f"not compared: {', '.join(self.probe.unknown)}")
        return bool(self.probe.metrics)

    def _ties(self, cases: list[Case]) -> None:
        """Narrow the rules case by case; the first case that fits none of those left is the smallest to show it."""
        possible = self.rules = self.probe.possible_rules()
        for case in filter(self.probe.compares, cases):
            self._compare("ties", [case])
            found = self.found["ties"]
            if found.is_failure:
                if len(self.rules) < len(possible):
                    self.found["ties"] = replace(found, message=found.message or f"{' or '.join(self.rules)} so far")
                self.rules = []
                return
            if found.status == "passed":
                both = stack(case, case)
                self.rules = self.probe.fits(both, self.probe.results(both), self.rules)
        self._put("ties", "passed", message=" or ".join(self.rules))
        if self.required is not None and self.required not in self.rules:
            self._compare("ties", cases, [self.required])

    def _hits(self, cases: list[Case]) -> None:
        """Hits at k with fewer than k candidates: every ranking task is a hit."""
        metrics = self.probe.metrics or {}
        keys = [key for key, name in metrics.items() if is_base(name) and hits_k(name) >= 2]
        for case in cases if keys else ():
            try:
                values = self.probe.results(case)
            except NoResultError as error:
                return self._put_error("k_above_candidates", error, case)
            for key in keys:
                if not self.probe.near(values[key], 1.0):
                    return self._put("k_above_candidates", "failed", (key, values[key], 1.0), case=case)
        reason = "" if keys else "it returns no hits at k above 1"
        return self._put("k_above_candidates", "passed" if keys else "skipped", message=reason)
