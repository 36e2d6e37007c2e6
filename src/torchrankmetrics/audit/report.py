"""Finding and Report: what an audit says, as text and as JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["passed", "failed", "error", "skipped"]
FAILURES: tuple[Status, ...] = ("failed", "error")


@dataclass(frozen=True)
class Finding:
    """What became of one law.

    Attributes:
        law: its name.
        says: the law in a sentence.
        status: "passed", "failed" (a wrong number), "error" (an error where a number is due) or "skipped" (nothing
            could be compared, or an error that is as good as a number; ``message`` has the reason).
        case: the smallest case that shows it; "" if the law passed or no case of it was compared.
        quantity: "rank", or the key of the metric that is wrong.
        got: what the evaluator answered.
        expected: what is right.
        message: the error raised, the tie rule found, what else is wrong, or why the law was skipped.
    """

    law: str
    says: str
    status: Status
    case: str = ""
    quantity: str = ""
    got: float | str | None = None
    expected: float | str | None = None
    message: str = ""

    def __str__(self) -> str:
        line = f"{self.status:<8}  {self.law:<24}  "
        if self.status == "failed" and self.case:
            told = f"{self.quantity} {number(self.got)}, not {number(self.expected)}"
            return f"{line}{self.case}: {told}" + (f" ({self.message})" if self.message else "")
        if self.case:
            return f"{line}{self.case}: {self.message}"
        return f"{line}{self.message or self.says}"


@dataclass(frozen=True)
class Report:
    """All findings on one evaluator, in the order of the laws.

    Attributes:
        evaluator: its name.
        ties: the tie rules that its answers to the tied cases fit: one; several, if its metrics cannot tell them apart;
            none, if it has no rule.
        findings: one per law.
    """

    evaluator: str
    ties: tuple[str, ...]
    findings: tuple[Finding, ...]

    def __getitem__(self, law: str) -> Finding:
        """The finding on the law of a name.

        Raises:
            KeyError: if there is none.
        """
        for finding in self.findings:
            if finding.law == law:
                return finding
        raise KeyError(law)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings with status "failed" or "error"."""
        return tuple(finding for finding in self.findings if finding.status in FAILURES)

    def __str__(self) -> str:
        rule = " or ".join(self.ties) or ("no rule" if self["ties"].status == "failed" else "not known")
        head = f"{self.evaluator}: {len(self.failures)} of {len(self.findings)} laws failed; ties: {rule}"
        return "\n".join([head, *map(str, self.findings)])

    def to_dict(self) -> dict[str, object]:
        """What JSON holds: the evaluator, its tie rules, and a record per law."""
        laws = [{key: _plain(value) for key, value in asdict(finding).items()} for finding in self.findings]
        return {"evaluator": self.evaluator, "ties": list(self.ties), "laws": laws}

    def to_json(self) -> str:
        """The report as JSON; numbers that JSON lacks are strings."""
        return json.dumps(self.to_dict(), indent=1)


def assertion(findings: Sequence[Finding], evaluator: str) -> AssertionError:
    """The error that lists the failures."""
    lines = (f"  {finding.law} ({finding.says})\n    {finding}" for finding in findings)
    return AssertionError(f"{evaluator} breaks {len(findings)} of the laws of an evaluator\n" + "\n".join(lines))


def number(value: float | str | None) -> str:
    """A number for people."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
