"""Checks any evaluator of ranks or rank-based metrics on small cases with known results."""

from torchrankmetrics.audit.run import (
    CHECKS,
    MAX_CANDIDATES,
    Finding,
    Report,
    assert_evaluator,
    audit,
)

__all__ = ["CHECKS", "MAX_CANDIDATES", "Finding", "Report", "assert_evaluator", "audit"]
