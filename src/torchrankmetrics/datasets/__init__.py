"""Facts of benchmark graphs: how many candidates their filtered evaluation has, as data files with provenance."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
