"""Null moments of rank metrics: by structure of the definition, by Monte Carlo on request, or from stored counts."""
