"""P(S >= s) from the Fourier transform of the tilted distribution: as a series, or by convolution on a grid."""

import math

import numpy as np
from scipy import fft

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.null.tails.distribution import ComplexArray, Summands

Bracket = tuple[float, float]  # lower and upper end of log p
_MOST_TERMS = 1200  # of a series
_FINE = 0.3  # phase within a cell up to which two atoms represent it
_GONE = 20.0  # -log of a transform that is negligible
_NEGLIGIBLE = 30.0  # -log of the tilted mass outside the window
_ROUNDING, _DENSITY = 1e-10, 1e-6  # relative error of a series on a lattice, and of others


def window(sums: Summands, t: float, exact: FloatArray, near: FloatArray) -> tuple[float, float]:
    """Ends between which the tilted distribution has all but exp(-30) of its mass, by Chernoff's bound.

    ``exact`` has the cumulants of all summands at t, ``near`` the cumulants of ``sums``, which may be condensed.
    """
    ends = []
    for sign, end in ((-1, sums.bottom), (1, sums.top)):
        u = sign / math.sqrt(exact[2]) * np.array([0.5, 1.5, 4.0, 8.0])
        bounds = [(sums.cumulants(t + one)[0] - near[0] + _NEGLIGIBLE) / one + (exact[1] - near[1]) for one in u]
        ends.append(sign * min(sign * end, *(sign * bound for bound in bounds)))
    return ends[0], ends[1]


def by_series(
    sums: Summands,
    s: float,
    t: float,
    span: float | None,
    ends: tuple[float, float],
    exact: FloatArray,
    moved: FloatArray,
) -> Bracket | None:
    """Fourier series of the tilted distribution between two ends; None if it has too many terms.

    ``exact`` has the cumulants at t, ``moved`` their distance from the cumulants of ``sums``.
    """
    (low, high), number = ends, math.inf
    length = high - low
    if span:  # an odd number of points of the lattice, whose coefficients determine all
        points = 2 * math.ceil(length / span / 2) + 1
        length, number, high = span * points, points // 2, s + span * math.floor((high - s) / span + 0.5)
    revives = _may_revive(sums, t, math.pi / span * 1.01 if span else math.inf)
    if revives and number > _MOST_TERMS:
        return None
    total, decayed, begin, size = 0.0, 0, 0, 24
    while True:
        k = np.arange(begin, begin + size, dtype=np.float64)
        theta: FloatArray = 2 * math.pi / length * k
        z, safe = t + 1j * theta, np.where((k == 0) & (t == 0), 1.0, t + 1j * theta)
        transform = sums.log_transform(t, float(theta[0]), 2 * math.pi / length, size)
        phi = np.exp(transform + _correction(theta, moved) - 1j * theta * s) * (k <= number)
        if span:
            kernel = np.where(z == 0, high - s + span, span * np.expm1(-z * (high - s + span)) / np.expm1(-safe * span))
        else:
            kernel = np.where(z == 0, high - s, -np.expm1(-z * (high - s)) / safe)
        total += float(((phi * kernel).real * np.where(k == 0, 1, 2)).sum())
        big = np.flatnonzero(np.abs(phi) > 1e-11)
        decayed = int(k[big[-1]]) if len(big) else decayed
        if k[-1] >= min(number, math.inf if revives else 2 * decayed + 8):
            break
        begin += size
        if begin > _MOST_TERMS or (begin > 140 and decayed > begin - 2 and not revives):
            return None
        size = begin if revives or decayed >= begin - 1 else min(begin, 2 * decayed + 9 - begin)
    wide = float((sums.v * np.maximum.reduceat(sums.deviation, sums.starts).max()).max())
    if not total / length > 1e-7 or min(number, decayed) * 2 * math.pi / length * wide > _FINE:
        return None
    result = float(exact[0] - t * s + math.log(total / length))
    off = float(exact[4]) + (_ROUNDING if span else _DENSITY) + _ROUNDING * 0.1 * length / total
    return result - off, result + off


