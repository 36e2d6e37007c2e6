"""Values that are equal only if every bit is."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, float64
from torchmetrics import Metric, MetricCollection


def bits(values: Any) -> dict[str, str]:
    """Values of a metric or collection, or tensors, as hexadecimal float64.

    One value alone has the key "".
    """
    if isinstance(values, Metric | MetricCollection):
        values = values.compute()
    named: Mapping[str, Tensor] = values if isinstance(values, Mapping) else {"": values}
    assert all(value.dtype == float64 and value.ndim == 0 for value in named.values())
    return {key: value.item().hex() for key, value in named.items()}
