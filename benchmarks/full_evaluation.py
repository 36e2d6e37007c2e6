"""A whole filtered evaluation, both sides, DistMult d = 200: rank_triples and pykeen's RankBasedEvaluator.

python -m benchmarks.full_evaluation [--full] [--threads N] [--json PATH] [--data FOLDER] [--tasks N]

FOLDER has train.tsv, valid.tsv and test.tsv of integer ids (head, relation, tail); without it Kinships (from pykeen) is
used. --tasks N evaluates N random test triples instead of all: pykeen takes minutes for all of FB15k-237. Embeddings
are small integers, so that both compute the same scores for any order of the sums.
"""

import contextlib
import functools
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import arguments, line, read_splits, report
from pykeen.datasets import Kinships
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import DistMult
from pykeen.triples import CoreTriplesFactory

from torchrankmetrics import KnownTriples
from torchrankmetrics.kg.triples import rank_triples

SIDES = ("tail", "head")


def main() -> None:
    given = arguments(__doc__.splitlines()[0], folder=True)
    report(rows(given.full, given.data, given.tasks), given.json)


def rows(full: bool, folder: Path | None = None, tasks: int | None = None) -> list[dict[str, Any]]:
    name = "Kinships" if folder is None else folder.name
    splits = kinships() if folder is None else read_splits(folder)
    model = distmult(torch.cat(splits))
    test = splits[2]
    if tasks is not None:
        test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(7))[:tasks]]
    case = f"{name}: {len(test)} of {len(splits[2])} triples, both sides"
    # pykeen takes as long for 64 as for 256, and twice as long for 1024
    return compare(case, model, splits, test, batch_sizes=(256, 64) if full else (256,))


def kinships() -> list[torch.Tensor]:
    dataset = Kinships()
    return [dataset.training.mapped_triples, dataset.validation.mapped_triples, dataset.testing.mapped_triples]


def distmult(triples: torch.Tensor) -> DistMult:
    factory = CoreTriplesFactory.create(triples)
    model = DistMult(triples_factory=factory, embedding_dim=200, random_seed=0)
    generator = torch.Generator().manual_seed(0)
    for representation in (model.entity_representations[0], model.relation_representations[0]):
        weight = representation._embeddings.weight
        weight.data = torch.randint(-3, 4, weight.shape, generator=generator).float()
    return model.eval()


def compare(
    case: str, model: DistMult, splits: list[torch.Tensor], test: torch.Tensor, batch_sizes: tuple[int, ...]
) -> list[dict[str, Any]]:
    entities = model.entity_representations[0]._embeddings.weight.data
    relations = model.relation_representations[0]._embeddings.weight.data

    def floor() -> None:
        # the products alone: one per unique query and side
        for columns in ([0, 1], [1, 2]):
            queries = torch.unique(test[:, columns], dim=0)
            left = [relations if column == 1 else entities for column in columns]
            for batch in queries.split(256):
                (left[0][batch[:, 0]] * left[1][batch[:, 1]]) @ entities.T

    def ours() -> Any:
        known = KnownTriples(*splits, num_entities=len(entities))
        with contextlib.redirect_stderr(io.StringIO()):  # the progress bar
            return rank_triples(
                lambda h, r: (entities[h] * relations[r]) @ entities.T,
                lambda r, t: (relations[r] * entities[t]) @ entities.T,
                test,
                known,
            )

    def theirs(batch_size: int) -> RankBasedEvaluator:
        evaluator = RankBasedEvaluator(filtered=True, clear_on_finalize=False)
        evaluator.evaluate(model, test, batch_size=batch_size, use_tqdm=False, additional_filter_triples=splits)
        return evaluator

    logging.getLogger("torch_max_mem").setLevel(logging.ERROR)  # says at every batch that there is no CUDA
    peers, evaluators = [], []
    for batch_size in batch_sizes:
        # minutes at the size of FB15k-237: one run is both measured and compared
        run = functools.partial(lambda size: evaluators.append(theirs(size)), batch_size)
        peers.append(line(case, f"pykeen evaluate, batch {batch_size}", "peer", run, seconds=10, least=1, warm=True))
    table = ours()
    for evaluator in evaluators:
        check(table, evaluator)
    return [line(case, "products alone", "floor", floor), line(case, "rank_triples", "ours", ours), *peers]


def check(table: Any, evaluator: RankBasedEvaluator) -> None:
    for side in SIDES:
        ranks = table.select(side=side).ranks
        for kind in ("optimistic", "pessimistic"):
            expected = torch.from_numpy(np.concatenate(evaluator.ranks[side, kind]))
            assert torch.equal(getattr(ranks, kind).double(), expected.double()), f"{side} {kind} ranks differ"


if __name__ == "__main__":
    main()
