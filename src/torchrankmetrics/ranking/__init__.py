"""Scores become ranks here: the only place that sees scores, ties and NaN."""
