"""Up to 0.1 the p-values were here; the module goes with 0.3: they are in ``torchrankmetrics.significance``."""

from torchrankmetrics.theory.tails.significance import has_p_value, log_p_value, p_value

__all__ = ["has_p_value", "log_p_value", "p_value"]
