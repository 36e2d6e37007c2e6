"""Evaluations that end as soon as what was asked is known."""
