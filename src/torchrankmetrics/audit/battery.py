"""The battery of laws that an evaluator is asked, and the report of what it answered."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch

from torchrankmetrics.audit.answers import (
    RULES,
    Answer,
    Asked,
    Fault,
    NotTakenError,
    RaisedError,
    ShapeError,
    hits_k,
    near,
    paired_values,
)
from torchrankmetrics.audit.laws import LAWS, Case, Law, case, many_candidates, million_case, ordinary, ranked

Status = Literal["passed", "failed", "error", "skipped"]
FAILURES: tuple[Status, ...] = ("failed", "error")


@dataclass(frozen=True)
class Finding:
    """What became of one law.

    Attributes:
        law: its name.
        says: the law in a sentence.
        status: "passed", "failed" (a wrong number), "error" (an error where a number is due) or "skipped" (nothing
            could be compared, or an error that is as good as a number; ``message`` has the reason).
        case: the smallest case that shows it; "" if the law passed or no case of it was compared.
        quantity: "rank", or the key of the metric that is wrong.
        got: what the evaluator answered.
        expected: what is right.
        message: the error raised, the tie rule found, what else is wrong, or why the law was skipped.
    """

    law: str
    says: str
    status: Status
    case: str = ""
    quantity: str = ""
    got: float | str | None = None
    expected: float | str | None = None
    message: str = ""

    def __str__(self) -> str:
        line = f"{self.status:<8}  {self.law:<24}  "
        if self.status == "failed" and self.case:
            told = f"{self.quantity} {number(self.got)}, not {number(self.expected)}"
            return f"{line}{self.case}: {told}" + (f" ({self.message})" if self.message else "")
        if self.case:
            return f"{line}{self.case}: {self.message}"
        return f"{line}{self.message or self.says}"


@dataclass(frozen=True)
class Report:
    """All findings on one evaluator, in the order of the laws.

    Attributes:
        evaluator: its name.
        ties: the tie rules that its answers to the tied cases fit: one; several, if its metrics cannot tell them apart;
            none, if it has no rule.
        findings: one per law.
    """

    evaluator: str
    ties: tuple[str, ...]
    findings: tuple[Finding, ...]

    def __getitem__(self, law: str) -> Finding:
        """The finding on the law of a name.

        Raises:
            KeyError: if there is none.
        """
        for finding in self.findings:
            if finding.law == law:
                return finding
        raise KeyError(law)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings with status "failed" or "error"."""
        return tuple(finding for finding in self.findings if finding.status in FAILURES)

    def __str__(self) -> str:
        rule = " or ".join(self.ties) or ("no rule" if self["ties"].status == "failed" else "not known")
        head = f"{self.evaluator}: {len(self.failures)} of {len(self.findings)} laws failed; ties: {rule}"
        return "\n".join([head, *map(str, self.findings)])

    def to_dict(self) -> dict[str, object]:
        """What JSON holds: the evaluator, its tie rules, and a record per law."""
        laws = [{key: _plain(value) for key, value in asdict(finding).items()} for finding in self.findings]
        return {"evaluator": self.evaluator, "ties": list(self.ties), "laws": laws}

    def to_json(self) -> str:
        """The report as JSON; numbers that JSON lacks are strings."""
        return json.dumps(self.to_dict(), indent=1)


def assertion(findings: Sequence[Finding], evaluator: str) -> AssertionError:
    """The error that lists the failures."""
    lines = (f"  {finding.law} ({finding.says})\n    {finding}" for finding in findings)
    return AssertionError(f"{evaluator} breaks {len(findings)} of the laws of an evaluator\n" + "\n".join(lines))


