"""Which combinations of metric, view and rank type have a meaning, their values, and what follows from the view."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torchrankmetrics.theory.candidates import CandidateCounts
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.provider import ExpectationProvider, unavailable
from torchrankmetrics.theory.sample import RANK_TYPES, RankType
from torchrankmetrics.theory.significance import has_p_value, p_value
from torchrankmetrics.theory.ties import has_expected
from torchrankmetrics.theory.views import VIEWS, View, apply_view, has_view


def has_meaning(definition: RankDefinition, view: View, rank_type: RankType) -> bool:
    """Whether a metric can be seen in a view with a rank type; expectations apart."""
    if view == "p_value" and not has_p_value(definition):
        return False
    if rank_type == "expected" and not has_expected(definition):
        return False
    return has_view(definition, view)


def check_member(definition: RankDefinition, view: View, rank_type: RankType, expectation: ExpectationProvider) -> None:
    """Refuse a combination without a meaning, or one whose expectation the provider cannot give.

    Raises:
        TypeError: if the definition or the provider is of another type.
        ValueError: with what would work instead.
    """
    if not isinstance(definition, RankDefinition):
        raise TypeError(f"definition must be a RankDefinition or a name such as 'mrr', got {type(definition).__name__}")
    if not isinstance(expectation, ExpectationProvider):
        raise TypeError(f"expectation must have a method moments(definition, counts, weights), got {expectation!r}")
    check_choice("view", view, VIEWS)
    check_choice("rank_type", rank_type, RANK_TYPES)
    if not has_view(definition, view):
        allowed = [known for known in VIEWS if has_view(definition, known)]
        instead = " or ".join(map(repr, allowed))
        lacks = "expectation" if not definition.has_null else "best value"
        raise ValueError(f"view={view!r} has no meaning for {definition.name!r}: it has no {lacks}; use {instead}")
    if rank_type == "expected" and not has_expected(definition):
        raise ValueError(
            f"rank_type='expected' is known for means of a transform, GMR and IGMR, not for {definition.name!r}; "
            "use 'realistic', 'optimistic' or 'pessimistic'"
        )
    if view == "p_value":
        if not has_p_value(definition):
            raise ValueError(f"view='p_value' is not known for {definition.name!r}: it is no function of a mean of f")
    elif view != "base" and not expectation.answers(definition):
        raise unavailable(definition)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse an option that is none of the known ones."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def view_value(
    definition: RankDefinition, view: View, value: float, counts: CandidateCounts, expectation: ExpectationProvider
) -> float:
    """Put a base value into a view; NaN where it is undefined."""
    if view == "p_value":
        return p_value(definition, value, counts)
    return apply_view(definition, view, value, expectation.moments(definition, counts))


Fact = TypeVar("Fact")


class FromView(Generic[Fact]):
    """A constant of a metric that its definition and view decide; on the class, as torchmetrics reads it, None if open.

    Args:
        derive: gives it from a definition and a view.
    """

    def __init__(self, derive: Callable[[RankDefinition, View], Fact | None]) -> None:
        self._derive = derive

    def __get__(self, metric: Any, owner: type) -> Fact | None:
        source: Any = owner if metric is None else metric
        definition = getattr(source, "definition", None)
        return None if definition is None else self._derive(definition, source.view)
