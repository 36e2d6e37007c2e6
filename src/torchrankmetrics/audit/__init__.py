"""Which laws an evaluator keeps: any function that makes ranks or metrics of scores, asked small cases with answers."""

from torchrankmetrics.audit.auditor import assert_evaluator, audit
from torchrankmetrics.audit.report import Finding, Report

__all__ = ["Finding", "Report", "assert_evaluator", "audit"]
