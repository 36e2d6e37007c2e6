"""A two-tower recommender in Lightning: early stopping on recall@10, the best epoch, the same value from topk."""

import pytest
import torch

from torchrankmetrics import RankCollection

pl = pytest.importorskip("pytorch_lightning")
pytestmark = [pytest.mark.trains, pytest.mark.filterwarnings("ignore")]


class TwoTower(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.users, self.items = torch.nn.Embedding(30, 8), torch.nn.Embedding(40, 8)
        self.metrics = RankCollection(["recall@10", "ndcg@10", "mr"], prefix="val/")

    def forward(self, user):
        return self.users(user) @ self.items.weight.T

    def training_step(self, batch, batch_idx):
        user, item = batch
        return torch.nn.functional.cross_entropy(self(user), item)

    def validation_step(self, batch, batch_idx):
        user, item = batch
        self.metrics.update(self(user), item)

    def on_validation_epoch_end(self):
        self.log_dict(self.metrics)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def fit(callback):
    torch.manual_seed(0)
    users, items = torch.arange(30).repeat(4), torch.randint(40, (120,))
    data = [
        torch.utils.data.TensorDataset(users[:90], items[:90]),
        torch.utils.data.TensorDataset(users[90:], items[90:]),
    ]
    model, quiet = TwoTower(), dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=4,
        callbacks=[callback],
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        **quiet,
    )
    trainer.fit(model, *(torch.utils.data.DataLoader(part, batch_size=16) for part in data))
    with torch.no_grad():
        top = model(users[90:]).topk(10).indices
    return trainer, (top == items[90:, None]).any(1).double().mean()


@pytest.mark.parametrize(("name", "key"), [("val/recall@10", "val/recall_at_10"), ("mr", "val/mr")])
def test_any_name_stops_in_its_direction(name, key):
    from torchrankmetrics.integrations.early_stopping import EarlyStopping

    stop = EarlyStopping(monitor=name, patience=1)
    trainer, recall = fit(stop)
    assert (stop.monitor, stop.mode) == (key, "min" if name == "mr" else "max")
    assert torch.isclose(trainer.callback_metrics["val/recall_at_10"].double(), recall, atol=1e-6)
    assert torch.isfinite(stop.best_score)
    state = stop.state_dict()
    stop.setup(trainer, trainer.lightning_module, "test")
    assert stop.state_dict() == state


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("val/recal@10", {}, "write one of val/recall_at_10, val/ndcg_at_10, val/mr"),
        ("mr", {"mode": "max"}, "mode must be 'min' for 'val/mr'"),
    ],
)
def test_a_wrong_name_or_mode_is_an_error_before_training(name, options, message):
    from torchrankmetrics.integrations.early_stopping import EarlyStopping

    with pytest.raises(ValueError, match=message):
        fit(EarlyStopping(monitor=name, **options))
