"""log P(S >= s): tilt to the saddlepoint, then add up intervals (few summands) or a Fourier series (many)."""

import math

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.null.tails.distribution import RankSummands, Summands

Bracket = tuple[float, float]  # lower and upper end of log p
_GOAL, _FAIR = 1e-3, 1e-2  # relative error of p, and of few summands
_ATOMS, _MOST_ROWS = 8, 32  # cells with nearly all tilted mass; groups of summands for which this is checked
_FEW, _MOST_LISTED = 3, 700  # summands whose sums are listed first; groups of summands that are listed at all
_PAIRS, _MOST_PAIRS, _INTERVALS = 1 << 20, 1 << 22, 1 << 13  # sums of two intervals; in total; those that are left
_MANY, _MOST_NARROWED = 128, 1024  # summands that are narrowed if that halves the range of S; groups
_MOST_TERMS, _WORK = 1 << 14, 1 << 25  # of a series: frequencies, and evaluated cells and groups
_GONE = 25.0, 14.0  # -log of a transform that is negligible on a lattice, and of others
_MOST_STEPS = 1 << 12  # products of steps and weights that may have a common divisor
_NEGLIGIBLE = 30.0  # -log of the tilted mass outside the window
_ROUNDING, _DENSITY = 1e-10, 3e-6  # relative error of a series on a lattice, and of others


def log_upper_tail(sums: Summands, s: float, slack: float) -> Bracket:
    """Lower and upper end of log P(S >= s); an atom of S within ``slack`` below s counts as reached."""
    span, misfit = _common_span(sums)
    slack = min(max(slack, 1e-4 * span, sums.num * misfit), span / 4) if span else slack
    if s > sums.top + slack:
        return -math.inf, -math.inf
    if s <= sums.bottom + slack:
        return 0.0, 0.0
    if span:
        s = sums.top - math.floor((sums.top - s + slack) / span) * span
    if (log_best := sums.log_best(sums.top - s + slack)) is not None:
        return log_best, log_best
    if s > sums.at_zero[1]:
        return _log_tail(sums, s, slack, span)
    # P(S >= s) = 1 - P(-S > -s) loses no digits
    low, high = _log_tail(sums.negated(), *((span - s, slack) if span else (-s, -slack)), span)
    low, high = _log_complement(high), _log_complement(low)
    if high - low > _GOAL:
        direct = _log_tail(sums, s, slack, span)
        low, high = max(low, direct[0]), min(high, direct[1])
    return low, high


def _log_complement(log_q: float) -> float:
    """Log(1 - q) from log q."""
    if log_q >= 0:
        return -math.inf
    return math.log1p(-math.exp(log_q)) if log_q < -0.7 else math.log(-math.expm1(log_q))


def _common_span(sums: Summands) -> tuple[float | None, float]:
    """Step of the lattice of S, the common divisor of the steps of all summands, by Euclid, and how far it is off.

    None if it is too fine. Values may be rounded to float32.
    """
    weights, steps = np.unique(sums.v), np.ones(1)
    if not (isinstance(sums, RankSummands) and sums.values.is_identity):
        same = np.ones(len(sums.mean), dtype=bool)
        same[sums.starts] = sums.shared  # the first cell of another group
        steps = np.unique(np.abs(np.diff(sums.mean))[same[1:]])
        steps = steps[(steps > 0) & np.r_[True, np.diff(steps) > 1e-12 * steps[1:]] & sums.is_listed]
    if not 0 < len(steps) * len(weights) <= _MOST_STEPS:
        return None, 0.0
    products = np.unique(np.multiply.outer(steps, weights))[::-1]
    a, *others = products.tolist()
    biggest, least = a, products[-1] / 5000
    for b in others:
        while b > 2.0**-21 * biggest:
            a, b = b, abs(a - b * round(a / b))
    span = biggest / round(biggest / a)
    misfit = float(np.abs(products - span * np.rint(products / span)).max())
    return (float(span), misfit) if a > least and misfit < 1e-6 * span else (None, 0.0)


