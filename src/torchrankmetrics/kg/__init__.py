"""Knowledge graphs: known triples, evaluation, alignment, temporal facts, complex queries."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
