"""What a metric says of itself follows from its measure, on the class too, where torchmetrics reads some of it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from torchrankmetrics.evaluation.measure import Measure

Fact = TypeVar("Fact")


class OfMeasure(Generic[Fact]):
    """An attribute of a metric and of its class; None on a class whose measure is open.

    Args:
        read: gives it from the measure.
    """

    def __init__(self, read: Callable[[Measure], Fact]) -> None:
        self._read = read

    @overload
    def __get__(self, metric: None, owner: type) -> Fact | None: ...
    @overload
    def __get__(self, metric: object, owner: type) -> Fact: ...
    def __get__(self, metric: Any, owner: type) -> Fact | None:
        measure = getattr(owner if metric is None else metric, "measure", None)
        return None if measure is None else self._read(measure)

    def __set__(self, metric: Any, value: Any) -> None:
        raise AttributeError("what a metric measures is said when it is made: build another one")
