"""From scores to ranks: the only package that reads scores, ties and NaN."""
