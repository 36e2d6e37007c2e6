"""The tilted distribution of a sum on multiples of a step, by a discrete Fourier transform."""

import math

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.null.tails.lists import Values
from torchrankmetrics.null.tails.summands import Summands

# standard deviations that a grid spans, and points at least
_FAR = 24
_LEAST_WIDTH = 1 << 12
_POINTS = 1 << 22  # groups x points of a transform
_PLACES = 1 << 19  # ranks that are cells of their own
_BLOCK = 1 << 18  # points in memory
_FINEST = 1e-6  # step, relative to the largest distance
_MISFIT = 0.05  # of the sum, in steps
# points of a grid in a standard deviation, for few and many groups
_RESOLUTIONS = (256, 64)
_FEW_GROUPS = 256
ROUGHNESS = 3e-3  # of a sum that is smooth


def lattice_step(
    values: Values, which: IntArray, v: FloatArray, c: FloatArray
) -> tuple[float, float]:
    """Step that divides all distances of values v x, and how far sums may be from its multiples.

    Both are 0 if no step is known.
    """
    distances = np.unique(values.distances())
    weights = np.unique(v)
    parts = [_common_step(distances[distances > 0]), _common_step(weights)]
    if not all(parts):
        return 0.0, 0.0
    step = parts[0] * parts[1]
    far = float(np.abs(distances / parts[0] - np.rint(distances / parts[0])).max())
    far_weight = np.abs(v / parts[1] - np.rint(v / parts[1]))
    # in steps; a distance of n units of a weight of m units
    span = (values.best - values.worst)[which] / parts[0]
    misfit = float(c @ (far_weight * span + far * len(distances) * v / parts[1]))
    return (step, misfit * step) if misfit < _MISFIT else (0.0, 0.0)


def _common_step(distances: FloatArray) -> float:
    """Largest common divisor of ascending distances, by Euclid's algorithm; 0 without one."""
    if not len(distances):
        return 0.0
    largest = float(distances[-1])
    least = _FINEST * largest
    step = largest
    for distance in distances.tolist():
        rest = distance
        while rest > least:
            remainder = abs(math.remainder(step, rest))
            step = rest
            rest = remainder
        if step < 100 * least:
            return 0.0
    return largest / round(largest / step)


def on_lattice(sums: Summands, s: float, t: float, step: float) -> float | None:
    """Log P(S >= s) if all values are multiples of the step; None if it is too expensive.

    s is about the mean, and halfway between two multiples.
    """
    if not _is_affordable(sums, t, step):
        return None
    if not sums.values.is_exact:
        if float(sums.values.num_values[sums.which].sum(dtype=np.float64)) > _PLACES:
            return None
        sums = sums.in_single_places()
    return _log_tail(sums, s, t, step)


def on_grid(sums: Summands, s: float, t: float) -> float | None:
    """Log P(S >= s), s about the mean, on a grid.

    None if S is too rough for it, or has too many groups.
    """
    resolution = _RESOLUTIONS[len(sums.c) > _FEW_GROUPS]
    short = sums.top - sums.mean - s
    deviation = sums.cumulants(t).deviation
    # s is halfway between two points
    steps = max(round(short / deviation * resolution - 0.5), 0) + 0.5
    if not _is_affordable(sums, t, short / steps):
        return None
    if sums.roughness(t, resolution / 2) > ROUGHNESS:
        return None
    return _log_tail(sums, s, t, short / steps)


def _is_affordable(sums: Summands, t: float, step: float) -> bool:
    return not sums.is_interpolated and _size(sums, t, step) * len(sums.c) <= _POINTS


def _size(sums: Summands, t: float, step: float) -> int:
    """Number of points of a grid that contains nearly all mass of the tilted sum.

    It is a power of two.
    """
    least = min(_LEAST_WIDTH, _POINTS // len(sums.c))
    width = max(_FAR * sums.cumulants(t).deviation / step, least)
    width = min((sums.top - sums.bottom) / step + 2, width)
    return 1 << math.ceil(math.log2(max(width, 2)))


def _log_tail(sums: Summands, s: float, t: float, step: float) -> float:
    """Log P(S >= s) of values moved to a grid from the largest sum down."""
    found = sums.cumulants(t)
    size = _size(sums, t, step)
    pmf = np.fft.irfft(np.exp(_log_transform(sums, t, step, size)), size)
    origin = float(sums.c @ _origins(sums))
    # around the mean, between the smallest and the largest sum
    lowest = round((found.mean - origin) / step) - size // 2
    lowest = min(max(lowest, math.floor((sums.bottom - sums.top) / step) - 1), 2 - size)
    place = lowest + np.arange(size)
    distance = place * step + origin - s
    is_reached = (distance >= 0) == (t >= 0)  # for t < 0 the sums below s: nothing cancels
    terms = np.maximum(pmf[place[is_reached] % size], 0.0) * np.exp(-t * distance[is_reached])
    log_p = found.log_m - t * s + math.log(max(float(terms.sum()), 1e-300))
    return log_p if t >= 0 else log_of_rest(log_p)


def log_of_rest(log_p: float) -> float:
    """Logarithm of 1 - p."""
    return math.log(max(-math.expm1(min(log_p, 0.0)), 1e-300))


def _origins(sums: Summands) -> FloatArray:
    return np.maximum.reduceat(sums.x, sums.starts)


def _log_transform(sums: Summands, t: float, step: float, size: int) -> FloatArray:
    """Log transform of the tilted sum, in steps from the origins modulo the size."""
    _, p = sums.tilted(t)
    total = np.zeros(size // 2 + 1, dtype=complex)
    rows = max(1, _BLOCK // size)
    for begin in range(0, len(sums.c), rows):
        end = min(begin + rows, len(sums.c))
        pmf = _pmf(sums, p, step, size, begin, end)
        total += sums.c[begin:end] @ np.log(np.fft.rfft(pmf, axis=1) + 1e-300)
    return total


def _pmf(sums: Summands, p: FloatArray, step: float, size: int, begin: int, end: int) -> FloatArray:
    """Probabilities of the grid points for the groups begin..end - 1, (end - begin, size)."""
    atoms = slice(sums.starts[begin], sums.starts[end] if end < len(sums.c) else None)
    group = sums.group[atoms]
    place = (sums.x[atoms] - _origins(sums)[group]) / step
    near = np.rint(place)
    apart = place - near
    # onto three points, with the same mean and variance
    shares = [apart * (apart - 1) / 2, 1 - apart**2, apart * (apart + 1) / 2]
    pmf = np.zeros((end - begin) * size)
    for offset, share in zip((-1, 0, 1), shares, strict=True):
        column = (near.astype(np.int64) + offset) % size
        pmf += np.bincount((group - begin) * size + column, p[atoms] * share, len(pmf))
    return pmf.reshape(end - begin, size)
