"""What a study is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchrankmetrics.checks import check_choice
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.selection import Metrics, Selection
from torchrankmetrics.study.hardest import Triples
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.views import VIEWS, View

CLUSTERS = (None, "group", "sample_id")


@dataclass(frozen=True)
class Options:
    """What a page was asked for: with the ranks, all that its numbers depend on."""

    metrics: tuple[Measure, ...]
    confidence_level: float
    cluster: str | None
    margin: float | None = None
    tasks: int = 0
    triples: Mapping[str, Triples] = field(default_factory=dict)


def measures_of(metrics: Metrics, view: View | None) -> list[Measure]:
    """Read what a table is asked for.

    Raises:
        TypeError, ValueError: for unknown names, and for what has no mean over seeds.
    """
    if view is not None:
        check_choice("view", view, VIEWS)
    selection = Selection([view or "base"], ["realistic"], ["both"], DEFAULT_EXPECTATION)
    measures = list(selection.measures(metrics).values())
    if not measures:
        raise ValueError("metrics is empty: name at least one")
    for measure in measures:
        if not measure.is_estimate:
            raise ValueError(
                f"{measure.key!r} has no mean over seeds and data sets: use a metric in view base, normalized, "
                "adjusted_index or z_score"
            )
    return measures
