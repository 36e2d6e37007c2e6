"""Stateful rank-based metrics for PyTorch, with filtered ranks and chance-adjusted values."""

import lazy_loader

from torchrankmetrics.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
