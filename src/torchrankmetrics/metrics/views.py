"""Views of a base value: normalized, adjusted index and z-score as affine maps."""

import math
from typing import TypeVar

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, Moments
from torchrankmetrics.definitions.protocol import Definition, View

Number = TypeVar("Number", float, FloatArray)


def apply_view(definition: Definition, view: View, value: float, moments: Moments) -> float:
    """Put a base value into a view: an affine map of the value, NaN if it is undefined.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 3; z of a decreasing metric has PyKEEN's sign.
    """
    if view == "base":
        return float(value)
    offset, scale = offset_and_scale(definition, view, moments.mean, moments.variance, definition.best(moments))
    return (float(value) - offset) / float(scale) + 0.0 if scale != 0 else math.nan  # + 0.0: 0 under the null, not -0


def view_slope(definition: Definition, view: View, moments: Moments) -> float:
    """Slope of an affine view: factor of errors of the base value; NaN if the view is undefined."""
    if view == "base":
        return 1.0
    _, scale = offset_and_scale(definition, view, moments.mean, moments.variance, definition.best(moments))
    return float(1 / scale) if scale != 0 else math.nan


def offset_and_scale(
    definition: Definition, view: View, mean: Number, variance: Number, best: float | None
) -> tuple[Number | float, Number]:
    """Return the offset and the divisor of a view, for one value or many; the divisor is 0 without variance."""
    if view == "normalized":
        return 0.0, mean
    if view == "adjusted_index":
        assert best is not None
        return mean, (best - mean) * (variance != 0)
    if view == "z_score":
        return mean, np.sqrt(variance) * (1 if definition.higher_is_better else -1)
    raise ValueError(f"view {view!r} is not an affine view; known: base, normalized, adjusted_index, z_score")
