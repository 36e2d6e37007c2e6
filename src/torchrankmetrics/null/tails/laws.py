"""Distributions of single terms: on a lattice, listed, or given by a formula."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.definitions.transforms import Transform

_MOST_POINTS = 1e6  # of the lattice within the largest step: a finer one is as good as none
_MOST_VALUES = 64  # distinct steps
MOST_WEIGHTS = 64  # distinct weights


def common_span(steps: FloatArray) -> float | None:
    """Largest d with every step a multiple of d, by Euclid in floating point; None if there is none above max / 10^6.

    Args:
        steps: (m,) float64; signs and zeros play no part.

    >>> common_span(np.array([0.3, 0.5]))
    0.1
    """
    steps = np.unique(np.abs(steps[steps != 0]))
    if not 0 < len(steps) <= _MOST_VALUES:
        return None
    largest = float(steps[-1])
    noise = 1e-10 * largest  # Euclid multiplies the rounding of its input
    span = largest
    for step in steps[:-1].tolist():
        a, b = span, step
        while b > noise:
            rest = a % b
            a, b = b, 0.0 if b - rest < noise else rest
        span = a
        if span * _MOST_POINTS < largest:
            return None
    span = largest / round(largest / span)
    multiples = steps / span
    return span if np.abs(multiples - np.round(multiples)).max() < 1e-6 * max(1.0, multiples.max() * 1e-6) else None


ComplexArray = npt.NDArray[np.complex128]
Line = Callable[[float], ComplexArray]
_LOGARITHM = 16  # exponentials that the logarithm of a complex exponential is worth
MOST_GROUPS = 512  # laws of one summand, beyond which a sum has too many atoms to list


@dataclass(frozen=True)
class Atoms:
    """The law of one summand sign v f(r), as what it falls short of its best value.

    Attributes:
        shortfall: (a,) float64, ascending from 0.
        probability: (a,) float64 > 0, of sum 1.
        count: how many tasks share that law.
    """

    shortfall: FloatArray
    probability: FloatArray
    count: int


@dataclass(frozen=True, eq=False)
class RankRanges:
    """Groups of tasks whose ranks are uniform on {low..high}.

    Attributes:
        low, high: (groups,) int64, 1 <= low <= high.
        weight: (groups,) float64 > 0, v.
        count: (groups,) int64, tasks in the group.
    """

    low: IntArray
    high: IntArray
    weight: FloatArray
    count: IntArray

    @property
    def size(self) -> FloatArray:
        """Number of ranks in each range."""
        return (self.high - self.low + 1).astype(np.float64)


class SumLaw(Protocol):
    """The law of S as a tail routine sees it; S is better when larger.

    Attributes:
        lowest, highest: the ends of the support of S.
        log_top: log P(S = highest).
        span: S - highest is a multiple of it; None: no span is known.
        decays: |exp K| decays along a vertical line up to half the period of the lattice, and does not rise again.
        disperse: where K along a line is known only in part, weights differ enough that |exp K| does not rise again.
    """

    lowest: float
    highest: float
    log_top: float
    span: float | None
    decays: bool
    disperse: bool

    def effort(self, reach: float) -> int:
        """How many exponentials one value of K takes for |t| <= reach."""
        ...

    def cumulants(self, t: float) -> tuple[float, float]:
        """K'(t) and K''(t) for real t >= 0: good for placing a line, not more."""
        ...

    def line(self, t0: float, step: float, size: int) -> Line:
        """Prepare y -> K(t0 + i (y + step j)) for j < size, an array (size,); t0 > 0. NaN where it is not at hand."""
        ...

    def take_all(self) -> bool:
        """Have K at hand everywhere from now on, at a cost; False if it is, or if there are too many tasks."""
        return False

    def reaching(self, s: float, slack: float) -> "SumLaw":
        """A law of the same P(S >= s) that costs less, if there is one; not of its top."""
        return self

    def by_ranges(self) -> "tuple[Transform, RankRanges, int] | None":
        """F, the tasks one by one, and the sign; None if they are too many, or if f is not known to be monotone."""
        return None

    def atoms(self, most: int) -> list[Atoms] | None:
        """The laws of the summands that vary, unless they have more than ``most`` points in all, or are too many."""
        ...


