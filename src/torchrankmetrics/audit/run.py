"""Runs the checks on one evaluator, in an order in which a fault fails few; findings, reports."""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from torchrankmetrics.audit.cases import (
    CASES,
    DESCRIPTIONS,
    LARGEST,
    MAY_RAISE,
    ORDINARY,
    Case,
    largest,
    ranked,
    stack,
)
from torchrankmetrics.definitions.sample import RANK_TYPES, RankType
from torchrankmetrics.definitions.transforms import as_transform
from torchrankmetrics.metrics.evaluate import evaluate
from torchrankmetrics.metrics.names import MetricName, parse_name
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.validation import check_choice, check_function, shorten

CHECKS = tuple(DESCRIPTIONS)
MAX_CANDIDATES = 1 << 25
Evaluator = Callable[[Tensor, Tensor, Tensor | None], object]
Results = dict[str, float]  # metrics by key; ranks by "rank", or "rank[row]" in a batch
Fault = tuple[str, float | str, float | str]  # quantity, value of the evaluator, right value
Status = Literal["failed", "error", "passed", "skipped"]  # of several cases the first of these


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check, description (str): its name, and the check in one sentence.
        status (str): "passed", "failed" (a wrong number), "error" (an exception where a number is
            required) or "skipped" (nothing could be compared, or an exception that is as good as a
            number).
        case (str): the smallest case that shows it; "" if the check passed or no case of it was
            compared.
        quantity (str): "rank", or the key of the metric that is wrong.
        got, expected (float or str): the value of the evaluator and the right one.
        message (str): the exception, the tie rule found, other wrong metrics, or why the check was
            skipped.

    >>> from torchrankmetrics.audit import audit
    >>> def unfiltered(scores, target, exclude):
    ...     return 1 + (scores > scores.gather(1, target[:, None])).sum(1)
    ...
    >>> audit(unfiltered, max_candidates=1000)["filter"].status
    'failed'
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
        text = self.message or self.description
        if self.status == "failed":
            text = f"{self.quantity} {_number(self.got)}, not {_number(self.expected)}"
            if self.message:
                text += f" ({self.message})"
        return f"{self.status:<8}  {self.check:<24}  {self.case}{': ' * bool(self.case)}{text}"


@dataclass(frozen=True)
class Report:
    """The findings of an audit, in the order of ``CHECKS``.

    Attributes:
        evaluator (str): its name.
        ties (tuple): the tie rules that its results follow; several, if its metrics do not
            distinguish them.
        findings (tuple): one per check.

    >>> from torchrankmetrics import rank_scores
    >>> from torchrankmetrics.audit import audit
    >>> def optimistic(scores, target, exclude):
    ...     return rank_scores(scores, target, exclude=exclude).optimistic
    ...
    >>> report = audit(optimistic, max_candidates=1000)
    >>> report.ties, len(report.failures)
    (('optimistic',), 0)
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
        rule = " or ".join(self.ties) or (
            "no rule" if self["ties"].status == "failed" else "unknown"
        )
        number = f"{len(self.failures)} of {len(self.findings)}"
        head = f"{self.evaluator}: {number} checks failed; ties: {rule}"
        return "\n".join([head, *map(str, self.findings)])

    def to_dict(self) -> dict[str, object]:
        """Return a dict with evaluator, ties and checks; NaN and infinite values are strings."""
        checks = [asdict(finding) for finding in self.findings]
        for check in checks:
            check |= {
                key: str(x)
                for key, x in check.items()
                if isinstance(x, float) and not math.isfinite(x)
            }
        return {"evaluator": self.evaluator, "ties": list(self.ties), "checks": checks}

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON."""
        return json.dumps(self.to_dict(), indent=1)


