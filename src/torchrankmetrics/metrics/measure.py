"""Measure: a metric with its view, rank type, side and average, applied to an analysis."""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard, get_args

from torchrankmetrics.definitions.candidates import CandidateCounts, Moments
from torchrankmetrics.definitions.sample import RANK_TYPES, RankSample, RankType
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.metrics.analysis import Analysis, Average, Side
from torchrankmetrics.metrics.values import aggregate_of, base_value, has_expected
from torchrankmetrics.metrics.views import VIEWS, View, apply_view, direction, has_view, value_bounds
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION, ExactExpectation
from torchrankmetrics.null.expectation.provider import ExpectationProvider, ExpectationUnavailableError, unavailable
from torchrankmetrics.null.tails.significance import has_p_value, log_p_value, p_value
from torchrankmetrics.queries.definitions import Definition, QueryDefinition
from torchrankmetrics.queries.means import query_moments
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.queries.significance import query_p_value
from torchrankmetrics.validation import check_choice, shown

Counts = CandidateCounts | QuerySample
"""What chance depends on: the candidate counts of tasks, or of queries with their numbers of answers."""
SIDES: tuple[Side, ...] = get_args(Side)
AVERAGES: tuple[Average, ...] = get_args(Average)
# how a key writes a view; the mean rank has words of its own
VIEW_PREFIXES: dict[View, str] = {
    "base": "",
    "normalized": "normalized_",
    "adjusted_index": "adjusted_",
    "z_score": "z_",
    "p_value": "p_",
}
_OWN_WORDS: dict[tuple[str, View], str] = {("mr", "normalized"): "amr", ("mr", "adjusted_index"): "amri"}


