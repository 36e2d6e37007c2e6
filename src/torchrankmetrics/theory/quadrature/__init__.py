"""Sums over the integers 1..N without a table: Gauss rules on panels, for many N at once."""
