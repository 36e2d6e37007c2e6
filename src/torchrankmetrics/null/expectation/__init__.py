"""Null moments of metrics: exact by an ordered chain of strategies, or by simulation on request."""
