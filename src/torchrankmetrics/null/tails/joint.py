"""Distribution of a sum of independent parts, each with its own distribution."""

from collections.abc import Sequence

import numpy as np

from torchrankmetrics.definitions.candidates import CandidateCounts
from torchrankmetrics.definitions.kinds import WithCandidates
from torchrankmetrics.definitions.transforms import check_evaluations
from torchrankmetrics.null.tails.laws import Atoms, ComplexArray, Line, SumLaw, common_span
from torchrankmetrics.null.tails.transform_law import TransformSumLaw


class JointLaw(SumLaw):
    """S = S_1 + S_2 + ..., independent."""

    def __init__(self, parts: Sequence[SumLaw]) -> None:
        self._parts = parts
        self.lowest = sum(part.lowest for part in parts)
        self.highest = sum(part.highest for part in parts)
        self.log_top = sum(part.log_top for part in parts)
        spans = [part.span for part in parts if part.lowest < part.highest]  # a constant is on every lattice
        self.span = common_span(np.array(spans)) if None not in spans else None
        self.decays = self.disperse = False

    def effort(self, reach: float) -> int:
        """See ``SumLaw``."""
        return sum(part.effort(reach) for part in self._parts)

    def take_all(self) -> bool:
        """See ``SumLaw``."""
        taken = [part.take_all() for part in self._parts]
        return any(taken)

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``."""
        mean, variance = np.sum([part.cumulants(t) for part in self._parts], axis=0)
        return float(mean), float(variance)

    def line(self, t0: float, step: float, size: int) -> Line:
        """See ``SumLaw``."""
        lines = [part.line(t0, step, size) for part in self._parts]

        def evaluate_line(offset: float) -> ComplexArray:
            total = np.zeros(size, dtype=np.complex128)
            for line in lines:
                total += line(offset)
            return total

        return evaluate_line

    def atoms(self, most: int) -> list[Atoms] | None:
        """See ``SumLaw``."""
        result: list[Atoms] = []
        for part in self._parts:
            atoms = part.atoms(most)
            if atoms is None:
                return None
            result += atoms
        return result if sum(len(one.shortfall) for one in result) <= most else None


def law_by_candidates(f: WithCandidates, counts: CandidateCounts, sign: int) -> JointLaw:
    """The law of sum of sign v f(r, N): that of r -> f(r, N) for every N."""
    parts = []
    check_evaluations(f, distinct := np.unique(counts.num_candidates))
    for n in distinct.tolist():
        own = counts.num_candidates == n
        alike = CandidateCounts(counts.num_candidates[own], counts.weight[own], counts.count[own])
        parts.append(TransformSumLaw(f.at(n), alike, sign))
    return JointLaw(parts)
