"""log P(S >= s): narrow the ranges of few summands, tilt to the saddlepoint, then sum atoms or a Fourier series."""

import math

import numpy as np
from scipy.special import i0e

from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.null.tails.distribution import Atoms, RankSummands, Summands, log_complement, merged

Bracket = tuple[float, float]  # lower and upper end of log p
_GOAL = 1e-3  # relative error of p
_LISTED = 20  # summands whose sums are listed before the series of a lattice is tried
_PAIRS = 1 << 20  # sums of two values
_MOST_TERMS, _WORK = 1 << 14, 5 << 22  # of a series: frequencies, and evaluated cells and groups
_GONE = 25.0, 14.0  # -log of a transform that is negligible on a lattice, and of others
_SAMPLE, _NEVER = 32, -75.0  # groups that are looked at, and log of a negligible probability
_UNSEEN = 1e-5  # error of p, before it is tilted back, because of higher frequencies
_MOST_STEPS = 1 << 12  # products of steps and weights that may have a common divisor
_NEGLIGIBLE = 30.0  # -log of the tilted mass outside the window
_ROUNDING, _DENSITY = 1e-10, 3e-6  # relative error of a series on a lattice, and of others


@np.errstate(all="ignore")
def log_upper_tail(sums: Summands, s: float, slack: float) -> Bracket:
    """Lower and upper end of log P(S >= s); an atom of S within ``slack`` below s counts as reached."""
    low, high = _bracket(sums, s, slack)  # NaN after an overflow
    return -math.inf if math.isnan(low) else min(low, 0.0), 0.0 if math.isnan(high) else min(high, 0.0)


def _bracket(sums: Summands, s: float, slack: float) -> Bracket:
    span, misfit = common_span(sums)
    slack = min(max(slack, 1e-4 * span, sums.num * misfit), span / 4) if span else slack
    if s > sums.top + slack:
        return -math.inf, -math.inf
    if s <= sums.bottom + slack:
        return 0.0, 0.0
    if span:
        s = sums.top - math.floor((sums.top - s + slack) / span) * span
    if s > sums.at_zero[1]:
        return _log_tail(sums, s, slack, span)
    # P(S >= s) = 1 - P(-S > -s) loses no digits
    low, high = _log_tail(sums.negated(), *((span - s, slack) if span else (-s, -slack)), span)
    low, high = log_complement(high), log_complement(low)
    if high - low > _GOAL:
        direct = _log_tail(sums, s, slack, span)
        low, high = max(low, direct[0]), min(high, direct[1])
    return low, high


def common_span(sums: Summands) -> tuple[float | None, float]:
    """Step of the lattice of S, the common divisor of the steps of all summands, by Euclid, and how far it is off.

    None if it is too fine. Values may be rounded to float32.
    """
    weights, steps = sums.weights, np.ones(1)
    if not (isinstance(sums, RankSummands) and sums.f.is_identity):
        steps = np.abs(np.diff(sums.mean))
        steps = np.unique(steps if sums.low is not None else np.delete(steps, sums.starts[1:] - 1))
        if not sums.is_listed:
            table = sums.f.table if isinstance(sums, RankSummands) else None
            steps = steps[:0] if table is None else np.unique(np.abs(np.diff(table)))
        steps = steps[(steps > 0) & np.r_[True, np.diff(steps) > 1e-12 * steps[1:]]]
    if not 0 < len(steps) * len(weights) <= _MOST_STEPS:
        return None, 0.0
    products = np.unique(np.multiply.outer(steps, weights))[::-1]
    a, *others = products.tolist()
    biggest, least = a, products[-1] / 5000
    for b in others:
        while b > 2.0**-21 * biggest:
            a, b = b, abs(a - b * round(a / b))
        if a <= least:
            return None, 0.0
        a = biggest / round(biggest / a)  # else rounding would grow from step to step
    misfit = float(np.abs(products - a * np.rint(products / a)).max())
    return (a, misfit) if misfit < 1e-6 * a else (None, 0.0)


