"""Programs of test_lightning.py for each process.

A model has scores fixed per epoch, and several ways to log its metrics.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from torchrankmetrics import RankCollection
from torchrankmetrics.integrations.lightning import UnpaddedBatchSampler

SAMPLES, CANDIDATES, EPOCHS = 11, 13, 6
SIGNAL = (0.2, 0.6, 2.5, 1.0, 0.5, 0.4)  # added to the target score: epoch 2 is the best
NAMES = ("mrr", "mr", "hits_at_1", "adjusted_mrr", "z_mrr", "tail_mrr")
TARGET = torch.arange(SAMPLES) % CANDIDATES


def score_table() -> Tensor:
    table = torch.randn(EPOCHS, SAMPLES, CANDIDATES, generator=torch.Generator().manual_seed(3))
    for epoch, signal in enumerate(SIGNAL):
        table[epoch, torch.arange(SAMPLES), TARGET] += signal
    return table


def lightning_model(how: str = "epoch end") -> Any:
    import pytorch_lightning as pl

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.unnamed = False
            self.weight = nn.Parameter(torch.ones(1))
            self.register_buffer("table", score_table())
            self.ranks = RankCollection(list(NAMES), prefix="val/")
            self.test_ranks = self.ranks.clone(prefix="test/")
            self.loaders = nn.ModuleList(self.ranks.clone(prefix=f"val_{i}/") for i in range(2))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.0)

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return (self.weight * batch[0].float().mean()).sum()

        def scores(self, batch: list[Tensor]) -> tuple[tuple[Tensor, Tensor], dict[str, Any]]:
            epoch = min(self.current_epoch, EPOCHS - 1)
            # what the sanity check sees must show if it leaks into the first epoch
            scores = -self.table[epoch] if self.trainer.sanity_checking else self.table[epoch]
            columns = {"side": "tail"} if self.unnamed else {"side": "tail", "sample_id": batch[0]}
            return (scores[batch[0]], TARGET[batch[0]]), columns

        def validation_step(self, batch: list[Tensor], index: int, dataloader_idx: int = 0) -> None:
            arguments, columns = self.scores(batch)
            ranks = self.loaders[dataloader_idx] if how == "loaders" else self.ranks
            (ranks.forward if how == "forward" else ranks.update)(*arguments, **columns)
            if how != "epoch end":
                self.log_dict(
                    ranks, on_step=how == "forward", on_epoch=True, add_dataloader_idx=False
                )

        def on_validation_epoch_end(self) -> None:
            if how == "epoch end":
                self.log_dict(self.ranks)

        def test_step(self, batch: list[Tensor], index: int) -> None:
            arguments, columns = self.scores(batch)
            self.test_ranks(*arguments, **columns)

        def on_test_epoch_end(self) -> None:
            self.log_dict(self.test_ranks)

    return Model()


DATA = TensorDataset(torch.arange(SAMPLES))
PADDED = DataLoader(DATA, 2)


def trainer_for(devices: int, folder: str, **kwargs: Any) -> tuple[Any, list[dict[str, float]]]:
    """A trainer on the CPU, and its log after each validation outside the sanity check."""
    import pytorch_lightning as pl

    history: list[dict[str, float]] = []

    class Recorder(pl.Callback):
        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                history.append(
                    {
                        key: value.item()
                        for key, value in trainer.callback_metrics.items()
                        if "val" in key
                    }
                )

    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    kwargs = {
        **dict.fromkeys(names, False),
        "max_epochs": EPOCHS,
        **kwargs,
        "default_root_dir": folder,
    }
    kwargs["callbacks"] = [Recorder(), *kwargs.get("callbacks", [])]
    strategy = "ddp" if devices > 1 else "auto"
    return pl.Trainer(accelerator="cpu", devices=devices, strategy=strategy, **kwargs), history


def fit(how: str, devices: int, folder: str) -> Any:
    trainer, history = trainer_for(devices, folder, num_sanity_val_steps=2, max_epochs=2)
    trainer.fit(lightning_model(how), PADDED, [PADDED] * 2 if how == "loaders" else PADDED)
    return history


def stages(devices: int, folder: str) -> Any:
    trainer, history = trainer_for(devices, folder)
    model = lightning_model()
    validated = trainer.validate(model, PADDED, verbose=False)
    return validated, trainer.test(model, PADDED, verbose=False), history


def sampled(is_padded: bool, devices: int, folder: str) -> Any:
    trainer, history = trainer_for(devices, folder, use_distributed_sampler=is_padded)
    in_step = DataLoader(DATA, batch_sampler=UnpaddedBatchSampler(DATA, 5))
    trainer.validate(lightning_model(), PADDED if is_padded else in_step, verbose=False)
    return history, trainer.num_val_batches


def trainer_shards(devices: int, folder: str) -> Any:
    """The trainer adds its distributed sampler: to a loader of a hook, and to one from outside."""
    import pytorch_lightning as pl

    outside = DataLoader(DATA, batch_sampler=UnpaddedBatchSampler(DATA, 5))

    class Hook(pl.LightningDataModule):
        def val_dataloader(self) -> DataLoader[Any]:
            return DataLoader(DATA, batch_sampler=UnpaddedBatchSampler(DATA, batch_size=5))

    class Indices(pl.LightningModule):
        def predict_step(self, batch: Any, index: int) -> Any:
            return batch

    found = []
    for given in ({"datamodule": Hook()}, {"dataloaders": outside}):
        trainer, history = trainer_for(devices, folder)
        model = lightning_model()
        model.unnamed = True  # without ids, a padded sample would count twice
        trainer.validate(model, verbose=False, **given)
        indices = [batch[0].tolist() for batch in trainer.predict(Indices(), outside)]
        found.append((history, trainer.num_val_batches, indices))
    return found


def callbacks(devices: int, folder: str) -> Any:
    """EarlyStopping, ModelCheckpoint and CSVLogger; then the checkpoint."""
    from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
    from pytorch_lightning.loggers import CSVLogger

    model = lightning_model()
    watched = {"monitor": "val/adjusted_mrr", "mode": model.ranks.monitor("adjusted_mrr")["mode"]}
    best = ModelCheckpoint(folder, filename="{epoch}", auto_insert_metric_name=False, **watched)
    options = {
        "callbacks": [EarlyStopping(patience=2, **watched), best],
        "logger": CSVLogger(folder, "csv", ""),
    }
    trainer, history = trainer_for(devices, folder, enable_checkpointing=True, **options)
    trainer.fit(model, PADDED, PADDED)
    saved = torch.load(best.best_model_path, weights_only=True)
    return {
        "history": history,
        "best": Path(best.best_model_path).name,
        "best score": best.best_model_score.item(),
        "stopped": trainer.current_epoch,
        "saved": sorted(saved["state_dict"]),
        "csv": Path(folder, "csv", "metrics.csv").read_text() if trainer.is_global_zero else "",
    }


def resume(devices: int, folder: str) -> Any:
    import pytorch_lightning as pl

    path = str(Path(folder, "middle.ckpt"))

    class SaveInTheMiddle(pl.Callback):
        def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.current_epoch == 1 and not trainer.sanity_checking:
                trainer.save_checkpoint(path)

    trainer, whole = trainer_for(devices, folder, callbacks=[SaveInTheMiddle()], max_epochs=3)
    trainer.fit(lightning_model(), PADDED, PADDED)
    saved = sorted(torch.load(path, weights_only=True)["state_dict"])
    again, resumed = trainer_for(devices, folder, max_epochs=4)
    again.fit(lightning_model(), PADDED, PADDED, ckpt_path=path)
    return whole, resumed, saved


SCENARIOS: dict[str, Callable[[int, str], Any]] = {
    **{how: partial(fit, how) for how in ("epoch end", "steps", "forward", "loaders")},
    "stages": stages,
    "padded": partial(sampled, True),
    "in step": partial(sampled, False),
    "trainer shards": trainer_shards,
    "callbacks": callbacks,
    "resume": resume,
}


@contextmanager
def environment(rank: int, devices: int) -> Iterator[None]:
    """Set torchrun's variables: Lightning then starts no process and uses the existing group."""
    if devices > 1:
        names = (
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
            "GROUP_RANK",
            "TORCHELASTIC_RUN_ID",
        )
        os.environ.update(
            zip(names, map(str, (rank, rank, devices, devices, 0, "tests")), strict=True)
        )
        yield
    else:
        # one process as most people have it: without a group
        distributed.destroy_process_group()
        yield
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)


def run_all(rank: int, devices: int, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with environment(rank, devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        for name, scenario in SCENARIOS.items():
            target = Path(folder, name.replace(" ", "_"))
            target.mkdir(exist_ok=True, parents=True)
            found[name] = scenario(devices, str(target))
    return found
