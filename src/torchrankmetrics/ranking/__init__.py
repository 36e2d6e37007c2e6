"""From scores to ranks: the only package that reads scores, ties and NaN."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