def _log_tail(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    """Ends of log P(S >= s) for s above the mean; values within ``slack`` below s count as reached."""
    log_reached, log_open, rest = sums.narrowed(s, slack)
    if log_open == -math.inf or s > rest.top + slack:
        return log_reached, log_reached
    ends = (0.0, 0.0) if s <= rest.bottom + slack else _log_tail_of_all(rest, s, slack, span)
    low, high = (float(np.logaddexp(log_reached, log_open + end)) for end in ends)
    return low, high


def _log_tail_of_all(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    few, moved = sums.condensed(), np.zeros(5)
    t = few.saddlepoint(s)
    exact = sums.cumulants(t)
    if not exact[2] > 0:
        return -math.inf, 0.0
    deviation = math.sqrt(exact[2])
    if few is not sums:
        moved = exact - few.cumulants(t)
        # the fourth cumulant, which is not corrected, moves the tilted density in its middle by a fifth of this
        u = math.copysign(2 / deviation, exact[3])  # toward the longer tail
        expected = moved[:4] @ (1, u, u**2 / 2, u**3 / 6)
        exact[4] += 2 * abs((sums.cumulants(t + u) - few.cumulants(t + u))[0] - expected)
        # nor are the second and third at high frequencies, which matter if few large summands exceed the rest
        exact[4] += 3 * max(abs(moved[2]) / deviation**2, abs(moved[3]) / deviation**3)
    found = None if span and sums.num > _LISTED else _by_atoms(sums, sums.top - s + slack, t)
    if span and found is None:
        found = _by_series(few, s, t, span, exact, moved)
    s -= span / 2 if span else slack  # midway between two points of a lattice that is too long
    return found or _by_series(few, s, t, None, exact, moved) or (-math.inf, 0.0)


def _by_atoms(sums: Summands, short: float, t: float) -> Bracket | None:
    """All sums of shortfalls from the top up to ``short``, sorted in two halves; None if they are too many."""
    if len(sums.c) > 700 or sums.num_listed > 1 << 21:
        return None
    lists, log_mass, work, lost = [], 0.0, 0, 0.0
    for group, c in enumerate(sums.c.astype(np.int64).tolist()):
        d, mass = sums.atoms(group)
        d, q = merged(d, mass * np.exp(-t * d))
        log_mass += c * math.log(q.sum() / mass.sum())
        lists.append((d[d <= short], q[d <= short] / q.sum(), c))
    tiny = 1e-13 / sums.num

    def convolved(a: Atoms, b: Atoms) -> Atoms:
        nonlocal work, lost
        if len(a[0]) == 1:
            return a[0] + b[0], a[1] * b[1]
        work += len(a[0]) * len(b[0])
        if work > _PAIRS:
            return a
        d, q = np.add.outer(a[0], b[0]).ravel(), np.multiply.outer(a[1], b[1]).ravel()
        d, q = d[d <= short], q[d <= short]
        if len(d) > 256:
            large = q > tiny / len(d)
            lost += float(q[~large].sum()) * sums.num
            d, q = d[large], q[large]
        return merged(d, q)

    lists.sort(key=lambda one: -len(one[0]))
    d, q, c = lists[0]
    longest, lists[0] = (d, q), (d, q, c - 1)
    halves = [(np.zeros(1), np.ones(1))] * 2
    for d, q, c in lists:
        smaller = int(len(halves[1][0]) < len(halves[0][0]))
        for side in (0, 1):
            power, times = (d, q), (c + (side == smaller)) // 2
            while times and work <= _PAIRS:
                if times & 1:
                    halves[side] = convolved(halves[side], power)
                times >>= 1
                power = convolved(power, power) if times else power
    a, b, longest = sorted((*halves, longest), key=lambda one: len(one[0]))
    if work > _PAIRS or len(a[0]) * len(b[0]) > _PAIRS:
        return None
    d, q = np.add.outer(a[0], b[0]), np.multiply.outer(a[1], b[1])
    reach = np.r_[-np.inf, np.logaddexp.accumulate(np.log(longest[1]) + t * longest[0])]
    places = np.searchsorted(longest[0], (short - d).ravel(), side="right").reshape(d.shape)
    tail = float(np.exp(np.log(q) + t * (d - short) + reach[places]).sum())
    if lost > _GOAL * tail or not 0 < tail + lost < math.inf:  # tilted masses underflow
        return None
    ends = (log_mass + t * short + (math.log(end) if end > 0 else -math.inf) for end in (tail, tail + lost))
    return next(ends), next(ends)


def _window(sums: Summands, t: float, exact: FloatArray, moved: FloatArray) -> tuple[float, float]:
    """Ends between which the tilted distribution has all but exp(-30) of its mass, by Chernoff's bound."""
    ends = []
    for sign, end in ((-1, sums.bottom), (1, sums.top)):
        u = sign / math.sqrt(exact[2]) * np.array([1.0, 5.0])
        bounds = [(sums.cumulants(t + one)[0] - exact[0] + moved[0] + _NEGLIGIBLE) / one for one in u]
        ends.append(sign * min(sign * end, *(sign * (bound + moved[1]) for bound in bounds)))
    return ends[0], ends[1]


def _by_series(
    sums: Summands, s: float, t: float, span: float | None, exact: FloatArray, moved: FloatArray
) -> Bracket | None:
    """Fourier series of the tilted distribution in a window.

    The series of a lattice is finite. The series of a density is complete when the transform has decayed. Else it is
    cut off: then the step at s is replaced by the best functions above and below it that need only these frequencies
    (Graham and Vaaler 1981, doi:10.1090/S0002-9947-1981-0607121-1). None if a lattice has too many points.

    ``exact`` has the cumulants at t, ``moved`` their distance from the cumulants of ``sums``.
    """
    low, high = _window(sums, t, exact, moved)
    high += 0.02 * (high - low)  # away from the largest sum
    length = high - low
    most = min(_MOST_TERMS, _WORK // (len(sums.weights) * len(sums.mean) + len(sums.c)))
    number = most
    if span:  # an odd number of points of the lattice, whose coefficients determine all
        number = math.ceil(length / span / 2)
        length, high = span * (2 * number + 1), s + span * math.floor((high - s) / span + 0.5)
        if number >= most:
            return None
    tiny = 0.1 * _ROUNDING
    size, phi, decayed, unseen = 24, np.empty(0), False, 0.0
    while True:
        k = np.arange(len(phi), min(len(phi) + size, number + 1), dtype=np.float64)
        theta: FloatArray = 2 * math.pi / length * k
        logs = sums.log_transform(t, float(theta[0]), 2 * math.pi / length, len(k))
        # cumulants are of no use at high frequencies, and where the third one exceeds the second
        damped = theta**2 / (1 + (theta**2 * max(exact[2] / 256, (exact[3] / exact[2] / 3) ** 2)) ** 2)
        correction = 1j * theta * moved[1] - damped * (moved[2] / 2 + 1j * theta * moved[3] / 6)
        phi = np.r_[phi, np.exp(logs + correction - 1j * theta * s)]
        z = t + 2j * math.pi / length * np.arange(len(phi))
        weights = phi * np.where(z.imag == 0, 1, 2) / length
        beyond = np.exp(-z * (high - s + (span or 0.0)))
        inside = weights * -np.expm1(-z * (high - s + (span or 0.0)))
        if len(k) == size and (np.abs(phi[-8:]) < 1e-11).all() and not decayed:
            unseen = math.sqrt(_square_beyond(sums, t, float(theta[-1])) / len(phi))
            decayed = unseen < (tiny if span else _UNSEEN) and not _revives(
                sums, t, float(theta[-1]), 2 * math.pi / length * number, _GONE[span is None]
            )
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
    tiny += unseen if decayed and len(phi) <= number else 0.0
    log_low, log_high = (math.log(max(end, 1e-300)) for end in (lower - tiny, upper + tiny))
    return scale + log_low - off, scale + log_high + off


def _square_beyond(sums: Summands, t: float, least: float) -> float:
    """Mean of the squares of the transform at high frequencies: the probability that two draws of S are equal.

    They are if each value of each group is drawn equally often, numbers that are about Poisson. Sums of few groups are
    equal more often, as 1/2 = 1/3 + 1/6 (hence the power), but not those of many weights.
    """
    width = sums.v * (sums.best - sums.worst)
    # groups whose phases turn when those of the largest do, or have turned already
    large = int(np.argmax(sums.c * width**2))
    active, log_equal = np.flatnonzero(width >= min(2 * math.pi / least, width[large] / 2)), 0.0
    every = math.ceil(len(active) / _SAMPLE)
    for group in active[::every].tolist():
        cells, c = sums.cells_of(group), sums.c[group]
        q = sums.size[cells] * np.exp(t * sums.v[group] * (sums.mean[cells] - sums.best[group]))
        q, single = q / q.sum(), sums.deviation[cells] == 0
        once = math.log((q[single] ** 2).sum() + 1e-99)
        often = np.where(single, np.log(i0e(2 * c * q)), -2 * c * q).sum() - math.log(i0e(2 * c))
        log_equal += every * float(min(once, often))
        if log_equal < _NEVER:
            break
    return math.exp(log_equal * (1.0 if every > 1 else 0.4))


def _revives(sums: Summands, t: float, least: float, most: float, gone: float) -> bool:
    """Whether the transform may return to 1 at frequencies in a range, as it does near a lattice."""
    width = sums.v * (sums.best - sums.worst)
    large = np.argsort(-sums.c * width**2)[:2]
    mean = sums.mean[sums.cells_of(int(large[0]))]
    jumps = np.unique(np.abs(np.diff(mean)))
    jumps = jumps[jumps > 1e-9 * jumps[-1:]][-3:]
    gaps = np.unique(np.r_[width[large], np.multiply.outer(jumps, sums.v[large]).ravel()])
    for first in (2 * math.pi / gaps[gaps > 0]).tolist():
        begin = math.ceil(least / first)
        number = min(int(most / first) - begin + 1, 2 if len(mean) > 100 else 8)
        if number > 0 and np.abs(sums.log_transform(t, first * begin, first, number).real).min() < gone:
            return True
    return False
