"""log P(S >= s): narrow the ranges of few summands, tilt to the saddlepoint, then sum atoms or a Fourier series."""

import math

import numpy as np
from scipy.special import gammaln, i0e

from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.null.tails.distribution import MOST_STEPS, Atoms, Summands, is_unknown, log_complement, merged

Bracket = tuple[float, float]  # lower and upper end
_GOAL = 1e-3  # relative error of p
_LISTED = 20  # summands whose sums are listed before the series of a lattice is tried
_PAIRS, _MERGED = 1 << 20, 1 << 17  # sums of two values, and those that are sorted
_MOST_LISTED, _MOST_VALUES = 512, 1 << 16  # summands and values whose sums are listed
_MOST_TERMS, _WORK = 1 << 14, 1 << 17  # of a series: frequencies, and those of all groups
_DOUBTED = 1e-5  # possible error of a transform
_LARGE = 8  # groups, and a sixteenth of all, whose transforms are looked at for all frequencies
_GONE = 25.0, 14.0  # -log of a transform that is negligible on a lattice, and of others
_FAR = 16  # multiple of the frequencies in use up to which transforms are checked
_SAMPLE = 32  # groups that are looked at
_LAST = 3e-8  # highest frequencies that matter little
_UNSEEN = 1e-5  # error of p, before it is tilted back, because of higher frequencies
_NEGLIGIBLE = 30.0  # -log of the tilted mass outside the window
_ROUNDING, _KERNEL, _DENSITY = 1e-10, 2e-12, 3e-6  # relative error of a series on a lattice, for each task, of others


@np.errstate(all="ignore")
def log_upper_tail(sums: Summands, s: float, slack: float) -> Bracket:
    """Lower and upper end of log P(S >= s); an atom of S within ``slack`` below s counts as reached."""
    low, high = _bracket(sums, s, slack)  # NaN after an overflow
    return -math.inf if math.isnan(low) else min(low, 0.0), 0.0 if math.isnan(high) else min(high, 0.0)


def _bracket(sums: Summands, s: float, slack: float) -> Bracket:
    span, s, slack = _on_lattice(sums, s, slack)
    if s > sums.top + slack:
        return -math.inf, -math.inf
    if s <= sums.bottom + slack:
        return 0.0, 0.0
    if s > sums.few.at_zero[1]:
        return _log_tail(sums, s, slack, span)
    # P(S >= s) = 1 - P(-S > -s) loses no digits
    low, high = _log_tail(sums.negated(), *((span - s, slack) if span else (-s, -slack)), span)
    low, high = log_complement(high), log_complement(low)
    if high - low > _GOAL:
        direct = _log_tail(sums, s, slack, span)
        low, high = max(low, direct[0]), min(high, direct[1])
    return low, high


def _on_lattice(sums: Summands, s: float, slack: float) -> tuple[float | None, float, float]:
    """Step of the lattice of S, if it has one; s on the lattice, and the slack that its rounding needs.

    The step is the common divisor of the steps of all summands, by Euclid; values may be rounded to float32.
    """
    few, weights, steps = sums.few, np.unique(sums.given), sums.steps
    if not len(steps) and few.is_listed and few.doubt is None:
        if few.low is None:
            weights, steps = np.ones(1), np.unique(np.abs(np.delete(np.diff(few.x), few.starts[1:] - 1)))
        else:
            steps = np.unique(np.abs(np.diff(few.x[few.low.min() :])))
    steps = steps[(steps > 0) & np.r_[True, np.diff(steps) > 1e-12 * steps[1:]]] if len(steps) else steps
    if not 0 < len(steps) * len(weights) <= MOST_STEPS or not math.isfinite(s):
        return None, s, slack
    products = np.unique(np.multiply.outer(steps, weights))[::-1]
    span, *others = products.tolist()
    biggest, least = span, products[-1] / 5000
    for b in others:
        while b > 2.0**-21 * biggest:
            span, b = b, abs(span - b * round(span / b))
        if span <= least:
            return None, s, slack
        span = biggest / round(biggest / span)  # else rounding would grow from step to step
    misfit = float(np.abs(products - span * np.rint(products / span)).max())
    if misfit >= 1e-6 * span:
        return None, s, slack
    sign, slack = math.copysign(1, slack), min(max(abs(slack), 1e-4 * span, sums.num * misfit), span / 4)
    return span, sums.top - math.floor((sums.top - s + sign * slack) / span) * span, slack


