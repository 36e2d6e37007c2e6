"""Up to 0.1 the p-values were here; the module goes with 0.3: they are in ``torchrankmetrics.significance``."""

from typing import Any

from torchrankmetrics.errors import warn
from torchrankmetrics.theory.tails import significance

__all__ = ["has_p_value", "log_p_value", "p_value"]  # noqa: F822  # looked up below


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn(f"{__name__} is deprecated and goes with 0.3: import {name} from torchrankmetrics.significance", FutureWarning)
    return getattr(significance, name)
