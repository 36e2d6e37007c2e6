"""log P(S >= s): narrow the ranges of few summands, tilt to the saddlepoint, then choose atoms, series or grid."""

import math

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.null.tails.distribution import Atoms, RankSummands, Summands, merged
from torchrankmetrics.null.tails.fourier import Bracket, by_grid, by_series, window

_GOAL = 1e-3  # relative error of p
_CONVOLVED = 1e-9  # relative error of an exact convolution
_FEW = 128  # summands whose ranges are narrowed
_MOST_NARROWED = 1024  # groups of summands that are narrowed if their sum has half the range then
_LISTED = 1 << 18  # values
_PAIRS = 1 << 22  # sums of two values
_SUMS = 1 << 18  # sums in a half
_GROUPS = 400, 2000  # of condensed summands; the larger number if the smaller one is too coarse
TiltedLists = list[tuple[FloatArray, FloatArray, float]]


def log_upper_tail(sums: Summands, s: float, slack: float) -> Bracket:
    """Lower and upper end of log P(S >= s); an atom of S within ``slack`` below s counts as reached."""
    s -= sums.shift
    span = common_span(sums)
    slack = min(max(slack, 1e-4 * span), span / 4) if span else slack
    if s > sums.top + slack:
        return -math.inf, -math.inf
    if s <= sums.bottom + slack:
        return 0.0, 0.0
    if span:
        s = sums.top - math.floor((sums.top - s + slack) / span) * span
    if s > sums.cumulants(0.0)[1]:
        return _log_tail(sums, s, slack, span)
    # P(S >= s) = 1 - P(-S > -s) loses no digits
    negated = sums.negated()
    other = (span - s, slack) if span else (-s, -slack)
    low, high = _log_tail(negated, other[0] - sums.shift - negated.shift, other[1], span)
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


def common_span(sums: Summands) -> float | None:
    """Step of the lattice of S, the common divisor of the steps of all summands, by Euclid; None if it is too fine."""
    weights = np.unique(sums.v)
    if len(weights) > 64:
        return None
    steps = _steps(sums)
    if steps is None or not len(steps):
        return None
    products = np.unique(np.multiply.outer(steps, weights))[::-1]
    a, *others = products.tolist()
    biggest, least = a, products[-1] / 5000
    for b in others:
        while b > 1e-9 * biggest:
            a, b = b, abs(a - b * round(a / b))
    if a <= least:
        return None
    span = biggest / round(biggest / a)
    ratio = products / span
    return float(span) if (np.abs(ratio - np.rint(ratio)) < 1e-6).all() else None


def _steps(sums: Summands) -> FloatArray | None:
    """Distinct steps between values of one summand of weight 1; None if they are many."""
    if isinstance(sums, RankSummands) and not sums.is_listed:
        most = int(sums.N.max())
        if sums.values.is_identity:
            return np.ones(1)
        if most > 65:
            return None
        steps = np.diff(sums.values(np.arange(1, most + 1)))
    elif sums.is_listed:
        inside = np.ones(len(sums.mean), dtype=bool)
        inside[[] if sums.nested else sums.starts] = False
        steps = np.diff(sums.mean)[inside[1:]]
    else:
        return None
    steps = np.unique(np.abs(steps))
    steps = steps[np.r_[True, np.diff(steps) > 1e-12 * steps[1:]]] if len(steps) else steps
    steps = steps[steps > 0]
    return steps if len(steps) <= 64 else None


