"""Stateful rank-based metrics for PyTorch: filtered ranks, chance-adjusted values, exact across processes."""

import importlib
from typing import TYPE_CHECKING, Any

from torchrankmetrics.version import __version__ as __version__

if TYPE_CHECKING:
    from torchrankmetrics.api import *  # noqa: F403
    from torchrankmetrics.api import __all__ as __all__
else:  # of names that a type checker does not find it says so

    def __getattr__(name: str) -> Any:
        # not on import: the command line has to answer Ctrl-C before torch is there
        if name == "__all__" or not name.startswith("__"):
            api = importlib.import_module("torchrankmetrics.api")
            globals().update({public: getattr(api, public) for public in (*api.__all__, "__all__")})
            if name in globals():  # a public name, or a module of the package that is there by now
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