def number(value: float | str | None) -> str:
    """A number for people."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_BY_NAME = {law.name: law for law in LAWS}


class Battery:
    """One audit: what is known of the evaluator, the rules it may have, and what was found so far."""

    def __init__(self, asked: Asked, ties: str | None, max_candidates: int) -> None:
        self.asked = asked
        self.demanded = ties
        self.max_candidates = max_candidates
        self.rules: list[str] = []
        self.filters = True
        self.found: dict[str, Finding] = {}

    def report(self, name: str) -> Report:
        """Ask everything."""
        self._run()
        self._unmodified()
        rules = tuple(self.rules)
        return Report(name, rules, tuple(self.found[law.name] for law in LAWS))

    def _run(self) -> None:
        try:
            first = self.asked.first(ordinary())
        except (RaisedError, NotTakenError, ShapeError) as error:
            self._put("plain_ranks", *_what(error), ordinary())
            self._stop("it has no answer to tasks without ties or filter")
            return
        self._order(first)
        if self.found["order_of_batches"].status in ("failed", "error"):
            self._stop("its answers depend on what was asked before, or on the order of rows")
        elif not self._values():
            self._stop("none of its values is that of its definition")
        elif not self._plain():
            self._stop("its ranks without ties or filter are wrong")
        else:
            self._rest()

    def _rest(self) -> None:
        self._alone()
        self._filter()
        self._ties()
        own: dict[str, Callable[[], None]] = {
            "constant_scorer": self._constant,
            "repeated_filter_entries": self._repeated,
            "k_above_candidates": self._hits,
            "float_counters": self._counters,
        }
        for law in LAWS:
            if law.name not in self.found and law.name != "scores_unmodified":
                own.get(law.name, lambda law=law: self._compare(law, law.cases()))()

    def _stop(self, why: str) -> None:
        for law in LAWS:
            if law.name not in self.found and law.name != "scores_unmodified":
                self._put(law.name, "skipped", message=f"not asked: {why}")

    def _put(
        self, law: str, status: Status, fault: Fault | None = None, message: str = "", shown: Case | None = None
    ) -> None:
        quantity, got, expected = fault or ("", None, None)
        text = "" if shown is None else str(shown)
        self.found[law] = Finding(law, _BY_NAME[law].says, status, text, quantity, got, expected, message)

    def _compare(self, law: Law, cases: Sequence[Case], rules: Sequence[str] | None = None) -> None:
        """Ask all cases: the first wrong answer, else the first error, else passed if there was an answer."""
        rules = self.rules if rules is None else rules
        raised: tuple[str, Case] | None = None
        why, answered = "no case of it can be asked", False
        for one in cases:
            if one.exclude is not None and not self.filters and law.name != "filter":
                why = "the law filter failed"
                continue
            if one.scores.shape[1] > self.max_candidates:
                why = f"it needs {one.scores.shape[1]} candidates"
                continue
            if not self.asked.compares(one):
                why = "none of its metrics says anything of so few candidates"
                continue
            try:
                fault = self.asked.fault(one, self.asked.ask(one), rules)
            except NotTakenError as error:
                why = str(error)
            except RaisedError as error:
                raised = raised or (str(error), one)
            except ShapeError as error:
                return self._put(law.name, "failed", error.fault, shown=one)
            else:
                answered = True
                if fault is not None:
                    return self._put(law.name, "failed", fault, shown=one)
        if raised is not None:
            return self._put(law.name, "skipped" if law.may_refuse else "error", message=raised[0], shown=raised[1])
        return self._put(law.name, "passed" if answered else "skipped", message="" if answered else why)

    def _order(self, first: Answer) -> None:
        """The ordinary case again after another, and its rows in reverse."""
        plain = ordinary()
        back = torch.arange(len(plain.target) - 1, -1, -1)
        reverse = Case(
            plain.scores[back], plain.target[back], None, plain.low[back], plain.high[back], note="in reverse"
        )
        try:
            self.asked.ask(ranked([7, 9, 8], 12))
            again, turned = self.asked.ask(plain), self.asked.ask(reverse)
        except (RaisedError, NotTakenError, ShapeError) as error:
            return self._put("order_of_batches", *_what(error), plain)
        if isinstance(turned, torch.Tensor):
            turned = turned[back]
        for answer, what in ((again, "after another batch"), (turned, "in reverse")):
            for quantity, was, now in paired_values(first, answer):
                if not near(was, now):
                    shown = Case(plain.scores, plain.target, None, plain.low, plain.high, note=f"{plain.note}, {what}")
                    return self._put("order_of_batches", "failed", (quantity, now, was), shown=shown)
        return self._put("order_of_batches", "passed")

    def _values(self) -> bool:
        """Each metric of a dict by itself; what is wrong is reported once and compared no more."""
        metrics = self.asked.metrics
        if metrics is None:
            self._put("values", "skipped", message="it answers ranks")
            return True
        most = max(map(hits_k, metrics.values()))
        width = max(12, 2 * most)
        ranks = [[1, 2], [2, 5], [width - 1, width], *([k, k + 1] for k in map(hits_k, metrics.values()) if k)]
        cases = [ranked(some, width, note=f"ranks {some} among {width}") for some in ranks]
        faults: dict[str, list[tuple[Fault, Case]]] = {}
        for one in cases:
            try:
                answer = self.asked.ask(one)
            except (RaisedError, NotTakenError, ShapeError) as error:
                self._put("values", *_what(error), one)
                return False
            for key, name in metrics.items():
                self.asked.metrics = {key: name}
                fault = self.asked.fault(one, answer, RULES[:1])
                faults.setdefault(key, []).extend([] if fault is None else [(fault, one)])
            self.asked.metrics = metrics
        wrong = {key: some for key, some in faults.items() if some}
        numbered = {
            key: some
            for key, some in wrong.items()
            if metrics[key].definition.name == "mr"
            and metrics[key].view in (None, "base")
            and len(some) == len(cases)
            and all(near(float(fault[1]) + 1, float(fault[2])) for fault, _ in some)
        }
        for law, kind in (
            ("one_based", numbered),
            ("values", {key: some for key, some in wrong.items() if key not in numbered}),
        ):
            for key, some in list(kind.items())[:1]:
                others = ", ".join(other for other in kind if other != key)
                self._put(law, "failed", some[0][0], f"also {others}" if others else "", some[0][1])
        self.asked.metrics = {key: name for key, name in metrics.items() if key not in wrong}
        if "values" not in self.found:
            known = f"not compared: {', '.join(self.asked.unknown)}" if self.asked.unknown else ""
            self._put("values", "passed", message=known)
        return bool(self.asked.metrics)

    def _plain(self) -> bool:
        plain = ordinary()
        answer = self.asked.ask(plain)
        if isinstance(answer, torch.Tensor) and self.asked.fault(plain, answer + 1, RULES[:1]) is None:
            best = int(plain.low.argmin())
            self._put("one_based", "failed", ("rank", float(answer[best]), 1.0), shown=plain)
            self.asked.offset = 1
            answer = answer + 1
        fault = self.asked.fault(plain, answer, RULES[:1])
        self._put("plain_ranks", "passed" if fault is None else "failed", fault, shown=None if fault is None else plain)
        if fault is None and "one_based" not in self.found:
            self._put("one_based", "passed")
        return fault is None

    def _alone(self) -> None:
        self._compare(_BY_NAME["batch_of_one"], [ranked([rank], 12) for rank in (1, 2, 12)], RULES[:1])
        self.asked.doubled = self.found["batch_of_one"].status in ("failed", "error")

    def _filter(self) -> None:
        law = _BY_NAME["filter"]
        cases = law.cases()
        if self.asked.metrics is not None:  # wide enough for its hits at k
            wide = ranked([2], 2 * max(12, *map(hits_k, self.asked.metrics.values())))
            above = wide.scores > wide.scores.gather(1, wide.target[:, None])
            lowest = torch.zeros_like(above).index_fill_(1, torch.tensor([0]), True)
            first = torch.ones_like(wide.low)
            cases += [Case(wide.scores, wide.target, above, first, first, note="the best of all excluded")]
            cases += [Case(wide.scores, wide.target, lowest, wide.low, wide.low, note="the worst of all excluded")]
        self._compare(law, cases, RULES[:1])
        self.filters = self.found["filter"].status == "passed"

    def _ties(self) -> None:
        """The rules that fit all cases so far; the first case that leaves none is the smallest that shows it."""
        self.rules = self.asked.possible_rules()
        self._by_rule(_BY_NAME["ties"])
        if self.found["ties"].status != "passed":
            self.rules = []
        elif self.demanded is not None and self.demanded not in self.rules:
            self._compare(_BY_NAME["ties"], _BY_NAME["ties"].cases(), [self.demanded])

    def _constant(self) -> None:
        law, rules = _BY_NAME["constant_scorer"], self.rules
        if rules:
            return self._compare(law, law.cases())
        self.rules = self.asked.possible_rules()
        self._by_rule(law)
        self.rules = rules
        return None

    def _by_rule(self, law: Law) -> None:
        for one in law.cases():
            if not self.asked.compares(one):
                continue
            before = self.rules
            self._compare(law, [one], before)
            found = self.found[law.name]
            if found.status not in ("passed", "skipped"):
                if found.status == "failed" and len(before) < len(self.asked.possible_rules()):
                    self.found[law.name] = replace(found, message=f"{' or '.join(before)} so far")
                return
            self.rules = self.asked.fits(one, self.asked.ask(one), before)
        self._put(law.name, "passed", message=" or ".join(self.rules))

    def _repeated(self) -> None:
        law = _BY_NAME["repeated_filter_entries"]
        if not self.asked.pairs:
            return self._put(law.name, "skipped", message="a mask has no repeats; pairs=True asks with pairs")
        return self._compare(law, law.cases())

    def _hits(self) -> None:
        law = _BY_NAME["k_above_candidates"]
        metrics = self.asked.metrics or {}
        hits = {key: name for key, name in metrics.items() if name.view in (None, "base") and hits_k(name) >= 2}
        for key, one in ((key, case([0.5, 0.9], target, 2 - target)) for key in hits for target in (1, 0)):
            try:
                answer = self.asked.ask(one)
            except (RaisedError, NotTakenError, ShapeError) as error:
                return self._put(law.name, *_what(error), one)
            assert isinstance(answer, dict)
            value = answer[key]
            if not near(value, 1.0):
                return self._put(law.name, "failed", (key, value, 1.0), shown=one)
        if hits:
            return self._put(law.name, "passed")
        return self._put(law.name, "skipped", message="it answers no hits at k above 1")

    def _counters(self) -> None:
        law = _BY_NAME["float_counters"]
        metrics = self.asked.metrics
        if metrics is not None:
            # of a rank this large only the mean rank shows the last digit
            base = {key: name for key, name in metrics.items() if name.view in (None, "base")}
            self.asked.metrics = {key: name for key, name in base.items() if name.definition.name == "mr"}
        try:
            cases = law.cases()
            if self.asked.metrics == {}:
                return self._put(law.name, "skipped", message="it answers no mean rank")
            if many_candidates() <= self.max_candidates:
                cases.append(million_case())
            return self._compare(law, cases)
        finally:
            self.asked.metrics = metrics

    def _unmodified(self) -> None:
        changed = self.asked.modified
        if changed is None:
            return self._put("scores_unmodified", "passed")
        shown, name = changed
        return self._put("scores_unmodified", "failed", (name, "changed", "as given"), shown=shown)


def _what(error: Exception) -> tuple[Status, Fault | None, str]:
    if isinstance(error, ShapeError):
        return "failed", error.fault, ""
    return ("skipped" if isinstance(error, NotTakenError) else "error"), None, str(error)
