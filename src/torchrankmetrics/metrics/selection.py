"""`Selection`: the measures of metrics in several views, rank types and sides."""

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from torchrankmetrics.definitions.protocol import VIEWS, Average, EmptyQueries
from torchrankmetrics.definitions.sample import RANK_TYPES
from torchrankmetrics.metrics.measure import SIDES, VIEW_PREFIXES, Measure, by_key, measure_of
from torchrankmetrics.metrics.names import QUALIFIERS, MetricName, Metrics, name_or_measure
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.validation import check_choice, check_key, shorten

DEFAULT_METRICS = (
    "mrr",
    "mr",
    "hits_at_1",
    "hits_at_3",
    "hits_at_10",
    "amri",
    "adjusted_mrr",
    "z_mrr",
)
# synonyms of options, which are those that names accept
_OPTION_WORDS: dict[str, dict[str, Any]] = {
    "views": {prefix.rstrip("_"): view for view, prefix in VIEW_PREFIXES.items() if prefix},
    "rank_types": QUALIFIERS["rank_type"],
    "sides": QUALIFIERS["side"],
}


@dataclass
class Selection:
    """Options that turn names into measures."""

    views: Any = "base"  # one or several, as are the next two
    rank_types: Any = "realistic"
    sides: Any = "both"
    expectation: ExpectationProvider | None = None
    average: Average = "micro"
    relevance_threshold: float = 1.0
    empty_queries: EmptyQueries | None = None

    def __post_init__(self) -> None:
        self._options: dict[str, Any] = {
            "average": self.average,
            "expectation": self.expectation,
            "empty_queries": self.empty_queries,
        }
        self.views = _read_options("views", self.views, VIEWS)
        self.rank_types = _read_options("rank_types", self.rank_types, RANK_TYPES)
        self.sides = _read_options("sides", self.sides, SIDES)

    def entries(self, metrics: Any) -> Iterator[tuple[str, Any]]:
        """Yield keys with measures, or with entries that have one; repeated names are dropped."""
        if isinstance(metrics, Mapping):
            for key, entry in metrics.items():
                check_key("a key", key)
                if measure_of(entry):
                    yield key, entry
                else:
                    yield key, self._name(entry).measure(**self._options)
            return
        if isinstance(metrics, str) or measure_of(metrics) or hasattr(metrics, "compute"):
            metrics = [metrics]
        if not isinstance(metrics, Sequence):
            got = f"{type(metrics).__name__}: pass a list"
            raise TypeError(f"metrics must be names, RankMetric instances or a dict, got {got}")
        seen: dict[str, Measure] = {}
        for entry in metrics:
            own = measure_of(entry)
            for measure in [own] if own else self._product(self._name(entry)):
                if own or seen.get(measure.key) != measure:
                    seen[measure.key] = measure
                    yield measure.key, entry if own else measure
        if metrics and not seen:  # every combination is undefined: raise the reason of the first
            self._name(metrics[0]).measure(view=self.views[0], rank_type=self.rank_types[0])

    def measures(self, metrics: Metrics | None) -> dict[str, Measure]:
        """The measures of ``entries`` by key; None: the default metrics."""
        entries = self.entries(DEFAULT_METRICS if metrics is None else metrics)
        found = [(key, measure) for key, entry in entries if (measure := measure_of(entry))]
        if isinstance(metrics, Mapping):
            return dict(found)
        return by_key(measure for _, measure in found)

    def _product(self, name: MetricName) -> Iterator[Measure]:
        views = self.views if name.view is None else (name.view,)
        rank_types = self.rank_types if name.rank_type is None else (name.rank_type,)
        sides = self.sides if name.side is None else (name.side,)
        # a name that is undefined raises; undefined combinations with options are left out
        defined = (
            name.definition.why_undefined(name.view or "base", name.rank_type or "realistic")
            is None
        )
        for side, rank_type, view in itertools.product(sides, rank_types, views):
            if not (defined and name.definition.why_undefined(view, rank_type)):
                yield name.measure(**self._options, view=view, rank_type=rank_type, side=side)

    def _name(self, metric: Any) -> MetricName:
        """The parsed name of a metric that has no measure yet."""
        name: MetricName = name_or_measure(metric, self.relevance_threshold)
        return name


def _read_options(name: str, given: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
    """Read one or several views, rank types or sides, without repeats."""
    values = [given] if isinstance(given, str) else given
    if isinstance(values, Set):  # in the same order on every process
        values = sorted(values, key=str)
    if not isinstance(values, Sequence) or not values:
        raise ValueError(f"{name} must be a string or several, not none; got {shorten(given)}")
    return tuple(dict.fromkeys(_read_option(name, value, choices) for value in values))


def _read_option(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Read a view, a rank type or a side, or a synonym of one in names, in any case."""
    if isinstance(value, str):
        word = value.lower()
        value = _OPTION_WORDS[name].get(word, word)
    return check_choice(name, value, choices)
