"""Views of a base value: normalized, adjusted index and z-score as affine maps."""

import math
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from torchrankmetrics.definitions.candidates import FloatArray, Moments
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import known
from torchrankmetrics.queries.binary import FirstRank
from torchrankmetrics.queries.definitions import Definition, QueryDefinition

View = Literal["base", "normalized", "adjusted_index", "z_score", "p_value"]
VIEWS: tuple[View, ...] = ("base", "normalized", "adjusted_index", "z_score", "p_value")
Number = TypeVar("Number", float, FloatArray)


def has_view(definition: Definition, view: View) -> bool:
    """Whether a view has a meaning for a metric.

    Base always; the others need a null, z-score and p-value a direction too, and the index an optimum besides.
    """
    if view == "base":
        return True
    if view == "adjusted_index" and definition.optimum is None:
        return False
    return definition.has_null and (view == "normalized" or definition.higher_is_better is not None)


def direction(definition: Definition, view: View) -> bool | None:
    """Whether a higher value of the view is better; None for dispersion, counts and the tie rate."""
    if view in ("adjusted_index", "z_score"):
        return True
    return False if view == "p_value" else definition.higher_is_better


def value_bounds(definition: Definition, view: View) -> tuple[float | None, float | None]:
    """Lowest and highest value whatever the ranks and candidate counts; None: no bound, or none that is known.

    A metric without direction has none here: plots call a bound the best value.
    """
    if view == "p_value":
        return 0.0, 1.0
    higher = definition.higher_is_better
    if view == "z_score" or higher is None:
        return None, None
    if isinstance(definition, QueryDefinition):
        return _query_bounds(definition, view)
    if view == "adjusted_index":
        # r -> N + 1 - r turns the mean rank around its mean by chance: the worst is as far from it as the best
        return -1.0 if definition.exponents == (1, 1) else None, 1.0
    worst = _value_at_infinity(definition)
    if view == "normalized":  # M / E: of the bounds only zero stays where it is
        return 0.0 if higher and worst == 0 else None, None
    return (worst, definition.optimum) if higher else (definition.optimum, worst)


def _query_bounds(definition: QueryDefinition, view: View) -> tuple[float | None, float | None]:
    """Those of metrics in [0, 1] and of first ranks; of a mean of any f only the best index is known."""
    if view == "adjusted_index":
        return None, 1.0
    if isinstance(definition.kind, FirstRank):
        return (None if view == "normalized" else 1.0), None
    if definition.f is not None and not known(definition.f).is_share:
        return None, None
    return 0.0, None if view == "normalized" else 1.0


def _value_at_infinity(definition: RankDefinition) -> float | None:
    """What the value tends to as ranks grow; None without a limit, and for a user's functions, which need not say."""
    f, g = known(definition.f), known(definition.g)
    if not (f.has_limit and g.has_limit):
        return None
    value = float(g(f(torch.tensor(math.inf, dtype=torch.float64, device="cpu"))))
    return value if math.isfinite(value) else None


def looks_reversed(index: float, z: float) -> bool:
    """Whether AMRI and its z-score are so far below chance that the order of the scores must be the wrong one.

    A z-score of -6 is not reached by chance, nor with a dozen triples; an untrained model of few relations has a low z
    too, but no such index.
    """
    return z < -6.0 and index < -0.25


def apply_view(definition: Definition, view: View, value: float, moments: Moments) -> float:
    """Put a base value into a view: an affine map of the value, NaN where it is undefined.

    normalized M / E; adjusted index (M - E) / (optimum - E); z-score +-(M - E) / sqrt(V), turned so that larger is
    better. The last two are NaN where the null has no variance, which is exact: there is nothing to adjust by.

    Raises:
        ValueError: for the p-value, which is no affine map: see ``significance.p_value``.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 3; for z of a decreasing metric the sign is that of PyKEEN.

    >>> from torchrankmetrics.definitions.tasks import MEAN_RANK
    >>> apply_view(MEAN_RANK, "adjusted_index", 1.0, Moments(mean=4.0, variance=2.0))
    1.0
    """
    if view == "base":
        return float(value)
    offset, scale = _offset_and_scale(definition, view, moments.mean, moments.variance, moments.optimum)
    return (float(value) - offset) / float(scale) + 0.0 if scale != 0 else math.nan  # + 0.0: at chance 0, not -0


def apply_view_to_each(
    definition: Definition,
    view: View,
    value: npt.ArrayLike,
    mean: npt.ArrayLike,
    variance: npt.ArrayLike,
    optimum: npt.ArrayLike | None = None,
) -> FloatArray:
    """Put base values (m,), each with its own moments (m,), into a view; see ``apply_view``.

    Of metrics of queries the optimum is one of the moments.
    """
    values = np.asarray(value, dtype=np.float64)
    if view == "base":
        return values
    best = None if optimum is None else np.asarray(optimum)
    offset, scale = _offset_and_scale(definition, view, np.asarray(mean), np.asarray(variance), best)
    with np.errstate(all="ignore"):
        return np.where(scale == 0, math.nan, (values - offset) / scale + 0.0)


def view_slope(definition: Definition, view: View, moments: Moments) -> float:
    """Slope of an affine view: what an error of the base value is multiplied by; NaN where the view is undefined.

    Raises:
        ValueError: for the p-value, which is no affine map.
    """
    if view == "base":
        return 1.0
    scale = float(_offset_and_scale(definition, view, moments.mean, moments.variance, moments.optimum)[1])
    return 1 / scale if scale != 0 else math.nan


def _offset_and_scale(
    definition: Definition, view: View, mean: Number, variance: Number, optimum: Number | None
) -> tuple[Number | float, Number]:
    """What is taken off a value, and what it is divided by, 0 where there is no variance: of one value or of many."""
    if view == "normalized":
        return 0.0, mean
    if view == "adjusted_index":
        best = definition.optimum if isinstance(definition, RankDefinition) else optimum
        assert best is not None
        return mean, (best - mean) * (variance != 0)
    if view == "z_score":
        return mean, np.sqrt(variance) * (1 if definition.higher_is_better else -1)
    raise ValueError(f"view {view!r} is not an affine view; known: base, normalized, adjusted_index, z_score")
