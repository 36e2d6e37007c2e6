"""Names of metrics: the parser, and the measure of a name."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchrankmetrics.definitions.protocol import (
    Average,
    Definition,
    EmptyQueries,
    MetricDefinition,
    Side,
    View,
)
from torchrankmetrics.definitions.sample import RANK_TYPES, RankType
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.metrics.measure import (
    AVERAGES,
    SIDES,
    VIEW_PREFIXES,
    Measure,
    Measured,
    measure_of,
)
from torchrankmetrics.metrics.registry import (
    AMBIGUOUS,
    COMPACT,
    NUMBERED,
    REAL,
    SPELLINGS,
    WHOLE,
    WITH_VIEW,
    read_real,
)
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.validation import shorten

MetricLike = str | Definition | Measure | Measured
"""A metric: a name, a definition, or an object with a measure, such as a ``RankMetric``."""
Metrics = MetricLike | Sequence[MetricLike] | Mapping[str, MetricLike]
"""One, several, or by keys of one's own."""


def _by_itself(words: Iterable[str]) -> dict[str, str]:
    return {word: word for word in words}


# words before the metric, including PyKEEN's
QUALIFIERS: dict[str, dict[str, str]] = {
    "side": {"left": "head", "right": "tail", **_by_itself(SIDES)},
    "rank_type": {
        "avg": "realistic",
        "average": "realistic",
        "best": "optimistic",
        "worst": "pessimistic",
        **_by_itself(RANK_TYPES),
    },
    "average": _by_itself(AVERAGES),
}
_LONGEST = 200  # characters of a name: patterns take quadratic time


@dataclass(frozen=True)
class MetricName:
    """A parsed name: a definition and its qualifiers; None: not in the name."""

    definition: Definition
    view: View | None = None
    rank_type: RankType | None = None
    side: Side | None = None
    average: Average | None = None

    def measure(self, **options: Any) -> Measure:
        """Return the measure; options of ``Measure`` replace qualifiers that the name lacks."""
        return Measure(
            **options | {one: value for one, value in vars(self).items() if value is not None}
        )


def parse_name(name: object) -> MetricName:
    """Parse a metric name in any case, or a definition.

    Names are canonical keys, synonyms and PyKEEN's ``side.rank_type.metric``.
    """
    if isinstance(name, MetricName):
        return name
    if isinstance(name, MetricDefinition):
        return MetricName(name)
    if not isinstance(name, str):
        raise _not_a_metric(name)
    if len(name) <= _LONGEST and (parts := _several(name)):
        raise ValueError(f"{shorten(name)} looks like several metrics: pass {parts}")
    text = re.sub(r"[\s\-]+", "_", name.strip().lower())
    text = re.sub(r"\(rel=(\d+)\)(.*)", r"\2_rel_\1", text)  # ir_measures: AP(rel=2)@10
    plain = text.replace(".", "_") if re.match(r"[a-z_]+\.", text) else text
    result = None if len(name) > _LONGEST else _parse_qualified(plain)
    if result is None:
        raise _unknown_metric(name, text)
    return result


def _several(text: str) -> list[str]:
    """Return the names of a text such as "mrr, hits@10"; none if a part is not a name."""
    parts = re.split(r"[,;\s]+", text.strip(" ,;"))
    if len(parts) < 2:
        return []
    try:
        for part in parts:
            parse_name(part)
    except ValueError:
        return []
    return parts


def _unknown_metric(name: str, text: str) -> ValueError:
    """Build the error of a name, with a hint for its ``text`` in lower case without spaces."""
    from torchrankmetrics.metrics.hints import LISTED, hint_for, nearest

    hint = f"; {LISTED}"
    if len(name) <= _LONGEST:
        hint = hint_for(text) or nearest(text, lambda near: parse_name(near).measure().key)
    return ValueError(f"unknown metric {shorten(name)}{hint}")


def _not_a_metric(value: object) -> TypeError:
    hint = ""
    if hasattr(value, "compute"):
        from torchrankmetrics.metrics.hints import hint_for_class

        hint = hint_for_class(value, lambda name: parse_name(name).definition)
    elif inspect.isroutine(value):
        hint = "; write RankDefinition('my_metric', f=function)"
    kinds = "a RankDefinition, a QueryDefinition or a name such as 'mrr'"
    return TypeError(f"a metric must be {kinds}, got {type(value).__name__}{hint}")


