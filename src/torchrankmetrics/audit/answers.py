"""Asking an evaluator, and comparing its answer with what is right by each tie rule."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from torchrankmetrics.audit.laws import Case
from torchrankmetrics.definitions.sample import RANK_TYPES, RankType
from torchrankmetrics.definitions.tasks import AtMost
from torchrankmetrics.metrics.evaluate import evaluate
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import MetricName, parse_name
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.validation import shown

Evaluator = Callable[[Tensor, Tensor, Tensor | None], object]
Answer = Tensor | dict[str, float]  # ranks (B,) float64, or values of metrics
Fault = tuple[str, float | str, float | str]  # quantity, got, expected
RULES: tuple[str, ...] = RANK_TYPES
_NEAR = 0.2  # ranks are multiples of 1/2, whatever precision they went through


class RaisedError(Exception):
    """The evaluator raised; holds its words."""


class NotTakenError(Exception):
    """The evaluator takes no such case, and says so by NotImplementedError."""


class ShapeError(Exception):
    """The evaluator answered something that fits no case: quantity, got, expected."""

    def __init__(self, got: str, expected: str) -> None:
        super().__init__(f"{got}, not {expected}")
        self.fault: Fault = ("answer", got, expected)


class Asked:
    """An evaluator and what has been learned of it.

    Attributes:
        evaluator: the function.
        pairs: it takes filters as (2, P) pairs.
        metrics: of a dict, the keys that are compared; None: it answers ranks.
        unknown: keys of a dict that name no metric.
        offset: what is added to its ranks.
        doubled: a task by itself is asked twice in one batch.
        modified: the first case in which it changed what it was given, and what it changed.
    """

    def __init__(self, evaluator: Evaluator, pairs: bool) -> None:
        self.evaluator = evaluator
        self.pairs = pairs
        self.metrics: dict[str, MetricName] | None = None
        self.unknown: list[str] = []
        self.offset = 0
        self.doubled = False
        self.modified: tuple[Case, str] | None = None

    def first(self, case: Case) -> Answer:
        """Ask for the first time, and see whether ranks or metrics come back.

        Raises:
            TypeError: if it is neither.
            ValueError: if no metric is known.
        """
        answer = self._call(case)
        if isinstance(answer, Mapping):
            self.metrics = {}
            for key in map(str, answer):
                try:
                    self.metrics[key] = replace(parse_name(key), side=None, average=None)
                except ValueError:
                    self.unknown.append(key)
            if not self.metrics:
                raise ValueError(
                    f"evaluator must name metrics such as mrr, mr or hits@10 in its dict; got {list(map(str, answer))}"
                )
        return self._read(answer, case)

    def ask(self, case: Case) -> Answer:
        """Ask, with clones.

        Raises:
            RaisedError, NotTakenError, ShapeError: if there is no answer to be compared.
        """
        case = self.posed(case)
        return self._read(self._call(case), case)

    def posed(self, case: Case) -> Case:
        """The case as it is asked."""
        return case.twice() if self.doubled and len(case.target) == 1 else case

    def _call(self, case: Case) -> Any:
        exclude = _pairs(case) if self.pairs and case.exclude is not None else case.exclude
        given = {"scores": case.scores, "target": case.target, "exclude": exclude}
        clones = {name: None if tensor is None else tensor.clone() for name, tensor in given.items()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = self.evaluator(*clones.values())  # type: ignore[arg-type]
        except NotImplementedError as error:
            raise NotTakenError(" ".join(str(error).split()) or "not taken") from error
        except Exception as error:
            raise RaisedError(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
        for name, tensor in given.items():
            if tensor is not None and self.modified is None and not _same(tensor, clones[name]):
                self.modified = (case, name)
        return answer

    def _read(self, answer: Any, case: Case) -> Answer:
        if isinstance(answer, Mapping):
            if self.metrics is None:
                raise ShapeError("a dict", "ranks, as before")
            if missing := [key for key in self.metrics if key not in answer]:
                raise ShapeError(f"no {shown(missing[0])}", "the keys of before")
            return {key: float(answer[key]) for key in self.metrics}
        if self.metrics is not None:
            raise ShapeError(type(answer).__name__, "a dict, as before")
        try:
            ranks = torch.as_tensor(answer).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            ranks = None
        if ranks is None or ranks.is_complex() or ranks.dtype == torch.bool:
            raise TypeError(
                "evaluator must return ranks (B,), or a dict of metrics such as {'mrr': 0.5}; "
                f"got {type(answer).__name__}"
            )
        if ranks.shape != case.target.shape:
            raise ShapeError(f"shape {tuple(ranks.shape)}", f"shape {tuple(case.target.shape)}")
        return ranks.double() + self.offset

    def possible_rules(self) -> list[str]:
        """The tie rules that its answers may have; keys that all say theirs leave no other."""
        if self.metrics is None:
            return [rule for rule in RULES if rule != "expected"]  # which is of values, not of ranks
        said = {name.rank_type for name in self.metrics.values()}
        return [rule for rule in RULES if None in said or rule in said]

    def fits(self, case: Case, answer: Answer, rules: Sequence[str]) -> list[str]:
        """Which of the rules an answer fits."""
        return [rule for rule in rules if self._fault_by(case, answer, rule) is None]

    def fault(self, case: Case, answer: Answer, rules: Sequence[str]) -> Fault | None:
        """What is wrong with an answer by all of the rules, or whatever the rule if there are none; None: nothing."""
        if case.at_best or not rules:
            return self._fault_between(case, answer)
        faults = [self._fault_by(case, answer, rule) for rule in rules]
        if any(fault is None for fault in faults):
            return None
        told = {fault[2]: rule for fault, rule in zip(faults, rules, strict=True) if fault is not None}
        first = faults[0]
        assert first is not None
        expected = first[2] if len(told) == 1 else " or ".join(f"{value:.6g} ({rule})" for value, rule in told.items())
        return (*first[:2], expected)

    def _fault_by(self, case: Case, answer: Answer, rule: str) -> Fault | None:
        case = self.posed(case)
        if isinstance(answer, Tensor):
            right = case.ranks()
            expected = {"optimistic": right.optimistic, "pessimistic": right.pessimistic}.get(rule, right.realistic)
            wrong = ~((answer - expected).abs() <= _NEAR)
            if not wrong.any():
                return None
            first = int(wrong.nonzero()[0])
            return "rank", float(answer[first]), float(expected[first])
        compared = dict(self._compared(case))
        for key, right_value in _values(compared, case.ranks(), rule).items():
            if right_value is not None and not near(answer[key], right_value):
                return key, answer[key], right_value
        return None

    def _fault_between(self, case: Case, answer: Answer) -> Fault | None:
        case = self.posed(case)
        right = case.ranks()
        if isinstance(answer, Tensor):
            wrong = ~(answer >= right.optimistic - _NEAR)
            if not case.at_best:
                wrong |= ~(answer <= right.pessimistic + _NEAR)
            if not wrong.any():
                return None
            first = int(wrong.nonzero()[0])
            low, high = int(right.optimistic[first]), int(right.pessimistic[first])
            return "rank", float(answer[first]), float(low) if low == high else f"{low} to {high}"
        ends = [Ranks(rank, None, right.num_candidates) for rank in (right.optimistic, right.pessimistic)]
        compared = dict(self._compared(case))
        bests, worsts = (_values(compared, ranks, "realistic") for ranks in ends)
        for key, name in compared.items():
            best, worst = bests[key], worsts[key]
            higher = name.measure().higher_is_better
            if higher is None or best is None or worst is None:
                continue  # no metric that falls or rises with every rank
            sign, got = (1 if higher else -1), answer[key]
            helped = not (sign * got <= sign * best or near(got, best))
            missed = not (sign * got >= sign * worst or near(got, worst))
            if helped or (missed and not case.at_best):
                return key, got, best if near(best, worst) else f"{best:.6g} to {worst:.6g}"
        return None

    def _compared(self, case: Case) -> Iterator[tuple[str, MetricName]]:
        """Metrics that are defined in a case; hits at k with no more than k candidates are a law of their own."""
        fewest = int(case.ranks().num_candidates.min())
        for key, name in (self.metrics or {}).items():
            base = name.view in (None, "base") and not name.definition.uses_candidates
            if not (fewest == 1 and not base) and not hits_k(name) >= fewest:
                yield key, name

    def compares(self, case: Case) -> bool:
        """Whether an answer to the case says anything."""
        return self.metrics is None or any(True for _ in self._compared(self.posed(case)))


def hits_k(name: MetricName) -> int:
    """The k of hits at k; 0 of another metric."""
    definition = name.definition.of_tasks
    return definition.f.k if definition is not None and isinstance(definition.f, AtMost) else 0


def near(a: float, b: float) -> bool:
    """Equal up to what single precision leaves of a mean."""
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b))


def paired_values(first: Answer, second: Answer) -> list[tuple[str, float, float]]:
    """What two answers say of the same: its name and both values."""
    if isinstance(first, dict):
        assert isinstance(second, dict)
        return [(key, value, second[key]) for key, value in first.items()]
    assert isinstance(second, Tensor)
    return [("rank", a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]


def _values(names: Mapping[str, MetricName], ranks: Ranks, rule: str) -> dict[str, float | None]:
    """The metrics of ranks; None of one that has no meaning for the rule."""
    measures = {key: measure for key, name in names.items() if (measure := _measure(name, rule)) is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one_each = {measure.key: measure for measure in measures.values()}
        values = evaluate(ranks, metrics=list(one_each.values())) if one_each else {}
    return {key: values[measures[key].key] if key in measures else None for key in names}


def _measure(name: MetricName, rule: str) -> Measure | None:
    try:
        return name.measure(rank_type=cast("RankType", rule))
    except ValueError:
        return None


def _pairs(case: Case) -> Tensor:
    assert case.exclude is not None
    pairs = case.exclude.nonzero().T.contiguous()
    return torch.cat([pairs, pairs], dim=1) if case.repeats else pairs


def _same(before: Tensor, after: Tensor | None) -> bool:
    if after is None or before.shape != after.shape:
        return False
    return bool(((before == after) | ((before != before) & (after != after))).all())
