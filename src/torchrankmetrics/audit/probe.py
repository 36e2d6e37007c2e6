"""Calls an evaluator and compares its ranks or metrics with the right ones."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from torchrankmetrics.audit.cases import Case
from torchrankmetrics.definitions.sample import RANK_TYPES, RankType
from torchrankmetrics.definitions.tasks import AtMost
from torchrankmetrics.metrics.evaluate import evaluate
from torchrankmetrics.metrics.registry import MetricName, parse_name
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.validation import shorten

Evaluator = Callable[[Tensor, Tensor, Tensor | None], object]
Result = dict[str, float]  # metrics by key; ranks by "rank", or "rank[row]" in a batch
Fault = tuple[str, float | str, float | str]  # quantity, value of the evaluator, right value
RULES: tuple[str, ...] = RANK_TYPES


class NoResultError(Exception):
    """A call gave nothing to compare.

    Attributes:
        status: "error" if the evaluator raised an exception, "skipped" for NotImplementedError, "failed" if its result
            has another form than the first result, or than the batch.
        fault: for "failed".
    """

    def __init__(self, status: Literal["error", "skipped", "failed"], message: str = "", fault: Fault | None = None):
        super().__init__(message)
        self.status = status
        self.fault = fault


def _form_error(got: str, expected: str) -> NoResultError:
    return NoResultError("failed", fault=("result", got, expected))


class Probe:
    """An evaluator, and how its results are compared.

    Attributes:
        evaluator: the function.
        pairs: whether it takes filters as (2, P) pairs.
        metrics: the keys of its dict that are compared; None if it returns ranks.
        unknown: keys of its dict that name no metric.
        modified: the first case in which it modified an argument, and the argument.
    """

    def __init__(self, evaluator: Evaluator, pairs: bool) -> None:
        self.evaluator = evaluator
        self.pairs = pairs
        self.metrics: dict[str, MetricName] | None = None
        self.unknown: list[str] = []
        self.modified: tuple[Case, str] | None = None

    def first(self, case: Case) -> Result:
        """Call the evaluator for the first time, which shows whether it returns ranks or metrics.

        Raises:
            TypeError: if it returns neither.
            ValueError: if no key names a metric.
        """
        result = self._call(case)
        if isinstance(result, Mapping):
            self.metrics = {}
            for key in result:
                try:
                    self.metrics[key] = replace(parse_name(key), side=None, average=None)
                except ValueError:
                    self.unknown.append(key)
            if not self.metrics:
                raise ValueError(
                    f"evaluator must name metrics such as mrr, mr or hits@10 in its dict; got {list(result)}"
                )
        return self._read(result, case)

    def results(self, case: Case) -> Result:
        """Call the evaluator with copies.

        Raises:
            NoResultError: if there is nothing to compare.
        """
        return self._read(self._call(case), case)

    def _call(self, case: Case) -> Any:
        exclude = case.exclude
        if self.pairs and exclude is not None:
            exclude = exclude.nonzero().T.contiguous().repeat(1, 2 if case.repeats else 1)
        given = {"scores": case.scores, "target": case.target, "exclude": exclude}
        clones = {name: None if tensor is None else tensor.clone() for name, tensor in given.items()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = self.evaluator(*clones.values())  # type: ignore[arg-type]
        except NotImplementedError as error:
            raise NoResultError("skipped", " ".join(str(error).split()) or "not supported") from error
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise NoResultError("error", text) from error
        for name, tensor in given.items():
            clone = clones[name]
            if tensor is not None and clone is not None and self.modified is None and not _same(tensor, clone):
                self.modified = (case, name)
        return {str(key): value for key, value in result.items()} if isinstance(result, Mapping) else result

    def _read(self, result: Any, case: Case) -> Result:
        if isinstance(result, Mapping):
            if self.metrics is None:
                raise _form_error("a dict", "ranks, as before")
            if missing := [key for key in self.metrics if key not in result]:
                raise _form_error(f"no {shorten(missing[0])}", "the same keys as before")
            try:
                return {key: float(result[key]) for key in self.metrics}
            except (TypeError, ValueError, RuntimeError) as error:
                values = {key: result[key] for key in self.metrics}
                raise TypeError(f"evaluator must return a number for each metric, got {shorten(values)}") from error
        if self.metrics is not None:
            raise _form_error(type(result).__name__, "a dict, as before")
        try:
            ranks = torch.as_tensor(result).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            ranks = None
        if ranks is None or ranks.is_complex() or ranks.dtype == torch.bool:
            raise TypeError(
                "evaluator must return ranks (B,), or a dict of metrics such as {'mrr': 0.5}; "
                f"got {type(result).__name__}"
            )
        if ranks.shape != case.target.shape:
            raise _form_error(f"shape {tuple(ranks.shape)}", f"shape {tuple(case.target.shape)}")
        return _by_row(ranks.double())

    def possible_rules(self) -> list[str]:
        """The tie rules that its results may follow: ranks have no expectation, and keys may name a rule."""
        if self.metrics is None:
            return [rule for rule in RULES if rule != "expected"]
        named = {name.rank_type for name in self.metrics.values()}
        return [rule for rule in RULES if None in named or rule in named]

    def fits(self, case: Case, result: Result, rules: Sequence[str]) -> list[str]:
        """The rules that a result follows."""
        return [rule for rule in rules if self._fault_by(case, result, rule) is None]

    def fault(self, case: Case, result: Result, rules: Sequence[str]) -> Fault | None:
        """The first wrong number by each of the rules, by any order of ties if rules is empty; None: all right."""
        if case.has_nan_target or not rules:
            return self._fault_of_bounds(case, result)
        faults = {rule: self._fault_by(case, result, rule) for rule in rules}
        expected: dict[float | str, str] = {}
        for rule, fault in faults.items():
            if fault is None:
                return None
            expected.setdefault(fault[2], rule)
        quantity, got, right = next(fault for fault in faults.values() if fault is not None)
        if len(expected) > 1:
            right = " or ".join(f"{value:.6g} ({rule})" for value, rule in expected.items())
        return quantity, got, right

    def compares(self, case: Case) -> bool:
        """Whether any metric is defined in a case."""
        return self.metrics is None or bool(self._compared(case))

    def _fault_by(self, case: Case, result: Result, rule: str) -> Fault | None:
        right = self._right(case, cast("RankType", rule))
        wrong = [key for key, value in right.items() if not self.near(result[key], value)]
        return (wrong[0], result[wrong[0]], right[wrong[0]]) if wrong else None

    def _fault_of_bounds(self, case: Case, result: Result) -> Fault | None:
        bests, worsts = self._right(case, "optimistic", True), self._right(case, "pessimistic", True)
        for key, best in bests.items():
            worst, got = worsts[key], result[key]
            higher = False if self.metrics is None else self.metrics[key].measure().higher_is_better
            if higher is None:
                continue  # the metric neither falls nor rises with every rank
            sign = 1 if higher else -1
            too_good = not (sign * got <= sign * best or self.near(got, best))
            too_bad = not (sign * got >= sign * worst or self.near(got, worst))
            if too_good or (too_bad and not case.has_nan_target):
                return key, got, best if self.near(best, worst) else f"{best:.6g} to {worst:.6g}"
        return None

    def _right(self, case: Case, rule: RankType, whole: bool = False) -> Result:
        """The right numbers by a tie rule; ``whole``: this rule also for keys that name another."""
        ranks = case.ranks
        if self.metrics is None:
            ends = {"optimistic": ranks.optimistic, "pessimistic": ranks.pessimistic}
            return _by_row(ends.get(rule, ranks.realistic).double())
        if whole:
            ranks = Ranks(getattr(ranks, rule), None, ranks.num_candidates)
        measures = {}
        for key, name in self._compared(case).items():
            with_rule = "realistic" if whole else rule
            try:
                measures[key] = name.measure(rank_type=with_rule)
            except ValueError:  # a metric without values under this rule
                continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            distinct = {measure.key: measure for measure in measures.values()}
            values = evaluate(ranks, metrics=list(distinct.values())) if distinct else {}
        return {key: values[measure.key] for key, measure in measures.items()}

    def _compared(self, case: Case) -> dict[str, MetricName]:
        """The metrics that are defined in a case; hits at k with at most k candidates is a check of its own."""
        fewest = int(case.ranks.num_candidates.min())
        return {
            key: name
            for key, name in (self.metrics or {}).items()
            if hits_k(name) < fewest and (fewest > 1 or (is_base(name) and not name.definition.uses_candidates))
        }

    def near(self, a: float, b: float) -> bool:
        """Equal up to what single precision leaves of a mean; ranks are multiples of 1/2."""
        tolerance = (0.0, 0.2) if self.metrics is None else (1e-5, 1e-6)
        return math.isclose(a, b, rel_tol=tolerance[0], abs_tol=tolerance[1]) or (math.isnan(a) and math.isnan(b))


def hits_k(name: MetricName) -> int:
    """The k of hits at k; 0 for other metrics."""
    definition = name.definition.of_tasks
    return definition.f.k if definition is not None and isinstance(definition.f, AtMost) else 0


def is_base(name: MetricName) -> bool:
    """Whether a name has no chance-adjusted view."""
    return name.view in (None, "base")


def _by_row(ranks: Tensor) -> Result:
    values = ranks.tolist()
    return {"rank" if len(values) == 1 else f"rank[{row}]": value for row, value in enumerate(values)}


def _same(before: Tensor, after: Tensor) -> bool:
    return before.shape == after.shape and bool(((before == after) | (before.isnan() & after.isnan())).all())
