"""p-values of values that you have; metrics give them as the view ``p_value``."""

from torchrankmetrics.theory.tails.significance import has_p_value, log_p_value, p_value

__all__ = ["has_p_value", "log_p_value", "p_value"]
