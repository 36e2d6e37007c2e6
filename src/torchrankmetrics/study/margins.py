"""Models that no other is better than by a margin or more: non-inferiority to the best of a data set, as one family."""

import math
from collections.abc import Mapping

import numpy as np

from torchrankmetrics.checks import one_number
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.study.cells import Joint, Measured
from torchrankmetrics.theory.inference.equivalence import one_sided
from torchrankmetrics.theory.inference.testing import holm


def check_margin(margin: float | None) -> float | None:
    """Refuse what is no margin.

    Raises:
        TypeError, ValueError: unless it is None, or a number above 0.
    """
    if margin is None:
        return None
    number = one_number(margin)
    if number is None:
        raise TypeError(f"margin must be a number or None, got {margin!r} of type {type(margin).__name__}")
    if not 0 < number < math.inf:
        raise ValueError(f"margin must be above 0 and finite, in the units of the metrics; got {margin}")
    return float(number)


def p_within(
    found: Mapping[tuple[str, str], Measured], measures: Mapping[str, Measure], margin: float
) -> dict[tuple[str, str, str], float]:
    """Test of every model "some other of the data set is better by the margin or more", by (metric, model, data set).

    It is rejected where that is rejected for each of the others, whichever of them is the best in truth (an
    intersection-union test); Holm's correction makes all cells one family.

    Args:
        found: by (metric, data set).
        measures: by metric.
        margin: > 0, in the units of the metrics in their views.

    Source: Berger 1982 (doi:10.1080/00401706.1982.10487790); Schuirmann 1987 (doi:10.1007/BF01068419).
    """
    p_values = {
        (key, model, data): _p_of(one.joint, i, len(one.tested), bool(measures[key].higher_is_better), margin)
        for (key, data), one in found.items()
        if one.joint is not None
        for i, model in enumerate(one.tested)
    }
    known = {place: p for place, p in p_values.items() if not math.isnan(p)}
    return dict(zip(known, holm(np.array(list(known.values()))).tolist(), strict=True)) if known else {}


def _p_of(joint: Joint, model: int, number: int, higher: bool, margin: float) -> float:
    """The largest of the p-values of "the other is better by the margin or more"."""
    if not joint.slope or math.isnan(joint.slope):
        return math.nan
    sign = 1 if higher else -1
    values = joint.models.value * joint.slope * sign  # up to a constant, higher is better
    found = []
    for other in range(number):
        if other != model:
            lead = float(values[model] - values[other])
            found.append(one_sided(lead, margin, joint.p_value(model, other, -sign * margin), 1.0).below)
    return max(found)