def name_or_measure(metric: MetricLike | MetricName, relevance_threshold: float) -> Any:
    """Measure or parsed name of a metric, at another threshold than 1 if it is given."""
    name: Any = measure_of(metric) or parse_name(metric)
    if relevance_threshold == 1:
        return name
    return replace(name, definition=name.definition.at_threshold(relevance_threshold))


def as_measure(
    metric: MetricLike | MetricName,
    expectation: ExpectationProvider | None = None,
    relevance_threshold: float = 1.0,
    empty_queries: EmptyQueries | None = None,
    **qualifiers: Any,
) -> Measure:
    """Return the measure of a metric with view, rank type, side and average; None: not given."""
    if empty_queries is not None:
        other = as_measure(metric, expectation, relevance_threshold, **qualifiers)
        return replace(other, empty_queries=empty_queries)
    name = name_or_measure(metric, relevance_threshold)
    qualifiers = {one: value for one, value in qualifiers.items() if value is not None}
    for one, value in qualifiers.items():
        if (own := getattr(name, one)) not in (None, value):
            key = metric if isinstance(metric, str) else as_measure(metric).key
            raise ValueError(
                f"{shorten(key)} has {one}={own!r}, but {one}={shorten(value)} was passed; omit one"
            )
    if isinstance(name, MetricName):
        return name.measure(**qualifiers, expectation=expectation)
    measure: Measure = name
    return measure if expectation is None else replace(measure, expectation=expectation)


def base_definition(metric: str | RankDefinition) -> RankDefinition:
    """Return the definition of a base metric of ranking tasks, from a name or a definition."""
    name = parse_name(metric)
    definition = name.definition
    if name != MetricName(definition):
        raise ValueError(
            f"metric must be a base metric, such as {shorten(definition.name)}; got "
            f"{shorten(metric)}"
        )
    if (of_tasks := definition.of_tasks) is None:
        raise ValueError(
            f"metric must be of tasks, such as 'mrr'; {shorten(definition.name)} is a query metric"
        )
    return of_tasks


def _parse_qualified(text: str) -> MetricName | None:
    """Parse side, rank type and average, once each in any order, and the metric in its view."""
    qualifiers: dict[str, Any] = {}
    # first: the average of average_precision is part of the word
    while (found := _parse_view(text)) is None:
        word, _, text = text.partition("_")
        kinds = [kind for kind, words in QUALIFIERS.items() if word in words]
        if not kinds or kinds[0] in qualifiers:
            return None
        qualifiers[kinds[0]] = QUALIFIERS[kinds[0]][word]
    return MetricName(*found, **qualifiers)


def _parse_view(text: str) -> tuple[Definition, View | None] | None:
    text = WITH_VIEW.get(text, text)
    if definition := _parse_base(text):
        return definition, None
    for view, prefix in VIEW_PREFIXES.items():
        if prefix and text.startswith(prefix):
            inner = text.removeprefix(prefix)
            if definition := _parse_base(inner) or _parse_base(inner.removesuffix("_index")):
                return definition, view
    for pattern, view in COMPACT.items():
        match = re.fullmatch(pattern, text)
        if match and (definition := _parse_base(match[1])):
            return definition, view
    return None


def _parse_base(text: str) -> Definition | None:
    if text in WHOLE:
        return WHOLE[text].definition()
    for pattern, spelling in SPELLINGS.items():
        text = re.sub(rf"^{pattern}$", spelling, text)
    for pattern, message in AMBIGUOUS.items():
        if match := re.fullmatch(pattern, text):
            raise ValueError(message.format(k=match[1]))
    if definition := _parse_number(text):
        return definition
    if match := re.fullmatch(rf"(.+)_rel_({REAL})", text):
        definition = _parse_base(match[1])
        return definition and definition.at_threshold(read_real(match[2]))
    return None


def _parse_number(text: str) -> Definition | None:
    """Parse a word and the number of its metric; ValueError for a metric that lacks it."""
    for number, entries in NUMBERED.items():
        match = re.fullmatch(f"(.+?){number.pattern}", text)
        if match and match[1] in entries:
            return entries[match[1]].definition(number.read(match[2]))
    for number, entries in NUMBERED.items():
        placeholder = f"(?:{number.joint}|{number.short_joint}){number.symbol}"
        if entry := entries.get(re.sub(f"{placeholder}$", "", text)):
            example = number.name(entry.name, number.example)
            raise ValueError(f"{shorten(text)} needs {number.meaning}, for example {example}")
    return None