def _correction(theta: FloatArray, moved: FloatArray) -> ComplexArray:
    """What corrects the first three cumulants of condensed summands, in the logarithm of the Fourier transform."""
    return np.asarray(1j * theta * moved[1] - theta**2 * moved[2] / 2 - 1j * theta**3 * moved[3] / 6)


def _may_revive(sums: Summands, t: float, most: float) -> bool:
    """Whether the transform may return to 1 at frequencies up to ``most``, as it does near a lattice."""
    width = sums.v * (sums.best - sums.worst)
    large = np.argsort(-sums.c * width**2)
    mean = sums.mean[sums.cells_of(int(large[0]))]
    jumps = np.unique(np.abs(np.diff(mean)))
    jumps = jumps[jumps > 1e-9 * jumps[-1:]][-3:]
    gaps = np.unique(np.r_[width[large[:2]], np.multiply.outer(jumps, sums.v[large[:2]]).ravel()])
    for first in (2 * math.pi / gaps[gaps > 0]).tolist():
        number = int(min(2 if len(mean) > 100 else 32, most / first)) if most / first > 1 else 0
        for some in (large[:12], None):
            if number and np.abs(sums.log_transform(t, first, first, number, some).real).min() > _GONE:
                break
        else:
            if number:
                return True
    return False


def by_grid(
    lists: list[tuple[FloatArray, FloatArray, float]],
    short: float,
    t: float,
    ends: tuple[float, float],
    step: float,
    mode: str,
    moved: FloatArray | None = None,
) -> Bracket:
    """Logarithm of P(shortfall <= short) exp(t * shortfall), by FFT convolution on multiples of ``step``.

    Shortfalls are rounded "up" (to better values) or "down", or "split" between three points so that their mean and
    variance are kept and ``short`` is in the middle between two points. Mass near ``short`` is an atom or a density:
    split, both are possible.

    Args:
        lists: shortfalls of the summands, ascending, their tilted probabilities and counts.
        short: the shortfall to reach.
        t: the tilt.
        ends: shortfalls between which the tilted mass is.
        step: of the grid.
        mode: of rounding.
        moved: corrections of the first cumulants.
    """
    if mode == "split":
        step = short / (math.floor(short / step) + 0.5)
    first, last = math.floor(ends[0] / step) - 2, math.floor(short / step * (1 + 1e-14))
    size = fft.next_fast_len(math.ceil((ends[1] - ends[0]) / step) + 5, real=True)
    log_mass, spectrum = 0.0, np.ones(size // 2 + 1, dtype=np.complex128)
    for d, q, c in lists:
        if mode == "split":
            j = np.rint(d / step)
            r = d / step - j
            q = np.concatenate([q * (r * r - r) / 2, q * (1 - r * r), q * (r * r + r) / 2])
            j = np.concatenate([j - 1, j, j + 1])
        else:
            j = np.floor(d / step + 1e-9) if mode == "up" else np.ceil(d / step - 1e-9)
            q = q * np.exp(t * (d - step * j))
        mass = float(q.sum())
        log_mass += c * math.log(mass)
        one = fft.rfft(np.bincount(j.astype(np.int64) % size, q / mass, size))
        spectrum *= one if c == 1 else one**c
    if moved is not None:  # of S: the conjugate of what moves the shortfall
        theta: FloatArray = 2 * math.pi / (size * step) * np.arange(len(spectrum), dtype=np.float64)
        spectrum = spectrum * np.exp(_correction(theta, moved))
    on = fft.irfft(spectrum, size)
    j = np.arange(first, last + 1)
    tail = max(float(on[j % size] @ np.exp(t * (step * j - short))), 0.0)
    near = on[(last + np.arange(-31, 33)) % size]
    atom = max(0.0, near[30:34].sum() - 4 * float(np.median(near))) / 2 if mode == "split" else 0.0
    low, high = (log_mass + math.log(max(tail + part, 1e-300)) for part in (-atom, atom))
    return low, high
