"""Metrics of queries with several relevant items: values under ties, null moments and p-values."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