def _log_tail(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    """Ends of log P(S >= s) for s above the mean; values within ``slack`` below s count as reached."""
    logs = np.log(sums.lengths)
    few = sums.num <= _FEW or sums.c @ logs - logs.max() < math.log(_PAIRS)  # few values in all, except one summand's
    few |= span is None and len(sums.c) <= _MOST_ROWS and _has_few_atoms(sums, sums.saddlepoint(s))
    found = _by_intervals(sums, s, slack) if few else None
    if found is None or found[1] - found[0] > _FAIR:
        low, high = _by_tilting(sums, s, slack, span)
        if high - low > _GOAL and not few:
            found = _by_intervals(sums, s, slack)
        if found:
            low, high = max(low, found[0]), max(found[0], min(high, found[1]))
        found = low, high
    return found


def _has_few_atoms(sums: Summands, t: float) -> bool:
    """Whether nearly all tilted mass of the largest group is in a few cells, which may be on a lattice of their own."""
    mass = np.sort(sums.tilted(int(np.argmax(sums.c)), t))
    return bool(mass[-_ATOMS:].sum() > 0.999 * mass.sum())


def _by_tilting(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    """Fourier series, given that no rank reaches s by itself; the probability that one does is added."""
    log_open, rest, many = 0.0, sums, sums.num > _MANY
    if isinstance(sums, RankSummands) and len(sums.c) <= _MOST_NARROWED:
        log_open, rest = sums.without_large(s, slack, many)
        if many and rest.top - rest.bottom > 0.5 * (sums.top - sums.bottom):
            log_open, rest = 0.0, sums
    log_reached = _log_complement(log_open)
    if s > rest.top + slack:
        return log_reached, log_reached
    few = rest.condensed()
    t = few.saddlepoint(s)
    near = exact = rest.cumulants(t)
    if not exact[2] > 0:
        return log_reached, 0.0
    if few is not rest:
        if abs(exact[1] - s) > 0.5 * math.sqrt(exact[2]):
            t = rest.saddlepoint(s)
            exact = rest.cumulants(t)
            if not exact[2] > 0:
                return log_reached, 0.0
        near = few.cumulants(t)
        # at 2 standard deviations^-1 a fourth cumulant moves K by 5 times of what it moves the density in the middle
        for u in (-2 / math.sqrt(exact[2]), 2 / math.sqrt(exact[2])):
            expected = (exact - near)[:4] @ np.array([1, u, u**2 / 2, u**3 / 6])
            exact[4] = max(exact[4], abs(float((rest.cumulants(t + u) - few.cumulants(t + u))[0] - expected)))
    found = _by_series(few, s, t, span, exact, exact - near) if span else None
    if found is None:
        s -= span / 2 if span else slack  # midway between two points of a lattice that is too long
        found = _by_series(few, s, t, None, exact, exact - near) or (-math.inf, 0.0)
    low, high = (float(np.logaddexp(log_reached, log_open + end)) for end in found)
    return low, high


def _by_intervals(sums: Summands, s: float, slack: float) -> Bracket | None:
    """Sums of intervals of shortfalls from the top, in two halves and the longest summand; None if tasks are many.

    Light neighbors are merged where sums are too many: only those on both sides of s widen the bracket.
    """
    work = int(np.sum((np.log2(sums.c) + 1) * np.minimum(sums.lengths * _INTERVALS, _PAIRS >> 2))) * sums.shared
    if len(sums.c) > _MOST_LISTED or work > _MOST_PAIRS:
        return None
    short, t, log_mass, work = sums.top - s + slack, sums.saddlepoint(s), 0.0, 0
    parts = []
    for group, c in enumerate(sums.c.astype(np.int64).tolist()):
        low, high, mass = sums.intervals(group, short)
        tilted = mass * np.exp(-t * low)
        log_mass += c * math.log(tilted.sum() / mass.sum())
        parts.append((np.stack([low, high, low, tilted / tilted.sum()])[:, (low <= short) & (tilted > 0)], c))
    parts.sort(key=lambda part: -part[0].shape[1])
    longest, parts[0] = parts[0][0], (parts[0][0], parts[0][1] - 1)
    halves = [np.array([[0.0], [0.0], [0.0], [1.0]])] * 2

    def convolved(a: FloatArray, b: FloatArray) -> FloatArray:
        nonlocal work
        pairs = _pairs(a, b, short, t, _PAIRS >> 2)
        work += pairs.shape[1]
        return _merged(pairs, _INTERVALS, t)

    for power, c in parts:
        smaller = int(halves[1].shape[1] < halves[0].shape[1])
        for side in (0, 1):
            times, factor = (c + (side == smaller)) // 2, power
            while times and work <= _MOST_PAIRS:
                if times & 1:
                    halves[side] = convolved(halves[side], factor)
                times >>= 1
                if times:
                    factor = convolved(factor, factor)
    if work > _MOST_PAIRS:
        return None
    a, b, longest = sorted((*halves, longest), key=lambda part: part.shape[1])
    pairs = _pairs(a, b, short, t)
    ends = []
    for end in (1, 0):
        order = np.argsort(longest[end])
        with np.errstate(divide="ignore"):
            reach = np.r_[-np.inf, np.logaddexp.accumulate((np.log(longest[3]) + t * longest[2])[order])]
            places = np.searchsorted(longest[end, order], short - pairs[end], side="right")
            ends.append(float(np.logaddexp.reduce(np.log(pairs[3]) + t * pairs[2] + reach[places])))
    return log_mass + ends[0], log_mass + ends[1]


def _pairs(a: FloatArray, b: FloatArray, short: float, t: float, number: int = _PAIRS) -> FloatArray:
    """Sums of intervals (lower ends, upper ends, exponents, masses) up to ``short``, about _PAIRS at most."""
    most = max(number // min(a.shape[1], b.shape[1]), math.isqrt(number))
    a, b = _merged(a, most, t), _merged(b, most, t)
    sums = np.concatenate([a[:3, :, None] + b[:3, None], (a[3:, :, None] * b[3:, None])]).reshape(4, -1)
    return sums[:, sums[0] <= short]


def _merged(x: FloatArray, most: int, t: float) -> FloatArray:
    """Sort intervals; merge equal ones, and light neighbors if they are more than so many.

    The exponent of an interval is the point whose exponential is the mean of those of its atoms.
    """
    x = x[:, np.argsort(x[2], kind="stable")]
    new = np.r_[True, np.diff(x[2]) > 1e-13 * x[2, 1:]]
    for _ in range(2):
        first = np.flatnonzero(new)
        last = np.r_[first[1:], x.shape[1]] - 1
        mass = np.add.reduceat(x[3], first)
        turned = np.exp(t * (x[2] - np.repeat(x[2, last], last - first + 1)))
        turned = np.where(mass > 0, np.add.reduceat(turned * x[3], first) / np.where(mass > 0, mass, 1.0), 1.0)
        exponent = x[2, last] + np.log(np.maximum(turned, 1e-300)) / t  # of a mass that underflows, the larger end
        x = np.stack([np.minimum.reduceat(x[0], first), np.maximum.reduceat(x[1], first), exponent, mass])
        if x.shape[1] <= most:
            break
        total = np.cumsum(np.sqrt(mass * np.r_[0.0, np.diff(x[2])]))  # so that the bracket is narrow
        total = most / 2 * (0.9 * total / total[-1] + 0.1 * np.cumsum(mass) / mass.sum())
        new = np.r_[True, np.diff(np.floor(total) + np.floor(np.r_[0.0, total[:-1]])) > 0]
    return x


def _by_series(
    sums: Summands, s: float, t: float, span: float | None, exact: FloatArray, moved: FloatArray
) -> Bracket | None:
    """Fourier series of the tilted distribution in a window.

    The series of a lattice is finite. The series of a density is complete when the transform has decayed. Else it is
    cut off: then the step at s is replaced by the best functions above and below it that need only these frequencies
    (Graham and Vaaler 1981, doi:10.1090/S0002-9947-1981-0607121-1). None if a lattice has too many points.

    ``exact`` has the cumulants at t, ``moved`` their distance from the cumulants of ``sums``.
    """
    ends = []  # all but exp(-30) of the tilted mass is between them, by Chernoff's bound
    for sign, end in ((-1, sums.bottom), (1, sums.top)):
        u = sign / math.sqrt(exact[2]) * np.array([1.0, 5.0])
        bounds = [(sums.cumulants(t + one)[0] - exact[0] + moved[0] + _NEGLIGIBLE) / one for one in u]
        ends.append(sign * min(sign * end, *(sign * (bound + moved[1]) for bound in bounds)))
    low, high = ends
    high += 0.02 * (high - low)  # away from the largest sum
    length = high - low
    most = min(_MOST_TERMS, _WORK // (len(np.unique(sums.v)) * len(sums.mean) + len(sums.c)))
    number = most
    if span:  # an odd number of points of the lattice, whose coefficients determine all
        number = math.ceil(length / span / 2)
        length, high = span * (2 * number + 1), s + span * math.floor((high - s) / span + 0.5)
        if number >= most:
            return None
    size, phi, decayed = 24, np.empty(0), False
    while True:
        k = np.arange(len(phi), min(len(phi) + size, number + 1), dtype=np.float64)
        theta: FloatArray = 2 * math.pi / length * k
        logs = sums.log_transform(t, float(theta[0]), 2 * math.pi / length, len(k))
        damped = theta**2 / (1 + (theta**2 * exact[2] / 256) ** 2)  # cumulants are of no use at high frequencies
        logs += 1j * theta * moved[1] - damped * (moved[2] / 2 + 1j * theta * moved[3] / 6)
        phi = np.r_[phi, np.exp(logs - 1j * theta * s)]
        z = t + 2j * math.pi / length * np.arange(len(phi))
        weights = phi * np.where(z.imag == 0, 1, 2) / length
        beyond = np.exp(-z * (high - s + (span or 0.0)))
        inside = weights * -np.expm1(-z * (high - s + (span or 0.0)))
        if len(k) == size and (np.abs(phi[-8:]) < 1e-11).all() and not decayed:
            decayed = not _revives(sums, t, float(theta[-1]), 2 * math.pi / length * number, _GONE[span is None])
        if span or decayed:
            upper = lower = float((inside * (span / -np.expm1(-z * span) if span else 1 / z)).real.sum())
        else:
            step, rest = length / len(z), 1 - np.arange(len(z)) / len(z)
            inverse = -np.exp(-z * step) / np.expm1(-z * step)  # 1 / expm1(z step), which may overflow
            slope = t * step * (inverse - inverse[0]) / (2j * math.pi)
            shifted, above = np.exp(z * sums.moved), rest / -np.expm1(-z * step) - slope
            upper = step * float(((inside * above + weights * beyond * rest) * shifted).real.sum())
            lower = step * float(((inside * above - weights * rest) / shifted).real.sum())
        if decayed or len(phi) > number or (not span and lower <= upper < (1 + _GOAL / 4) * lower):
            break
        size = len(phi)
    if span and not (decayed or sums.is_listed):  # cells are not on the lattice
        return None
    off = float(exact[4]) + (_ROUNDING if span else _DENSITY)
    scale = float(exact[0]) - t * s
    tiny = 0.1 * _ROUNDING
    log_low, log_high = (math.log(max(end, 1e-300)) for end in (lower - tiny, upper + tiny))
    return scale + log_low - off, scale + log_high + off


def _revives(sums: Summands, t: float, least: float, most: float, gone: float) -> bool:
    """Whether the transform may return to 1 at frequencies in a range, as it does near a lattice."""
    width = sums.v * (sums.best - sums.worst)
    large = np.argsort(-sums.c * width**2)[:2]
    mean, mass = sums.mean[sums.cells_of(int(large[0]))], sums.tilted(int(large[0]), t)
    jumps = np.unique(np.abs(np.diff(mean)))
    jumps = np.r_[jumps[jumps > 1e-9 * jumps[-1:]][-3:], np.abs(np.diff(mean[np.argsort(-mass, kind="stable")[:_ATOMS]]))]
    gaps = np.unique(np.r_[width[large], np.multiply.outer(jumps, sums.v[large]).ravel()])
    for first in (2 * math.pi / gaps[gaps > 0]).tolist():
        begin = math.ceil(least / first)
        number = min(int(most / first) - begin + 1, 8)
        if number > 0 and np.abs(sums.log_transform(t, first * begin, first, number).real).min() < gone:
            return True
    return False
