"""From names to measures: metrics multiplied by views, rank types and sides."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import cast

from torchrankmetrics.definitions.protocol import VIEWS, Average, MetricDefinition, Side, View
from torchrankmetrics.definitions.sample import RANK_TYPES, RankType
from torchrankmetrics.metrics.measure import SIDES, Measure, Measured, has_measure, measure_of
from torchrankmetrics.metrics.registry import MetricLike, MetricName, parse_name
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.validation import ENTITY_SIDES, Choice, TaskSide, check_choice, shorten

DEFAULT_METRICS = ("mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10", "amri", "adjusted_mrr", "z_mrr")
Metrics = MetricLike | Sequence[MetricLike] | Mapping[str, MetricLike]
"""One, several, or by keys of one's own."""
_KEY = re.compile(r"[a-z][a-z0-9_]*")
_LABEL = re.compile(r"[a-z][a-z0-9]*")
# qualifiers of names
_WORDS = {*VIEWS, *RANK_TYPES, "micro", "macro", "z", "p", "adjusted", "normalized", "left", "right"}


class Selection:
    """Options that turn names into measures."""

    def __init__(
        self,
        views: View | Sequence[View],
        rank_types: RankType | Sequence[RankType],
        sides: str | Sequence[str],
        expectation: ExpectationProvider,
        average: Average = "micro",
        relevance_threshold: float = 1.0,
    ) -> None:
        self.views = _listed(views, "views", VIEWS)
        self.rank_types = _listed(rank_types, "rank_types", RANK_TYPES)
        self.sides, self.side_names = _sides(sides)
        self.labels: dict[str, TaskSide] = dict(zip(self.side_names, ENTITY_SIDES, strict=True))
        self.expectation = expectation
        self.average = average
        self.relevance_threshold = relevance_threshold

    def entries(self, metrics: Metrics) -> Iterator[tuple[str, Measure | Measured]]:
        """Yield keys with measures for names, and entries that have a measure unchanged, in the given order."""
        if isinstance(metrics, Mapping):
            for key, entry in metrics.items():
                if not isinstance(key, str) or not _KEY.fullmatch(key):
                    raise ValueError(
                        f"a key must match [a-z][a-z0-9_]*, so that every logger takes it; got {shorten(key)}"
                    )
                yield key, entry if has_measure(entry) else self._one(entry)
            return
        if isinstance(metrics, str) or has_measure(metrics):
            metrics = [metrics]
        if not isinstance(metrics, Sequence):
            raise TypeError(f"metrics must be names, RankMetric instances or a dict, got {type(metrics).__name__}")
        seen: set[str] = set()
        for entry in metrics:
            if has_measure(entry):
                seen.add(measure_of(entry).key)
                yield measure_of(entry).key, entry
                continue
            for measure in self._product(self._parsed(entry)):
                if measure.key not in seen:
                    seen.add(measure.key)
                    yield measure.key, measure
        if metrics and not seen:  # every combination is undefined: raise the reason of the first
            self._parsed(metrics[0]).measure(view=self.views[0], rank_type=self.rank_types[0])

    def measures(self, metrics: Metrics) -> dict[str, Measure]:
        """The measures of ``entries``, by key."""
        return {key: measure_of(entry) for key, entry in self.entries(metrics)}

    def _one(self, entry: MetricLike) -> Measure:
        name = self._parsed(entry)
        return name.measure(average=self.average, expectation=self.expectation, side_names=self.side_names)

    def _product(self, name: MetricName) -> Iterator[Measure]:
        views = self.views if name.view is None else (name.view,)
        rank_types = self.rank_types if name.rank_type is None else (name.rank_type,)
        sides = self.sides if name.side is None else (name.side,)
        # a name that is undefined raises; undefined combinations with options are left out
        defined = name.definition.why_undefined(name.view or "base", name.rank_type or "realistic") is None
        for side, rank_type, view in itertools.product(sides, rank_types, views):
            if defined and name.definition.why_undefined(view, rank_type):
                continue
            average = name.average or self.average
            yield Measure(name.definition, view, rank_type, side, average, self.expectation, self.side_names)

    def _parsed(self, entry: MetricLike) -> MetricName:
        name = MetricName(entry) if isinstance(entry, MetricDefinition) else self._named(entry)
        if self.relevance_threshold == 1:
            return name
        return replace(name, definition=name.definition.at_threshold(self.relevance_threshold))

    def _named(self, entry: MetricLike) -> MetricName:
        text = cast("str", entry)  # parse_name raises for other types
        own = {} if self.side_names == ("head", "tail") else self.labels
        for label, side in own.items():
            if isinstance(text, str) and text.startswith((f"{label}_", f"{label}.")):
                return replace(parse_name(text[len(label) + 1 :]), side=side)
        return parse_name(text)


def _sides(given: str | Collection[str]) -> tuple[tuple[Side, ...], tuple[str, str]]:
    """Sides, and the names of head and tail, which two labels may replace."""
    values = [given] if isinstance(given, str) or not isinstance(given, Collection) else list(given)
    own = [value for value in values if isinstance(value, str) and value not in SIDES]
    if len(own) < 2:
        return _listed(cast("Collection[Side]", given), "sides", SIDES), ("head", "tail")
    fit = all(_LABEL.fullmatch(one) and one not in _WORDS for one in own)
    if len(own) != 2 or {*values} - {"both", *own} or not fit:
        raise ValueError(
            f"sides must be of {', '.join(map(repr, SIDES))}, or two labels of your own ([a-z][a-z0-9]*) for "
            f"head and tail, with or without 'both'; got {shorten(given)}"
        )
    first, second = own
    codes: dict[str, Side] = {first: "head", second: "tail", "both": "both"}
    return tuple(dict.fromkeys(codes[value] for value in values)), (first, second)


def _listed(values: Choice | Collection[Choice], name: str, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    listed: object = [values] if isinstance(values, str) else values
    if isinstance(listed, Set):  # the same order on every process
        listed = sorted(listed, key=str)
    if not isinstance(listed, Sequence) or not listed:
        raise ValueError(f"{name} must be a string or several, not none; got {shorten(values)}")
    return tuple(dict.fromkeys(check_choice(name, value, choices) for value in listed))