@dataclass(frozen=True)
class Measure:
    """A metric, and how it is seen: in which view, with which ranks, on which side, averaged how, against what chance.

    Args:
        definition: the mathematics, of tasks or of queries.
        view: "base", "normalized", "adjusted_index", "z_score" or "p_value".
        rank_type: "realistic", "optimistic", "pessimistic" or "expected"; for metrics of queries realistic is expected.
            p-values are computed from pessimistic ranks whatever the rank type.
        side: "head", "tail", or "both" for the union of the tasks.
        average: "micro" (every task weighs the same) or "macro" (every group does).
        expectation: what gives moments by chance; those of metrics of queries are exact whatever it is.
        side_names: what keys call head and tail.

    Raises:
        TypeError: if the definition or the expectation is of another type.
        ValueError: for an unknown option, or a combination without a meaning or without an expectation; the message
            says what would work.

    >>> from torchrankmetrics.definitions.tasks import MEAN_RANK
    >>> Measure(MEAN_RANK, "adjusted_index", side="head").key
    'head_amri'
    """

    definition: Definition
    view: View = "base"
    rank_type: RankType = "realistic"
    side: Side = "both"
    average: Average = "micro"
    expectation: ExpectationProvider = DEFAULT_EXPECTATION
    side_names: tuple[str, str] = ("head", "tail")

    def __post_init__(self) -> None:
        if not isinstance(self.definition, RankDefinition | QueryDefinition):
            got = type(self.definition).__name__
            raise TypeError(f"a metric must be a RankDefinition, a QueryDefinition or a name such as 'mrr', got {got}")
        if not isinstance(self.expectation, ExactExpectation | ExpectationProvider):  # a protocol alone is slow to ask
            raise TypeError(
                f"expectation must have a method moments(definition, counts, weight), got {shown(self.expectation)}"
            )
        check_choice("view", self.view, VIEWS)
        check_choice("rank_type", self.rank_type, RANK_TYPES)
        check_choice("side", self.side, SIDES)
        check_choice("average", self.average, AVERAGES)
        if why := lacks_meaning(self.definition, self.view, self.rank_type):
            raise ValueError(why)
        if isinstance(self.definition, QueryDefinition):
            if self.rank_type == "realistic" and has_expected(self.definition):
                object.__setattr__(self, "rank_type", "expected")
        elif self.view not in ("base", "p_value") and not self.expectation.answers(self.definition):
            raise unavailable(self.definition)

    @property
    def key(self) -> str:
        """Canonical key, ``[side_][rank_type_][macro_][view_]name``: ``mrr``, ``tail_z_mrr``, ``macro_amri``."""
        of_ranks = isinstance(self.definition, RankDefinition) or not has_expected(self.definition)
        usual = "realistic" if of_ranks else "expected"
        said = [(self.side_name, "both"), (self.rank_type, usual), (self.average, "micro")]
        own = VIEW_PREFIXES[self.view] + self.definition.name
        word = _OWN_WORDS.get((self.definition.name, self.view), own)
        return "_".join([*(part for part, unwritten in said if part != unwritten), word])

    @property
    def side_name(self) -> str:
        """What the side is called."""
        head, tail = self.side_names
        return {"head": head, "tail": tail}.get(self.side, self.side)

    @property
    def higher_is_better(self) -> bool | None:
        """Direction of the value in its view; None for dispersion, counts and the tie rate."""
        return direction(self.definition, self.view)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Lowest and highest value whatever the ranks; None: no bound, or none that is known."""
        return value_bounds(self.definition, self.view)

    @property
    def is_estimate(self) -> bool:
        """Whether the value is an estimate, with an error and a mean over seeds; p-values and counts are none."""
        return self.view != "p_value" and self.definition.aggregation != "count"

    def sample(self, analysis: Analysis) -> RankSample | QuerySample:
        """The tasks or queries that the measure is about, weighted its way.

        Raises:
            ValueError: for queries whose rows do not say the places of their answers.
        """
        if isinstance(self.definition, QueryDefinition):
            return analysis.query_sample(self.definition, self.side, self.average)
        return analysis.sample(self.side, self.average, self.definition.min_candidates)

    def base(self, analysis: Analysis) -> float:
        """Base value, NaN without tasks; worked out once for all measures that differ in view or expectation alone."""
        key = self._asked
        if (value := analysis.base_values.get(key)) is None:
            value = analysis.base_values[key] = base_value(self.definition, self.sample(analysis), self.rank_type)
        return value

    @property
    def _asked(self) -> Hashable:
        """What values of the same rows are remembered by: all but view and expectation."""
        return self.definition, self.rank_type, self.side, self.average

    def value(self, analysis: Analysis) -> float:
        """Value in the view; NaN without tasks and, with one warning per analysis, where chance leaves no room."""
        value = self.base(analysis)
        if analysis.has_queries and isinstance(self.definition, RankDefinition):
            analysis.warn_of_competition(self.definition.name, self.key, self.side)
        if self.view != "base" and not math.isnan(value):
            value = self._in_view(value, analysis)
        if math.isnan(value) and analysis.sample(self.side, self.average).num_tasks:
            analysis.warn_undefined(self.key)
        return value

    def in_view(self, base: float, counts: Counts) -> float:
        """Put a base value into the view; NaN where it is undefined."""
        if self.view == "base":
            return base
        if self.view == "p_value":
            assert isinstance(self.definition, RankDefinition)
            assert isinstance(counts, CandidateCounts)
            return p_value(self.definition, base, counts)
        return apply_view(self.definition, self.view, base, self.moments(counts))

    def log_p_value(self, analysis: Analysis) -> float:
        """Natural logarithm of the p-value, whatever the view: it says how small one is that a float holds as 0."""
        return self._p_value(analysis)[0]

    def p_value_error(self, analysis: Analysis) -> float:
        """Standard error of the p-value from simulating it; 0 where it is computed from the law."""
        return self._p_value(analysis)[1]

    def _p_value(self, analysis: Analysis) -> tuple[float, float]:
        """Logarithm and standard error of the p-value, from pessimistic ranks whatever the rank type of the value.

        Tied candidates change the distribution of realistic ranks and of averages over tie orders. Pessimistic ranks
        are never better than the uniform ranks of the null, so that the test is valid.
        """
        definition, sample = self.definition, self.sample(analysis)
        key = definition, self.side, self.average
        if key not in analysis.p_values:
            if isinstance(definition, QueryDefinition):
                assert isinstance(sample, QuerySample)
                found = query_p_value(definition, sample)
                analysis.p_values[key] = found.log_p, found.standard_error
            else:
                assert isinstance(sample, RankSample)
                value = base_value(definition, sample, "pessimistic")
                mean = float(aggregate_of(definition, sample, "pessimistic")[0])
                analysis.p_values[key] = log_p_value(definition, value, sample.candidate_counts, mean=mean), 0.0
        return analysis.p_values[key]

    def _in_view(self, base: float, analysis: Analysis) -> float:
        if self.view == "p_value":
            return math.exp(self.log_p_value(analysis))
        return self.in_view(base, self.sample(analysis).candidate_counts)

    def moments(self, counts: Counts) -> Moments:
        """Mean and variance of the base value by chance."""
        if isinstance(self.definition, QueryDefinition):
            assert isinstance(counts, QuerySample)
            return query_moments(self.definition, counts)
        assert isinstance(counts, CandidateCounts)
        return self.expectation.moments(self.definition, counts)

    def seen_as(self, *views: View) -> "Iterator[Measure | None]":
        """The same metric in other views; None for a view that has no meaning or no expectation."""
        for view in views:
            try:
                yield replace(self, view=view)
            except ValueError:
                yield None

    def value_or_nan(self, analysis: Analysis) -> float:
        """Value in the view, for tables: NaN without a word where it is undefined or nobody can tell chance."""
        base = self.base(analysis)
        if math.isnan(base):
            return base
        try:
            return self._in_view(base, analysis)
        except ExpectationUnavailableError:
            return math.nan


class Measured(Protocol):
    """A ``RankMetric``, as far as what it measures goes."""

    measure: Measure


def has_measure(entry: object) -> TypeGuard[Measure | Measured]:
    """Whether an entry is a measure or holds one.

    Raises:
        TypeError: for a class of metrics: which of them is meant, it does not say.
    """
    found = isinstance(entry, Measure) or isinstance(getattr(entry, "measure", None), Measure)
    if found and isinstance(entry, type):
        raise TypeError(f"a metric must be an instance, such as {entry.__name__}(...), got the class")
    return found


def measure_of(entry: Measure | Measured) -> Measure:
    """The measure of an entry: a metric holds one."""
    return entry if isinstance(entry, Measure) else entry.measure


def lacks_meaning(definition: Definition, view: View, rank_type: RankType) -> str | None:
    """Why a metric cannot be seen so, and what to use instead; None if it can, expectations apart."""
    if not has_view(definition, view):
        instead = " or ".join(repr(known) for known in VIEWS if has_view(definition, known))
        lacks = "expectation" if not definition.has_null else "best value"
        return f"view={view!r} has no meaning for {shown(definition.name)}: it has no {lacks}; use {instead}"
    if rank_type == "expected" and not has_expected(definition):
        return (
            f"rank_type='expected' is known for means of a transform, GMR and IGMR, not for {shown(definition.name)}; "
            "use 'realistic', 'optimistic' or 'pessimistic'"
        )
    if view == "p_value" and not has_p_value(definition):
        return f"view='p_value' is not known for {shown(definition.name)}: it is no function of a mean of f"
    return None