class RankSumLaw(SumLaw):
    """S = sum of sign v r: K in closed form, E exp(-a (r - 1)) = (1 - e^(-aN)) / (N (1 - e^(-a)))."""

    def __init__(self, counts: CandidateCounts, sign: int) -> None:
        self._N = counts.num_candidates.astype(np.float64)
        self._v, self._c = counts.weight, counts.count.astype(np.float64)
        share = self._v * self._c
        ends = (share.sum() * sign, (share * self._N).sum() * sign)
        self.lowest, self.highest = float(min(ends)), float(max(ends))
        self.log_top = float(-(self._c * np.log(self._N)).sum())
        self.span = common_span(self._v[self._N > 1])
        self.decays, self.disperse = counts.equal_weights, False

    def effort(self, reach: float) -> int:
        """See ``SumLaw``."""
        return _LOGARITHM * len(self._v)

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``; L(x) = coth x - 1/x is Langevin's function."""
        a, N = self._v * t / 2, self._N
        first, second = _langevin(a)
        wide_first, wide_second = _langevin(a * N)
        mean = (N - 1 - N * wide_first + first) / 2  # distance from the top
        variance = (N**2 * wide_second - second) / 4
        mean_distance = float((self._c * self._v * mean).sum())
        return self.highest - mean_distance, float((self._c * self._v**2 * variance).sum())

    def line(self, t0: float, step: float, size: int) -> Line:
        """See ``SumLaw``."""
        y = step * np.arange(size)
        log_N = float((self._c * np.log(self._N)).sum())

        def evaluate(offset: float) -> ComplexArray:
            t = t0 + 1j * (offset + y)
            a = np.multiply.outer(t, self._v)
            ratio: ComplexArray = np.log(np.expm1(-a * self._N) / np.expm1(-a)) @ self._c
            return t * self.highest + ratio - log_N

        return evaluate

    def atoms(self, most: int) -> list[Atoms] | None:
        """See ``SumLaw``."""
        varying = self._N > 1
        if varying.sum() > MOST_GROUPS or self._N[varying].sum() > most:
            return None
        return [
            Atoms(v * np.arange(N), np.full(int(N), 1 / N), int(c))
            for N, v, c in zip(self._N[varying], self._v[varying], self._c[varying], strict=True)
        ]


class AucSumLaw(RankSumLaw):
    """S = sum of sign v (N - r) / (N - 1): ranks with weights v / (N - 1), turned round and moved; N >= 2."""

    def __init__(self, counts: CandidateCounts, sign: int) -> None:
        super().__init__(replace(counts, weight=counts.weight / (counts.num_candidates - 1)), -sign)
        total = sign * float((counts.count * counts.weight).sum())
        self.lowest, self.highest = min(total, 0.0), max(total, 0.0)


class HitSumLaw(SumLaw):
    """S = sum of sign v [r <= k]: every summand has two values, and tasks with N <= k are constant."""

    def __init__(self, counts: CandidateCounts, k: int, sign: int) -> None:
        hits = np.minimum(counts.num_candidates, k)
        share = counts.weight * counts.count
        certain = float(share[hits == counts.num_candidates].sum()) * sign
        varying = hits < counts.num_candidates
        N, hits = counts.num_candidates[varying], hits[varying]
        self._v, self._c = counts.weight[varying], counts.count[varying].astype(np.float64)
        self._top = (hits if sign > 0 else N - hits) / N  # probability of the better value
        self._rest = (N - hits if sign > 0 else hits) / N
        other = float(share[varying].sum()) * sign
        self.lowest, self.highest = certain + min(other, 0.0), certain + max(other, 0.0)
        self.log_top = float((self._c * np.log(self._top)).sum())
        self.span = common_span(self._v)
        self.decays, self.disperse = counts.equal_weights, False

    def effort(self, reach: float) -> int:
        """See ``SumLaw``."""
        return _LOGARITHM * len(self._v)

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``."""
        down = self._rest * np.exp(-t * self._v)
        miss = down / (self._top + down)
        share = self._c * self._v * miss
        return self.highest - float(share.sum()), float((share * self._v * (1 - miss)).sum())

    def line(self, t0: float, step: float, size: int) -> Line:
        """See ``SumLaw``."""
        y = step * np.arange(size)

        def evaluate(offset: float) -> ComplexArray:
            t = t0 + 1j * (offset + y)
            factor = self._top + self._rest * np.exp(-np.multiply.outer(t, self._v))
            log_factor: ComplexArray = np.log(factor) @ self._c
            return t * self.highest + log_factor

        return evaluate

    def atoms(self, most: int) -> list[Atoms] | None:
        """See ``SumLaw``."""
        if len(self._v) > MOST_GROUPS or 2 * len(self._v) > most:
            return None
        return [
            Atoms(np.array([0.0, v]), np.array([top, rest]), int(c))
            for v, rest, top, c in zip(self._v, self._rest, self._top, self._c, strict=True)
        ]


def _langevin(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Langevin's function coth x - 1/x and its derivative for x >= 0; by series where they cancel."""
    near = x < 0.3
    z = np.where(near, x, 0.0) ** 2
    far = np.where(near, 1.0, np.minimum(x, 300.0))
    value = np.where(
        near, x * (1 / 3 - z * (1 / 45 - z * (2 / 945 - z / 4725))), 1 / np.tanh(far) - 1 / np.where(near, 1.0, x)
    )
    series = 1 / 3 - z * (1 / 15 - z * (2 / 189 - z / 675))
    slope = np.where(near, series, 1 / np.where(near, 1.0, x) ** 2 - 1 / np.sinh(far) ** 2)
    return value, slope