def _log_tail(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    """Ends of log P(S >= s) for s above the mean; values within ``slack`` below s count as reached."""
    log_reached, log_open, rest = sums.narrowed(s, slack)
    if log_open == -math.inf or s > rest.top + slack:
        return log_reached, log_reached
    if rest is not sums and not span:
        span, s, slack = _on_lattice(rest, s, slack)
    ends = (0.0, 0.0) if s <= rest.bottom + slack else _log_tail_of_all(rest, s, slack, span)
    low, high = (float(np.logaddexp(log_reached, log_open + end)) for end in ends)
    return low, high


def _log_tail_of_all(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    few = sums.few
    t, exact = few.saddlepoint(s if span else s - slack)
    found = None if span and sums.num > _LISTED else _by_atoms(sums, sums.top - s + slack, t)
    if found:
        return found
    if not exact[2] > 0 or is_unknown(t, s, exact):
        return -math.inf, 0.0
    ends = _window(few, t, exact)
    found = _series(few, s, t, span, exact, ends) if span else None
    s -= span / 2 if span else slack  # midway between two points of a lattice that is too long
    return found or _series(few, s, t, None, exact, ends) or (-math.inf, 0.0)


def _by_atoms(sums: Summands, short: float, t: float) -> Bracket | None:
    """All sums of shortfalls from the top up to ``short``, sorted in two halves; None if they are too many."""
    if sums.num > _MOST_LISTED or sums.num_listed > 2 * _MOST_VALUES:
        return None
    lists: list[Atoms] = []
    log_mass, work, several = 0.0, 0, 0
    for group, c in enumerate(sums.c.astype(np.int64).tolist()):
        d, mass = sums.atoms(group)
        q = mass * np.exp(-t * d)
        log_mass += c * math.log(q.sum() / mass.sum())
        lists += [(d[d <= short], q[d <= short] / q.sum())] * c
        several += len(lists[-1][0]) > 1
        if several > _LISTED:  # their sums are too many
            return None
    lists.sort(key=lambda one: len(one[0]))
    if sum(len(d) for d, _ in lists[:-1]) > _MOST_VALUES:
        return None
    lists = [merged(*one) for one in lists]
    longest = lists.pop()
    a = b = np.zeros(1), np.ones(1)
    for d, q in reversed(lists):
        a, b = (a, b) if len(a[0]) <= len(b[0]) else (b, a)
        work += len(a[0]) * len(d)
        if work > _MERGED:
            return None
        sums_of_two, masses = np.add.outer(a[0], d).ravel(), np.multiply.outer(a[1], q).ravel()
        a = merged(sums_of_two[sums_of_two <= short], masses[sums_of_two <= short])
    a, b, longest = sorted((a, b, longest), key=lambda one: len(one[0]))
    if len(a[0]) * len(b[0]) > _PAIRS:
        return None
    d, log_q = np.add.outer(a[0], b[0]), np.add.outer(np.log(a[1]), np.log(b[1]))
    reach = np.r_[-np.inf, np.logaddexp.accumulate(np.log(longest[1]) + t * longest[0])]
    places = np.searchsorted(longest[0], (short - d).ravel(), side="right").reshape(d.shape)
    tail = float(np.exp(log_q + t * (d - short) + reach[places]).sum())
    if not 0 < tail < math.inf:  # tilted masses underflow
        return None
    log_p = log_mass + t * short + math.log(tail)
    return log_p, log_p


def _window(sums: Summands, t: float, exact: FloatArray) -> Bracket:
    """Ends between which the tilted distribution has all but exp(-30) of its mass, by Chernoff's bound."""
    sides = np.array([[-1.0, -5.0], [1.0, 5.0]]) / math.sqrt(exact[2])
    bounds = [[(sums.cumulants(t + u)[0] - exact[0] + _NEGLIGIBLE) / u for u in side] for side in sides]
    return max(sums.bottom, *bounds[0]), min(sums.top, *bounds[1])


def _series(sums: Summands, s: float, t: float, span: float | None, exact: FloatArray, ends: Bracket) -> Bracket | None:
    """Fourier series of the tilted distribution in a window.

    The series of a lattice is finite. The series of a density is complete when the transform has decayed. Else it is
    cut off: then the step at s is replaced by the best functions above and below it that need only these frequencies
    (Graham and Vaaler 1981, doi:10.1090/S0002-9947-1981-0607121-1). None if a lattice has too many points.

    ``exact`` has the cumulants at t, and ``ends`` are those of the window.
    """
    low, high = ends[0], ends[1] + 0.02 * (ends[1] - ends[0])  # away from the largest sum
    length = high - low
    work = _WORK * (1 if sums.num <= 100 else 20 if sums.is_listed else 12)  # the transforms of few atoms decay slowly
    most = number = min(_MOST_TERMS, max(work // sums.places, 128))
    if span:  # an odd number of points of the lattice, whose coefficients determine all
        number = math.ceil(length / span / 2)
        length, high = span * (2 * number + 1), s + span * math.floor((high - s) / span + 0.5)
        if number >= most:
            return None
    tiny, decayed, unseen, on_grid = 0.1 * _ROUNDING, False, 0.0, span is not None and sums.is_listed
    goal, step = tiny if span else _LAST, 2 * math.pi / length
    # few frequencies take less time, or little less if atoms are many
    size = number if on_grid else min(191 if number * sums.places <= 8 * len(sums.x) else 47, number)
    last = seen = 0  # frequencies: the last at which the transform returns, of those that were looked at
    while True:
        theta = step * np.arange(size + 1)
        logs, doubt = sums.log_transform(t, step, size + 1, on_grid=on_grid).T
        phi = np.exp(logs - 1j * theta * s)
        errors = np.abs(phi) * np.expm1(np.minimum(np.abs(doubt), 30.0))
        if (errors > _DOUBTED).any():  # no frequencies at which interpolation fails
            number = int(np.argmax(errors > _DOUBTED)) - 1
            phi, errors = phi[: number + 1], errors[: number + 1]
        z = t + 1j * theta[: len(phi)]
        weights = phi * np.where(z.imag == 0, 1, 2) / length
        beyond = np.exp(-z * (high - s + (span or 0.0)))
        inside = weights * -np.expm1(-z * (high - s + (span or 0.0)))
        end = float(np.abs(phi[-8:]).max())
        if not (span and size == number) and end < goal:
            unseen = 4 * end + math.sqrt(_square_beyond(sums, t, float(theta[-1])) / len(phi))
            decayed, far = unseen < (tiny if span else _UNSEEN), min(number, _FAR * size)
            if decayed and max(seen, size) < far and sums.doubt is None:
                seen = far
                last = _last_return(sums, t, step, seen, _GONE[span is None])
            decayed &= last <= size
        if span or decayed:
            upper = lower = float((inside * (span / -np.expm1(-z * span) if span else 1 / z)).real.sum())
        else:
            wide, rest = length / len(z), 1 - np.arange(len(z)) / len(z)
            inverse = -np.exp(-z * wide) / np.expm1(-z * wide)  # 1 / expm1(z wide), which may overflow
            above = rest / -np.expm1(-z * wide) - t * wide * (inverse - inverse[0]) / (2j * math.pi)
            upper = wide * float((inside * above + weights * beyond * rest).real.sum())
            lower = wide * float((inside * above - weights * rest).real.sum())
        if decayed or len(phi) > number or (not span and lower <= upper < (1 + _GOAL / 4) * lower):
            break
        following, limit = (1.1 * last, number / 1.2) if last > size else (4 * size, number / 2)
        size = int(following) if following < limit else number
    if span and not (decayed or on_grid):  # cells are not on the lattice
        return None
    error = float(exact[4]) + (_ROUNDING + (not on_grid) * _KERNEL * sums.num if span else _DENSITY)
    tiny += 2 / length * float((errors / np.abs(z)).sum()) + (unseen if decayed and len(phi) <= number else 0.0)
    low, high = (float(exact[0]) - t * s + math.log(max(end, 1e-300)) for end in (lower - tiny, upper + tiny))
    return low - error, high + error


def _square_beyond(sums: Summands, t: float, least: float) -> float:
    """Mean of the squares of the transform at high frequencies: about the probability that two draws of S are equal.

    They are if each value of each weight is drawn equally often. For n draws of values with probabilities q this has
    at most the probability sum of q^2, and the probability n!^2 / (2 pi i) times the integral of
    prod I_0(2 q sqrt u) / u^(n + 1) du, estimated at a saddlepoint u between n^2 and n / sum of q^2. Sums of few
    weights are equal more often, as 1/2 = 1/3 + 1/6 (hence the power), but not those of many.
    """
    number, x, starts, unit = sums.expected(t)
    n, width = np.add.reduceat(number, starts), np.zeros(len(starts))
    np.maximum.at(width, unit, sums.v * (sums.best - sums.worst))
    # units whose phases turn when those of the largest do, or have turned already; the others have not
    large = int(np.argmax(n * width**2))
    active = width >= min(2 * math.pi / least, width[large] / 2)
    new = np.diff(x, prepend=np.inf) != 0  # equal values are one
    new[starts] = True
    values, starts = np.flatnonzero(new), (np.cumsum(new) - 1)[starts]
    times = np.diff(np.r_[starts, len(values)])
    q = np.add.reduceat(number, values) / np.repeat(np.maximum(n, 1e-99), times)
    turned = q * np.exp(1j * max(least, 2 * math.pi / width[large]) * x[values])
    damped = (n * np.log(np.abs(np.add.reduceat(turned, starts)) + 1e-99))[~active & (n > 0)].sum()
    q *= np.resize(sums.apart == 0, len(x))[values]  # two draws from a cell of several values differ
    square = np.add.reduceat(q * q, starts) + 1e-99
    root = np.maximum(n, np.sqrt(n / square))
    y = 2 * q * np.repeat(root, times)
    logs = np.add.reduceat(y + np.log(i0e(y)), starts) - 2 * n * np.log(root) + 2 * gammaln(n + 1)
    logs -= np.log(np.maximum(math.pi * n, 1)) / 2
    log_equal = np.minimum(np.minimum(n, 1) * np.log(square), logs)[active & (n > 0)]
    return math.exp(min(2 * damped + log_equal.sum() * (1.0 if len(log_equal) > _SAMPLE else 0.4), 0.0))


def _last_return(sums: Summands, t: float, step: float, number: int, gone: float) -> int:
    """Last frequency up to ``number`` at which the transform may be large, as it is near a lattice."""
    large = np.argsort(-sums.c * (sums.v * (sums.best - sums.worst)) ** 2)[: _LARGE + len(sums.c) // 16]
    logs = sums.part(large).log_transform(t, step, number + 1)[:, 0].real
    return int((np.arange(number + 1) * (logs > -gone)).max())