def _narrowed(sums: RankSummands, s: float, slack: float) -> tuple[float, float, Summands]:
    """Leave out ranks that reach s by themselves, and ranks that rule it out.

    P(S >= s) is exp(first) + exp(second) P(third >= s); the shift of ``third`` is 0.
    """
    values, low, high, v, c = sums.values, sums.low, sums.N, sums.v, sums.c
    log_reached, log_open = -math.inf, 0.0
    falls = bool(values(np.array([1]))[0] >= values(high.max(keepdims=True))[0])

    def reaching(limit: FloatArray) -> IntArray:
        """How many of the best ranks in each range have v f >= limit."""
        first, last = low.copy(), high.copy()  # the count is in first..last
        while (first < last).any():
            middle = np.maximum((first + last + 1) // 2, low + 1)
            x = v * values(np.where(falls, middle, low + high + 1 - middle))
            inside = (first < last) & (x >= limit)
            first, last = np.where(inside, middle, first), np.where((first < last) & ~inside, middle - 1, last)
        return first - low

    for _ in range(4):
        before = high - low
        ends = v * values(np.r_[low + 1, high]).reshape(2, -1)
        best, worst = ends.max(axis=0), ends.min(axis=0)
        top, bottom = float(c @ best), float(c @ worst)
        if s > top + slack:
            return log_reached, -math.inf, sums
        if s <= bottom + slack:
            return float(np.logaddexp(log_reached, log_open)), -math.inf, sums
        alone = reaching(s - slack - bottom + worst)
        if len(c) > _FEW:  # fewer distinct ranges, which share cells
            alone = np.where(alone > 0, np.exp2(np.floor(4 * np.log2(np.maximum(alone, 1))) / 4).astype(np.int64), 0)
        if (alone > 0.1 * before).any() if len(c) > _FEW and low.any() else alone.any():
            left = float(c @ np.log1p(-alone / before)) if (alone < before).all() else -math.inf
            log_reached = float(np.logaddexp(log_reached, log_open + _log_complement(left)))
            log_open += left
            if left == -math.inf:
                return log_reached, -math.inf, sums
            low, high = (low + alone, high) if falls else (low, high - alone)
            continue
        remaining = reaching(best - (top - s) - slack)
        if (remaining == before).all():
            break
        log_open += float(c @ np.log(remaining / before))
        low, high = (low, low + remaining) if falls else (high - remaining, high)
    return log_reached, log_open, RankSummands(values, low, high, v, c) if low.any() or (high < sums.N).any() else sums


def _log_tail(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    """Ends of log P(S >= s) for s above the mean; values within ``slack`` below s count as reached."""
    log_reached, log_open, rest = -math.inf, 0.0, sums
    if isinstance(sums, RankSummands) and sums.nested and len(sums.c) <= _MOST_NARROWED:
        log_reached, log_open, rest = _narrowed(sums, s, slack)
        if log_open == -math.inf:
            return log_reached, log_reached
        if sums.num > _FEW and rest.top - rest.bottom > 0.5 * (sums.top - sums.bottom):
            log_reached, log_open, rest = -math.inf, 0.0, sums
    s -= rest.shift - (sums.shift if rest is sums else 0.0)
    low, high = _log_tail_of_all(rest, s, slack, span)
    return float(np.logaddexp(log_reached, log_open + low)), float(np.logaddexp(log_reached, log_open + high))


def _log_tail_of_all(sums: Summands, s: float, slack: float, span: float | None) -> Bracket:
    if s > sums.top + slack:
        return -math.inf, -math.inf
    if s <= sums.bottom + slack:
        return 0.0, 0.0
    for most in _GROUPS:
        few = sums.condensed(most)
        t = few.saddlepoint(s)
        exact = sums.cumulants(t)
        if few is not sums and abs(exact[1] - s) > 0.5 * math.sqrt(exact[2]):
            t = sums.saddlepoint(s)
            exact = sums.cumulants(t)
        if few is sums:
            near = exact
            break
        near = few.cumulants(t)
        off = _beyond_third_order(sums, few, t, exact - near, math.sqrt(exact[2]))
        exact[4] += off
        if off < (2 * _GOAL if np.ptp(sums.v) else _GOAL / 4):
            break
    short = sums.top - s
    found = None if span else _by_atoms(sums, short + slack, t)
    if found is None:
        ends = window(few, t, exact, near)
        found = by_series(few, s if span else s - slack, t, span, ends, exact, exact - near)
        if span and found is None:
            found = _by_atoms(sums, short + slack, t)
        if found is None:
            found = _by_grids(sums, few, s, slack, t, span, ends, exact, exact - near)
    return found


def _beyond_third_order(sums: Summands, few: Summands, t: float, moved: FloatArray, deviation: float) -> float:
    """Difference of K between all and condensed summands at t +- 2 standard deviations^-1, without its first terms.

    A difference of the fourth cumulant moves the tilted density in its middle by a fifth of this.
    """
    off = 0.0
    for u in (-2 / deviation, 2 / deviation):
        expected = moved[0] + moved[1] * u + moved[2] * u**2 / 2 + moved[3] * u**3 / 6
        off = max(off, abs(float(sums.cumulants(t + u)[0] - few.cumulants(t + u)[0] - expected)))
    return off


def _tilted(sums: Summands, t: float, *, exactly: bool) -> tuple[TiltedLists, float]:
    """Shortfalls v (best - x) of the summands, their tilted probabilities and counts; K(t) - t times the top."""
    lists, log_mass = [], 0.0
    for group, c in enumerate(sums.c.tolist()):
        d, mass = sums.atoms(group) if exactly else sums.two_atoms(group)
        d, q = merged(d, mass * np.exp(-t * d)) if exactly else (d, mass * np.exp(-t * d))
        total = float(q.sum())
        log_mass += c * math.log(total / float(mass.sum()))
        lists.append((d, q / total, c))
    return lists, log_mass


def _by_atoms(sums: Summands, short: float, t: float) -> Bracket | None:
    """All sums of shortfalls up to ``short`` of two halves of the summands, sorted; None if they are too many."""
    if len(sums.c) > (700 if sums.is_listed else _FEW) or (most := sums.num_listed) > 1 << 20:
        return None
    if sums.num > 3 and t * (sums.top - sums.bottom) / sums.num < 2 and sums.num * math.log(most / len(sums.c)) > 50:
        return None
    lists, log_mass = _tilted(sums, t, exactly=True)
    lists = [(d[d <= short], q[d <= short], c) for d, q, c in lists]
    count = sum(c for *_, c in lists)
    sizes = [len(d) for d, _, c in lists for _ in range(int(min(c, 3)))]
    if count > 3 or math.prod(sizes) > _PAIRS * min(sizes, default=1):
        kinds: dict[tuple[float, ...], list[float]] = {}
        for (d, q, c), v, best in zip(lists, sums.v.tolist(), sums.best.tolist(), strict=True):
            kind = kinds.setdefault((v, best) if sums.nested else (len(kinds),), [0.0, 0, 0.0, math.inf])
            kind[0], kind[1] = kind[0] + c, max(kind[1], len(d))
            kind[3] = min(kind[3], float(d[1]) if len(d) > 1 else math.inf)
            kind[2] = max(kind[2], float(np.log1p(6 * np.sqrt(c / 2 * np.sort(q)[:-1])).sum()))
        size = 0.0  # log of the number of sums in a half that matter
        for c, values, likely, least in kinds.values():
            k = min(short / least, c) if least else c  # summands that are not at their best
            far = math.lgamma(k + values) - math.lgamma(k + 1) - math.lgamma(values)
            all_ = math.lgamma(c / 2 + values) - math.lgamma(c / 2 + 1) - math.lgamma(values)
            all_ = math.log(values) / 2 if c == 1 else all_
            size += min(all_, likely + 1, far)
        if size > math.log(_SUMS):
            return None
    return _halves(lists, log_mass, short, t)


def _halves(lists: TiltedLists, log_mass: float, short: float, t: float) -> Bracket | None:
    count = sum(c for *_, c in lists)
    halves, tiny, lost, work = [(np.zeros(1), np.ones(1))] * 2, 1e-13 / count, 0.0, 0
    *first, last = sorted(lists, key=lambda one: (one[2] > 1, -len(one[0])))
    alone = (np.zeros(1), np.ones(1))  # of a third list no sums are sorted
    if last[2] == 1:
        alone = last[:2]
    elif last[2] == 3 or last[2] % 2:
        alone, first = last[:2], [*first, (*last[:2], last[2] - 1)]
    else:
        first = [*first, last]
    for d, q, c in first:
        smaller = int(len(halves[1][0]) < len(halves[0][0]))
        for side in (0, 1):
            power, times = (d, q), int(c + (side == smaller)) // 2
            while times:
                work += len(power[0]) * (len(halves[side][0]) + len(power[0]) * (times > 1))
                if work > _PAIRS:
                    return None
                if times & 1:
                    halves[side], gone = _convolved(halves[side], power, short, tiny)
                    lost += gone
                times >>= 1
                if times:
                    power, gone = _convolved(power, power, short, tiny)
                    lost += gone * times
                if lost > 1e-4:
                    return None
    a, b, longest = sorted((*halves, alone), key=lambda one: len(one[0]))
    if len(a[0]) * len(b[0]) * math.log2(len(longest[0]) + 1) > 1 << 24:
        return None
    d, q = np.add.outer(a[0], b[0]), np.multiply.outer(a[1], b[1])
    with np.errstate(divide="ignore"):
        reach = np.r_[-np.inf, np.logaddexp.accumulate(np.log(longest[1]) + t * longest[0])]
        places = np.searchsorted(longest[0], (short - d).ravel(), side="right").reshape(d.shape)
        terms = np.log(q) + t * (d - short) + reach[places]
    tail = float(np.exp(terms).sum())
    if not tail or lost > _GOAL * tail:
        return None
    return log_mass + t * short + math.log(tail), log_mass + t * short + math.log(tail + lost)


def _convolved(a: Atoms, b: Atoms, short: float, tiny: float) -> tuple[Atoms, float]:
    """Sums of two sets of values up to ``short``, and the mass that was dropped as negligible."""
    d, q = np.add.outer(a[0], b[0]).ravel(), np.multiply.outer(a[1], b[1]).ravel()
    near = d <= short
    d, q, gone = d[near], q[near], 0.0
    if len(d) > 256:
        remaining = q > tiny / len(d)
        d, q, gone = d[remaining], q[remaining], float(q[~remaining].sum())
    return merged(d, q), gone


def _by_grids(
    sums: Summands,
    few: Summands,
    s: float,
    slack: float,
    t: float,
    span: float | None,
    ends: tuple[float, float],
    exact: FloatArray,
    moved: FloatArray,
) -> Bracket:
    """FFT convolution on grids that become finer."""
    width, short = ends[1] - ends[0], sums.top - s
    beyond = sums.top - ends[1], sums.top - ends[0]  # of the shortfall
    exactly = len(sums.c) <= (4096 if sums.is_listed else 512)
    if span and exactly and width / span * len(sums.c) <= 1 << 21 and sums.num_listed <= _LISTED:
        lists, log_mass = _tilted(sums, t, exactly=True)
        low, high = by_grid(lists, short + span / 2, t, beyond, span, "up")
        scale = log_mass + t * (short + span / 2)
        return scale + low - _CONVOLVED, scale + high + _CONVOLVED
    short += span / 2 if span else slack
    best = (-math.inf, 0.0)
    if sums.num <= 5 and sums.num_listed <= _LISTED:
        lists, log_mass = _tilted(sums, t, exactly=True)
        scale = log_mass + t * short
        for bits in (14, 17):
            low, high = (by_grid(lists, short, t, beyond, width / 2**bits, mode)[0] + scale for mode in ("down", "up"))
            best = max(best[0], low), min(best[1], high)
            if high - low < _GOAL / 2:
                return best
    groups = sums if exactly else few
    lists, log_mass = _tilted(groups, t, exactly=False)
    log_scale = float(exact[0]) - t * (sums.top - short)
    number = math.ceil(math.log2(len(groups.c)))
    before = None
    for bits in (max(11, min(14, 18 - number)), max(12, min(15, 19 - number)), max(13, min(17, 22 - number))):
        now = by_grid(lists, short, t, beyond, width / 2**bits, "split", None if exactly else moved)
        if before:
            off = 2 * min(abs(now[1] - before[1]), abs(sum(now) - sum(before)) / 2)
            off += float(exact[4]) + max(2e-5, 0.03 / sums.num**2)
            best = max(best[0], log_scale + now[0] - off), min(best[1], log_scale + now[1] + off)
            if best[1] - best[0] < _GOAL + 2 * exact[4]:
                break
        before = now
    return best
