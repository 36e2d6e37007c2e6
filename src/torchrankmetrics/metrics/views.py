"""Which combinations of metric, view and rank type have a meaning, and their values."""

from torchrankmetrics.theory.candidates import CandidateCounts
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.provider import ExpectationProvider, unavailable
from torchrankmetrics.theory.sample import RANK_TYPES, RankType
from torchrankmetrics.theory.significance import has_p_value, p_value
from torchrankmetrics.theory.ties import has_expected
from torchrankmetrics.theory.views import VIEWS, View, apply_view, has_view


def has_meaning(definition: RankDefinition, view: View, rank_type: RankType) -> bool:
    """Whether a metric can be seen in a view with a rank type; expectations apart."""
    if view == "p_value" and (not has_p_value(definition) or rank_type == "optimistic"):
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
        raise TypeError(
            f"definition must be a RankDefinition, got {type(definition).__name__}; "
            "for a metric by name use RankCollection(['mrr']) or a named class such as MeanReciprocalRank()"
        )
    if not isinstance(expectation, ExpectationProvider):
        raise TypeError(f"expectation must have a method moments(definition, counts, weights), got {expectation!r}")
    for name, value, choices in (("view", view, VIEWS), ("rank_type", rank_type, RANK_TYPES)):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
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
        if rank_type == "optimistic":
            instead = "'expected'" if has_expected(definition) else "'pessimistic'"
            raise ValueError(
                "view='p_value' has no meaning for rank_type='optimistic': a scorer that ties all candidates would be "
                f"better than chance for sure; use {instead}"
            )
    elif view != "base" and not expectation.answers(definition):
        raise unavailable(definition)


def view_value(
    definition: RankDefinition, view: View, value: float, counts: CandidateCounts, expectation: ExpectationProvider
) -> float:
    """Put a base value into a view; NaN where it is undefined."""
    if view == "p_value":
        return p_value(definition, value, counts)
    return apply_view(definition, view, value, expectation.moments(definition, counts))
