"""`sample_size` and `detectable_difference`: how many queries a paired comparison needs."""

import math
from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t as student

from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.validation import check_int, one_number, shorten

Differences = Mapping[object, float] | npt.ArrayLike
_MOST = 10**12  # queries
_MIDPOINTS = (np.arange(1000) + 0.5) / 1000  # quantiles of the mean over a distribution


def sample_size(
    values: Differences, *, difference: float, power: float = 0.8, confidence_level: float = 0.95
) -> int:
    """Compute the number of queries for which a paired test detects a difference of two models.

    The formula is the power of the two-sided paired t-test, which the sign-flip test of ``compare``
    approaches for many queries, with the standard deviation of the pilot. Values must be of
    independent units: for both sides of a triple, pass one mean difference per triple.

    Args:
        values (dict or array-like): (n,) differences a - b of the metric in single pilot queries,
            or a dict of query -> difference; n >= 2.
        difference (float): difference of the means to detect, not 0.
        power (float, default 0.8): probability that the test detects it, in (0, 1).
        confidence_level (float, default 0.95): 1 - the size of the test.

    Returns:
        The smallest such number, at least 2.

    Raises:
        ValueError: for fewer than two values, equal values, and options out of range.

    Source: Cohen 1988 (doi:10.4324/9780203771587), chapter 2.

    >>> from torchrankmetrics.inference import sample_size
    >>> pilot = [0.1, -0.3, 0.5, 0.0, 0.2, -0.1, 0.4, 0.0]
    >>> sample_size(pilot, difference=0.05)
    218
    """
    number = one_number(difference)
    if number is None or not 0 < abs(number) < math.inf:
        raise ValueError(f"difference must be a finite number, not 0; got {shorten(difference)}")
    effect = abs(number) / _standard_deviation(values)
    power, alpha = _checked(power, confidence_level)
    size = 2
    while size < _MOST and _power(size, effect, alpha) < power:
        size *= 2
    smaller = range(2, size + 1)
    return smaller[bisect_left(smaller, power, key=lambda n: _power(n, effect, alpha))]


def detectable_difference(
    values: Differences,
    size: int | None = None,
    *,
    power: float = 0.8,
    confidence_level: float = 0.95,
) -> float:
    """Compute the smallest difference of two models that a paired test on queries detects.

    Args:
        values (dict or array-like): differences of single pilot queries, as in ``sample_size``.
        size (int, default None): number of queries; None: that of ``values``.
        power (float, default 0.8): probability that the test detects it, in (0, 1).
        confidence_level (float, default 0.95): 1 - the size of the test.

    Returns:
        The difference of the means, > 0, in the units of the metric.

    Raises:
        ValueError: as ``sample_size``.

    >>> from torchrankmetrics.inference import detectable_difference
    >>> pilot = [0.1, -0.3, 0.5, 0.0, 0.2, -0.1, 0.4, 0.0]
    >>> round(detectable_difference(pilot, 218), 3)
    0.05
    """
    deviation = _standard_deviation(values)
    power, alpha = _checked(power, confidence_level)
    if power <= alpha:
        raise ValueError(f"power must be above 1 - confidence_level = {alpha:g}, got {power:g}")
    number = len(_as_array(values)) if size is None else check_int("size", size, 2)
    largest = 1.0
    while _power(number, largest, alpha) < power:
        largest *= 2
    effect = brentq(lambda effect: _power(number, effect, alpha) - power, 0.0, largest)
    return float(effect) * deviation


def _power(size: int, effect: float, alpha: float) -> float:
    """Power of the two-sided paired t-test for a mean of ``effect`` standard deviations.

    It is the mean of normal probabilities over the distribution of the estimated deviation.
    """
    bar = float(student.isf(alpha / 2, size - 1))
    deviation = np.sqrt(chi2.ppf(_MIDPOINTS, size - 1) / (size - 1))
    shift = effect * math.sqrt(size)
    beyond = norm.sf(bar * deviation - shift) + norm.cdf(-bar * deviation - shift)
    return float(beyond.mean())


def _checked(power: float, confidence_level: float) -> tuple[float, float]:
    """Power, and size of the test."""
    level = check_confidence_level(confidence_level)
    return check_confidence_level(power, "power", 0.8), 1 - level


def _standard_deviation(values: Differences) -> float:
    array = _as_array(values)
    deviation = float(array.std(ddof=1))
    if not deviation > 1e-12 * float(np.abs(array).max()):
        raise ValueError("values must differ: equal differences have no standard deviation")
    return deviation


def _as_array(values: Differences) -> npt.NDArray[np.float64]:
    given = list(values.values()) if isinstance(values, Mapping) else values
    array = np.asarray(given, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(
            "values must be at least 2 finite differences a - b, one per query, got shape "
            f"{array.shape}; for values of two models subtract them query by query"
        )
    return array
