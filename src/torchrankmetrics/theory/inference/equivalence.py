"""Two one-sided tests: is a difference within a margin, and is it no worse than one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OneSided:
    """p-values of the two hypotheses that a difference lies beyond a margin.

    Attributes:
        below: in (0, 1], of "the difference is -margin or lower"; small: it is above.
        above: in (0, 1], of "the difference is margin or higher"; small: it is below.
    """

    below: float
    above: float

    @property
    def equivalent(self) -> float:
        """p-value of "the difference is not within the margin": the larger of the two.

        Source: Schuirmann 1987 (doi:10.1007/BF01068419).
        """
        return max(self.below, self.above)


def one_sided(difference: float, margin: float, at_lower: float, at_upper: float) -> OneSided:
    """Halve two-sided p-values of the differences -margin and margin, on the side where the observed one lies.

    Args:
        difference: observed.
        margin: > 0.
        at_lower: two-sided p-value of "the difference is -margin".
        at_upper: of "the difference is margin".

    >>> one_sided(0.0, 0.1, 0.04, 0.06).equivalent
    0.03
    """
    below = at_lower / 2 if difference > -margin else 1 - at_lower / 2
    above = at_upper / 2 if difference < margin else 1 - at_upper / 2
    return OneSided(below, above)
