"""The law of a sum of independent variables whose laws are lists of atoms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.tails.lattice import common_span
from torchrankmetrics.theory.tails.laws import Atoms, ComplexArray, Line, SumLaw

_LOGARITHM = 16  # exponentials that the logarithm of a complex exponential is worth


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
