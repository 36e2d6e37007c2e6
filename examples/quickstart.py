"""Train ComplEx on a small graph with Lightning, and compare its ranks with random ranking.

    python examples/quickstart.py [--dataset kinships|nations|umls]

Validation is filtered by train + valid alone, the final test by train + valid + test
(docs/guide.md, Filtering). Values go to CSV and TensorBoard under ``logs/``; one table is printed.
"""

import argparse

import pytorch_lightning as pl
import torch
from pykeen.datasets import get_dataset
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout
from torch.utils.data import DataLoader, TensorDataset

from torchrankmetrics import KnownTriples, RankCollection


class ComplEx(pl.LightningModule):
    """ComplEx (Trouillon et al. 2016) with 1-N scoring: every entity is scored for every query."""

    def __init__(
        self, splits: dict[str, Tensor], num_entities: int, num_relations: int, dim: int, lr: float
    ) -> None:
        super().__init__()
        self.entities = torch.nn.Embedding(num_entities, 2 * dim)
        self.relations = torch.nn.Embedding(num_relations, 2 * dim)
        for table in (self.entities, self.relations):
            torch.nn.init.normal_(table.weight, std=0.3)
        self.lr = lr
        # no test triple may affect validation: the known triples are train and valid
        self.known_at_validation = KnownTriples(
            splits["train"], splits["valid"], num_entities=num_entities
        )
        self.known_at_test = KnownTriples(*splits.values(), num_entities=num_entities)
        self.valid_ranks = RankCollection(prefix="val/")
        self.test_ranks = RankCollection(prefix="test/", sides=("both", "head", "tail"))
        self.table = ""

    def score_tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores (B, num_entities) of all tails: Re <h, r, conj t>."""
        h, r = (
            self._complex(table(ids))
            for table, ids in ((self.entities, heads), (self.relations, relations))
        )
        return self._score_all(h * r)

    def score_heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """Scores (B, num_entities) of all heads: Re <h, r, conj t>."""
        r, t = (
            self._complex(table(ids))
            for table, ids in ((self.relations, relations), (self.entities, tails))
        )
        return self._score_all(r.conj() * t)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        """Cross-entropy over all entities, in both directions."""
        h, r, t = batch[0].unbind(1)
        loss = cross_entropy(self.score_tails(h, r), t) + cross_entropy(self.score_heads(r, t), h)
        self.log("train/loss", loss, prog_bar=True, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        """Rank both sides, filtered by train + valid."""
        self._rank(self.valid_ranks, self.known_at_validation, batch[0])

    def on_validation_epoch_end(self) -> None:
        """Log the whole collection: Lightning computes and resets it."""
        self.log_dict(self.valid_ranks, prog_bar=False)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Rank both sides, filtered by all splits."""
        self._rank(self.test_ranks, self.known_at_test, batch[0])

    def on_test_epoch_end(self) -> None:
        """Log the collection and keep its table."""
        self.table = str(self.test_ranks.summary())
        self.log_dict(self.test_ranks)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam on all embeddings."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)

    def _rank(self, ranks: RankCollection, known: KnownTriples, triples: Tensor) -> None:
        h, r, t = triples.unbind(1)
        ranks.update(self.score_tails(h, r), t, exclude=known.tails(h, r), side="tail")
        ranks.update(self.score_heads(r, t), h, exclude=known.heads(r, t), side="head")

    @staticmethod
    def _complex(x: Tensor) -> Tensor:
        return torch.complex(*x.chunk(2, dim=-1))

    def _score_all(self, query: Tensor) -> Tensor:
        real = dropout(torch.view_as_real(query).flatten(1), 0.3, self.training)
        return real @ torch.view_as_real(self._complex(self.entities.weight)).flatten(1).T


def main() -> str:
    """Train, test, and return the printed table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=("kinships", "nations", "umls"), default="kinships")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--dim", type=int, default=64, help="complex dimensions of an embedding")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", default="logs", help="folder for CSV and TensorBoard")
    args = parser.parse_args()

    torch.set_num_threads(1)  # matrices this small lose more to threads than they gain
    pl.seed_everything(args.seed, verbose=False)
    dataset = get_dataset(dataset=args.dataset)
    splits = {
        "train": dataset.training.mapped_triples,
        "valid": dataset.validation.mapped_triples,
        "test": dataset.testing.mapped_triples,
    }
    loaders = {
        name: DataLoader(
            TensorDataset(triples), batch_size=args.batch_size, shuffle=name == "train"
        )
        for name, triples in splits.items()
    }
    model = ComplEx(splits, dataset.num_entities, dataset.num_relations, args.dim, args.lr)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=[
            CSVLogger(args.logs, name=args.dataset),
            TensorBoardLogger(args.logs, name=args.dataset),
        ],
        enable_checkpointing=False,
        enable_model_summary=False,
        log_every_n_steps=10,
    )
    trainer.fit(model, loaders["train"], loaders["valid"])
    trainer.test(model, loaders["test"], verbose=False)
    print(
        f"\n{args.dataset}: filtered test ranks of ComplEx, {args.dim} dimensions, {args.epochs} "
        "epochs"
    )
    print(model.table)
    return model.table


if __name__ == "__main__":
    main()