def audit(
    evaluator: Evaluator, *, ties: str | None = None, max_candidates: int = MAX_CANDIDATES
) -> Report:
    """Check an evaluator on small cases with known results.

    Args:
        evaluator (callable): a function of scores (B, N), target (B,) int64 and exclude, a bool
            mask (B, N) that is True for excluded candidates, or None. It returns ranks (B,), or a
            dict of metrics, of which those with a known name are compared. It gets copies. Several
            relevant items of a query are several rows. NotImplementedError skips a case.
        ties (str, default None): the required tie rule, "optimistic", "realistic", "pessimistic" or
            "expected" (metrics averaged over the orders of tied candidates). None accepts any one
            rule.
        max_candidates (int, default 2^25): skip larger cases; the largest has 2^24 + 4 candidates,
            67 MB of scores.

    Returns:
        A ``Report``: ``print(report)``, ``report["nan_truth"].status``, ``report.failures``,
        ``report.to_json()``.

    Raises:
        TypeError: if evaluator is not a function, or its first result is neither ranks nor a dict.
        ValueError: for an unknown rule, or if no key of the dict names a metric.

    >>> from torchrankmetrics import rank_scores
    >>> from torchrankmetrics.audit import CHECKS, MAX_CANDIDATES, audit
    >>> def evaluator(scores, target, exclude):
    ...     return rank_scores(scores, target, exclude=exclude).realistic
    ...
    >>> audit(evaluator, max_candidates=1000).failures
    ()
    >>> CHECKS[:2], MAX_CANDIDATES
    (('plain_ranks', 'order_of_batches'), 33554432)
    """
    check_function(
        "evaluator", evaluator, "(scores, target, exclude) -> ranks or a dict of metrics"
    )
    run = Battery(
        evaluator, None if ties is None else check_choice("ties", ties, RANK_TYPES), max_candidates
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.run()
    name = str(getattr(evaluator, "__qualname__", type(evaluator).__qualname__))
    return Report(name, tuple(run.rules), tuple(run.found[check] for check in CHECKS))


def assert_evaluator(
    evaluator: Evaluator, ties: str | None = None, *, max_candidates: int = MAX_CANDIDATES
) -> None:
    """Raise AssertionError with all failed checks and smallest cases; arguments as in ``audit``.

    Args:
        evaluator (callable): (scores, target, exclude) -> ranks or a dict of metrics.
        ties (str, default None): the tie rule that the evaluator must follow; None: any rule.
        max_candidates (int, default 2^25): most candidates of a case; fewer take less memory and
            time.

    >>> from torchrankmetrics.audit import assert_evaluator
    >>> from torchrankmetrics import rank_scores
    >>> def evaluator(scores, target, exclude):
    ...     return rank_scores(scores, target, exclude=exclude).realistic
    ...
    >>> assert_evaluator(evaluator, max_candidates=1000)
    """
    report = audit(evaluator, ties=ties, max_candidates=max_candidates)
    if report.failures:
        lines = [
            f"  {finding.check} ({finding.description})\n    {finding}"
            for finding in report.failures
        ]
        raise AssertionError(
            "\n".join([f"{report.evaluator} fails {len(lines)} of {len(CHECKS)} checks", *lines])
        )


class OutcomeError(Exception):
    """The end of a check: a wrong result, an exception or nothing to compare; finding fields."""

    def __init__(self, status: Status, **fields: Any) -> None:
        super().__init__(status)
        self.status = status
        self.fields = fields


class Battery:
    """One audit: an evaluator, its results, the tie rules that they follow, and the findings."""

    def __init__(self, evaluator: Evaluator, ties: RankType | None, max_candidates: int) -> None:
        self.evaluator = evaluator
        self.required = ties
        self.max_candidates = max_candidates
        # compared keys of its dict; None if it returns ranks
        self.metrics: dict[str, MetricName] | None = None
        self.unknown: list[str] = []  # keys of its dict that name no metric
        self.rules: list[RankType] = []
        self.check = ""  # that is run
        self.found: dict[str, Finding] = {}

    def run(self) -> None:
        """Run all checks; if a basic check fails, the later ones are skipped."""
        self._put("scores_unmodified", OutcomeError("passed"))
        reason = self._basic()
        for name in [name for name in CHECKS if name not in self.found]:
            if reason:
                self._put(name, OutcomeError("skipped", message=f"not run: {reason}"))
            elif name == "ties":
                self._ties()
            else:
                self._compare(name)

    def _basic(self) -> str:
        """Run the checks without anything odd; return the reason for which no other can be run."""
        try:
            first = self._results(ORDINARY, is_first=True)
        except OutcomeError as outcome:
            self._put("plain_ranks", outcome, ORDINARY)
            return "no result for ranking tasks without ties or filter"
        self._order(first)
        if self.found["order_of_batches"].is_failure:
            return "results depend on earlier calls or on the order of rows"
        if not self._values():
            return "no metric follows its definition"
        self._compare("plain_ranks")
        return (
            "the ranks without ties or filter are wrong"
            if self.found["plain_ranks"].is_failure
            else ""
        )

    def _results(self, case: Case, is_first: bool = False) -> Results:
        """Call the evaluator with copies and read its result; the first shows if it has metrics."""
        result = self._call(case)
        if is_first and isinstance(result, Mapping):
            self._read_names(result)
        if isinstance(result, Mapping) != (self.metrics is not None):
            got = "a dict" if self.metrics is None else type(result).__name__
            before = "ranks" if self.metrics is None else "a dict"
            raise OutcomeError(
                "failed", quantity="result", got=got, expected=f"{before}, as before"
            )
        if self.metrics is not None:
            return self._read_values(result, self.metrics)
        return _by_row(_read_ranks(result, case))

    def _read_names(self, result: Mapping[str, Any]) -> None:
        """Store which keys of a dict name metrics, and which do not."""
        self.metrics = {}
        for key in result:
            with suppress(ValueError):
                self.metrics[key] = replace(parse_name(key), side=None, average=None)
        self.unknown = [key for key in result if key not in self.metrics]
        if not self.metrics:
            raise ValueError(
                "evaluator must name metrics such as mrr, mr or hits@10 in its dict; got "
                f"{[*result]}"
            )

    def _read_values(self, result: Mapping[str, Any], metrics: Iterable[str]) -> Results:
        missing = [key for key in metrics if key not in result]
        if missing:
            got = f"no {shorten(missing[0])}"
            raise OutcomeError(
                "failed", quantity="result", got=got, expected="the same keys as before"
            )
        values = {key: result[key] for key in metrics}
        try:
            return {key: float(value) for key, value in values.items()}
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"evaluator must return a number for each metric, got {shorten(values)}"
            ) from error

    def _call(self, case: Case) -> Any:
        given = {"scores": case.scores, "target": case.target, "exclude": case.exclude}
        clones: list[Any] = list(map(_cloned, given.values()))
        try:
            result = self.evaluator(*clones)
        except NotImplementedError as error:
            raise OutcomeError(
                "skipped", message=" ".join(str(error).split()) or "not supported"
            ) from error
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise OutcomeError("error", message=text) from error
        for (name, tensor), clone in zip(given.items(), clones, strict=True):
            is_open = not self.found["scores_unmodified"].is_failure
            if tensor is not None and is_open and not _has_same_bytes(tensor, clone):
                changed = OutcomeError("failed", quantity=name, got="changed", expected="as given")
                self._put("scores_unmodified", changed, case)
        if not isinstance(result, Mapping):
            return result
        return {str(key): value for key, value in result.items()}

    def _faults(self, case: Case, result: Results) -> list[Fault | None]:
        """The first wrong number by each rule, or by any order of ties; None: all right."""
        ranks = case.ranks
        any_rule = case.has_nan_target or not self.rules
        if not any_rule:
            rights = [self._right(ranks, rule) for rule in self.rules]
            return [self._fault(case, result, right, right) for right in rights]
        best = Ranks(ranks.optimistic, None, ranks.num_candidates)
        worst = Ranks(ranks.pessimistic, None, ranks.num_candidates)
        return [self._fault(case, result, self._right(best), self._right(worst))]

    def _fault(self, case: Case, result: Results, bests: Results, worsts: Results) -> Fault | None:
        for key, best in bests.items():
            worst = worsts[key]
            got = result[key]
            higher = self.metrics is not None and self.metrics[key].measure().higher_is_better
            if higher is None and bests is not worsts:
                continue  # the metric neither falls nor rises with every rank
            low, high = sorted((best, worst))
            if case.has_nan_target:  # no rank is too bad
                low, high = (-math.inf, best) if higher else (best, math.inf)
            if not (low <= got <= high or self._near(got, low) or self._near(got, high)):
                return key, got, best if self._near(best, worst) else f"{best:.6g} to {worst:.6g}"
        return None

    def _right(self, ranks: Ranks, rule: RankType = "realistic") -> Results:
        """The right numbers of ranks by a tie rule."""
        if self.metrics is None:
            return _by_row(ranks.realistic if rule == "expected" else getattr(ranks, rule))
        measures = {}
        for key, name in self._compared(ranks).items():
            with suppress(ValueError):  # a metric without values under this rule
                measures[key] = name.measure(rank_type=rule)
        values = evaluate(ranks, metrics=list(measures.values()))
        return {key: values[measure.key] for key, measure in measures.items()}

    def _compared(self, ranks: Ranks) -> dict[str, MetricName]:
        """The metrics that are defined for ranks; certain hits at k have a check of their own."""
        fewest = int(ranks.num_candidates.min())

        def is_compared(name: MetricName) -> bool:
            is_base = name.view in (None, "base")
            is_certain = _is_certain(name, fewest)
            if self.check == "k_above_candidates":
                return is_base and is_certain
            return not is_certain and (
                fewest > 1 or (is_base and not name.definition.uses_candidates)
            )

        return {key: name for key, name in (self.metrics or {}).items() if is_compared(name)}

    def _near(self, a: float, b: float) -> bool:
        """Equal up to what single precision leaves of a mean; ranks are multiples of 1/2."""
        relative, absolute = (0.0, 0.2) if self.metrics is None else (1e-5, 1e-6)
        return math.isclose(a, b, rel_tol=relative, abs_tol=absolute) or (
            math.isnan(a) and math.isnan(b)
        )

    def _put(self, name: str, outcome: OutcomeError, case: Case | str = "") -> None:
        status = "skipped" if outcome.status == "error" and name in MAY_RAISE else outcome.status
        self.found[name] = Finding(name, DESCRIPTIONS[name], status, str(case), **outcome.fields)

    def _compare(self, name: str) -> None:
        """Compare all cases: the first wrong number, else the first exception, else passed."""
        self.check = name
        found = dict[Status, tuple[OutcomeError, Case | str]]()
        more = [largest()] if name == "float_counters" and self.max_candidates >= LARGEST else []
        for case in [*CASES[name], *more]:
            try:
                self._check(case)
                found["passed"] = OutcomeError("passed"), ""
            except OutcomeError as outcome:
                if outcome.status == "skipped":  # with the reason of the last one
                    found["skipped"] = outcome, ""
                else:
                    found.setdefault(outcome.status, (outcome, case))
            if "failed" in found:
                break
        self._put(name, *next(found[status] for status in get_args(Status) if status in found))

    def _check(self, case: Case) -> None:
        """Compare one case; raise OutcomeError unless it is right."""
        self._skip_unless_possible(case)
        # a single task is passed as two equal rows: whether one row works is a check of its own
        twice = len(case.target) == 1 and self.check != "batch_of_one"
        if twice:
            case = stack(case, case)
        faults = self._faults(case, self._results(case))
        wrong = [fault for fault in faults if fault is not None]
        if len(wrong) == len(faults):
            raise self._failure(wrong, twice)
        if self.check == "ties":
            possible = zip(self.rules, faults, strict=True)
            self.rules = [rule for rule, fault in possible if fault is None]

    def _skip_unless_possible(self, case: Case) -> None:
        """Raise OutcomeError("skipped") for a case on which the evaluator cannot be compared."""
        needs_filter = case.exclude is not None and self.check != "filter"
        if needs_filter and self.found["filter"].status != "passed":
            raise OutcomeError("skipped", message="the check filter did not pass")
        width = case.scores.shape[1]
        if width > self.max_candidates:
            raise OutcomeError("skipped", message=f"it needs {width} candidates")
        needs_large_k = self.check == "k_above_candidates"
        if needs_large_k and not self._compared(case.ranks):
            raise OutcomeError("skipped", message="it returns no hits at k above 1")
        if self.metrics is not None and not self._compared(case.ranks):
            raise OutcomeError(
                "skipped", message="none of the metrics is defined for so few candidates"
            )

    def _failure(self, wrong: Sequence[Fault], twice: bool) -> "OutcomeError":
        """The outcome of a case that is wrong by every tie rule, from the fault by each rule."""
        quantity, got, expected = wrong[0]
        rules: dict[float | str, str] = {}
        for rule, (*_, value) in zip(self.rules, wrong, strict=False):
            rules.setdefault(value, rule)
        if len(rules) > 1:
            expected = " or ".join(f"{value:.6g} ({rule})" for value, rule in rules.items())
        if twice:
            quantity = quantity.partition("[")[0]
        return OutcomeError("failed", quantity=quantity, got=got, expected=expected)

    def _order(self, first: Results) -> None:
        """The ordinary case again after another one, and with its rows in reverse."""
        cases = [
            ranked([7, 9, 8], 12),
            ORDINARY,
            Case(ORDINARY.scores.flip(0), ORDINARY.target.flip(0)),
        ]
        case = ORDINARY
        try:
            _, again, reverse = map(self._results, cases)
            if self.metrics is None:
                reverse = dict(zip(reverse, reversed(reverse.values()), strict=True))
            for result, what in ((again, "after another batch"), (reverse, "in reverse")):
                case = replace(ORDINARY, note=f"{ORDINARY.note}, {what}")
                for key, value in first.items():
                    if not self._near(value, result[key]):
                        raise OutcomeError("failed", quantity=key, got=result[key], expected=value)
            self._put("order_of_batches", OutcomeError("passed"))
        except OutcomeError as outcome:
            self._put("order_of_batches", outcome, case)

    def _values(self) -> bool:
        """Compare each metric alone; a wrong one is reported once and not compared again."""
        if self.metrics is None:
            self._put("values", OutcomeError("skipped", message="it returns ranks"))
            return True
        metrics = self.metrics
        found = dict[str, Finding]()
        for key, name in metrics.items():
            self.metrics = {key: name}
            self._compare("values")
            found[key] = self.found["values"]
        wrong = [key for key, finding in found.items() if finding.is_failure]
        self.metrics = {key: name for key, name in metrics.items() if key not in wrong}
        if wrong:
            others = f"also {', '.join(wrong[1:])}" if wrong[1:] else found[wrong[0]].message
            self.found["values"] = replace(found[wrong[0]], message=others)
        elif self.unknown:
            self._put(
                "values", OutcomeError("passed", message=f"not compared: {', '.join(self.unknown)}")
            )
        return bool(self.metrics)

    def _ties(self) -> None:
        """Narrow the rules case by case until one shows that its results follow none of them."""
        named = {name.rank_type for name in (self.metrics or {}).values()}  # of ranks none
        possible = self.rules = [
            x for x in RANK_TYPES if {None, x} & named or (not named and x != "expected")
        ]
        self._compare("ties")
        found = self.found["ties"]
        if found.status == "passed":
            self.found["ties"] = replace(found, message=" or ".join(self.rules))
            if self.required is not None and self.required not in self.rules:
                rules = self.rules
                self.rules = [self.required]
                self._compare("ties")
                self.rules = rules
        elif found.is_failure:
            if not found.message and len(self.rules) < len(possible):
                self.found["ties"] = replace(found, message=f"{' or '.join(self.rules)} so far")
            self.rules = []


