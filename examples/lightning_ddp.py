"""The quickstart on two processes: the values equal the values of one process, in spite of padding.

    python examples/lightning_ddp.py [--dataset nations|kinships|umls]

Lightning's sampler repeats triples, so that both processes have equally many. Each triple has its
index as ``sample_id``, so that repeats count once. The values are equal bit for bit.
"""

import argparse

import pytorch_lightning as pl
import torch
from pykeen.datasets import get_dataset
from quickstart import ComplEx
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from torchrankmetrics import KnownTriples, RankCollection


class ComplExOfIndexedTriples(ComplEx):
    """ComplEx whose evaluation gets (B, 4) triples with their index in the split."""

    def _rank(self, ranks: RankCollection, known: KnownTriples, triples: Tensor) -> None:
        h, r, t, index = triples.unbind(1)
        ranks.update(
            self.score_tails(h, r), t, exclude=known.tails(h, r), side="tail", sample_id=index
        )
        ranks.update(
            self.score_heads(r, t), h, exclude=known.heads(r, t), side="head", sample_id=index
        )

    def rank_alone(self, triples: Tensor, batch_size: int) -> dict[str, Tensor]:
        """Test values of this process alone, over all triples."""
        alone = RankCollection(
            prefix="test/", sides=("both", "head", "tail"), sync_on_compute=False
        )
        self.eval()
        with torch.no_grad():
            for batch in triples.split(batch_size):
                self._rank(alone, self.known_at_test, batch)
        return alone.compute()


def main() -> None:
    """Train and test on two processes, then test once more on one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=("kinships", "nations", "umls"), default="nations")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    torch.set_num_threads(1)
    pl.seed_everything(0, verbose=False)
    dataset = get_dataset(dataset=args.dataset)
    parts = {"train": dataset.training, "valid": dataset.validation, "test": dataset.testing}
    splits = {name: part.mapped_triples for name, part in parts.items()}
    indexed = {name: torch.cat([x, torch.arange(len(x))[:, None]], 1) for name, x in splits.items()}
    model = ComplExOfIndexedTriples(
        splits, dataset.num_entities, dataset.num_relations, dim=32, lr=0.02
    )
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    training = DataLoader(TensorDataset(splits["train"]), batch_size=64, shuffle=True)
    trainer.fit(model, training, DataLoader(TensorDataset(indexed["valid"]), batch_size=64))
    logged = trainer.test(
        model, DataLoader(TensorDataset(indexed["test"]), batch_size=64), verbose=False
    )[0]
    if trainer.is_global_zero:
        alone = {key: value.item() for key, value in model.rank_alone(indexed["test"], 64).items()}
        print(
            f"{args.dataset}: {len(splits['test'])} test triples on {trainer.world_size} processes"
        )
        print(model.table)
        print(f"values equal the values of one process: {logged == alone}")


if __name__ == "__main__":
    main()