@dataclass(frozen=True, eq=False)
class Law:
    """The law of a variable.

    Attributes:
        values: (a,) float64, ascending.
        probability: (a,) float64 > 0, of sum 1.
        span: values differ by multiples of it; None: none is known.
    """

    values: FloatArray
    probability: FloatArray
    span: float | None = None


class ListedSumLaw(SumLaw):
    """S = sum of sign v X over variables X with laws of their own.

    Args:
        laws: of one variable each.
        weight: (laws,) float64 > 0, v.
        count: (laws,) int64, how many variables have this law and weight.
        sign: 1 or -1.
    """

    def __init__(self, laws: Sequence[Law], weight: FloatArray, count: IntArray, sign: int) -> None:
        self.lowest = self.highest = self.log_top = 0.0
        self._parts: list[Atoms] = []
        spans: list[float | None] = []
        for law, v, c in zip(laws, weight.tolist(), count.tolist(), strict=True):
            x, p = (law.values, law.probability) if sign > 0 else (-law.values[::-1], law.probability[::-1])
            self.highest += c * v * float(x[-1])
            self.lowest += c * v * float(x[0])
            self.log_top += c * float(np.log(p[-1])) if len(x) > 1 else 0.0
            if len(x) > 1:
                self._parts.append(Atoms(v * (x[-1] - x[::-1]), p[::-1], c))
                spans.append(None if law.span is None else v * law.span)
        known = [span for span in spans if span is not None]
        self.span = common_span(np.array(known)) if known and len(known) == len(spans) else None
        self.decays = self.disperse = False
        # laws share atoms: an exponential for each distinct one, and a sparse matrix for the laws
        self._count = np.array([part.count for part in self._parts], dtype=np.float64)
        flat = np.concatenate([part.shortfall for part in self._parts]) if self._parts else np.zeros(0)
        self._shortfall, column = np.unique(flat, return_inverse=True)
        ends = np.cumsum([0, *(len(part.shortfall) for part in self._parts)])
        probability = np.concatenate([part.probability for part in self._parts]) if self._parts else flat
        shape = (len(self._parts), len(self._shortfall))
        self._laws = csr_array((probability, column, ends), shape=shape)

    def effort(self, reach: float) -> int:
        """See ``SumLaw``."""
        return len(self._shortfall) + _LOGARITHM * len(self._parts) + self._laws.nnz // 4

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``."""
        D = self._shortfall
        mass = np.exp(-t * D)
        total, first, second = (self._laws @ np.stack([mass, mass * D, mass * D * D], axis=1)).T
        first, second = first / total, second / total
        return self.highest - float(self._count @ first), float(self._count @ np.maximum(second - first**2, 0.0))

    def line(self, t0: float, step: float, size: int) -> Line:
        """See ``SumLaw``."""
        y = step * np.arange(size)
        turns = np.exp(-np.multiply.outer(self._shortfall, t0 + 1j * y))

        def evaluate(offset: float) -> ComplexArray:
            t = t0 + 1j * (offset + y)
            sums = self._laws @ (turns * np.exp(-1j * offset * self._shortfall)[:, None])
            logarithm: ComplexArray = self._count @ np.log(sums)
            return t * self.highest + logarithm

        return evaluate

    def atoms(self, most: int) -> list[Atoms] | None:
        """See ``SumLaw``."""
        return self._parts if self._laws.nnz <= most else None