def _read_ranks(result: Any, case: Case) -> Tensor:
    """Read ranks (B,) from whatever the evaluator returned."""
    try:
        ranks = torch.as_tensor(result).detach().cpu()
        if ranks.is_complex() or ranks.dtype == torch.bool:
            raise TypeError
    except (TypeError, ValueError, RuntimeError) as error:
        form = "ranks (B,), or a dict of metrics such as {'mrr': 0.5}"
        raise TypeError(f"evaluator must return {form}; got {type(result).__name__}") from error
    if ranks.shape != case.target.shape:
        got = f"shape {tuple(ranks.shape)}"
        expected = f"shape {tuple(case.target.shape)}"
        raise OutcomeError("failed", quantity="result", got=got, expected=expected)
    return ranks


def _cloned(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()


def _has_same_bytes(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal bit for bit, so that NaN equals itself."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def _is_certain(name: MetricName, num_candidates: int) -> bool:
    """Whether every rank is a hit: a step function without a step among so many candidates."""
    definition = name.definition.of_tasks
    jumps = None if definition is None else as_transform(definition.f).jumps(num_candidates)
    return jumps is not None and len(jumps) == 0


def _by_row(ranks: Tensor) -> Results:
    values = ranks.double().tolist()
    if len(values) == 1:
        return {"rank": values[0]}
    return {f"rank[{row}]": value for row, value in enumerate(values)}


def _number(value: float | str | None) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
