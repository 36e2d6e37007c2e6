"""Early stopping in Lightning by any name of a metric."""

from contextlib import suppress
from typing import Any

from torchrankmetrics.errors import missing_extra
from torchrankmetrics.metrics.collection import RankCollection

try:
    from pytorch_lightning import LightningModule, Trainer, callbacks as lightning
except ModuleNotFoundError as error:
    raise missing_extra("integrations.early_stopping", "Lightning", "lightning") from error


class EarlyStopping(lightning.EarlyStopping):
    """Lightning's ``EarlyStopping`` that takes any name of a metric.

    The direction is read from the module's collections.

    Args:
        monitor (str): name of a metric with or without the prefix of its collection, such as
            "val/recall@10".
        **options (object): those of Lightning's ``EarlyStopping``; ``mode`` is not needed.

    Raises:
        ValueError: at the start of training, if not exactly one collection has the metric, or
            ``mode`` is wrong.

    >>> from torchrankmetrics.integrations.early_stopping import EarlyStopping
    >>> stop = EarlyStopping(monitor="val/hits@10", patience=3)  # Trainer(callbacks=[stop])
    """

    def __init__(self, monitor: str, **options: Any) -> None:
        super().__init__(monitor, **options)
        self._options = options

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find the logged key of the metric and its direction."""
        found = {}
        keys = []
        for module in pl_module.modules():
            if isinstance(module, RankCollection):
                keys += list(map(str, module.keys()))
                with suppress(ValueError):
                    watched = module.monitor(self.monitor)
                    found[watched["monitor"]] = watched["mode"]
        if len(found) != 1:
            there = ", ".join(found or keys)
            raise ValueError(
                f"monitor must be a metric of a RankCollection, got {self.monitor!r}; use one of "
                f"{there}"
            )
        ((key, mode),) = found.items()
        if self._options.get("mode", mode) != mode:
            raise ValueError(f"mode must be {mode!r} for {key!r}, got {self.mode!r}; leave it out")
        if (self.monitor, self.mode) != (key, mode):  # else a second run would lose the state
            super().__init__(key, **{**self._options, "mode": mode})
        super().setup(trainer, pl_module, stage)
