"""The evaluator that ranks among sampled candidates."""

from __future__ import annotations  # the reference is built without PyKEEN

from typing import Any

import torch
from pykeen.evaluation.rank_based_evaluator import sample_negatives
from pykeen.triples import CoreTriplesFactory
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, Target
from torch import Tensor

from torchrankmetrics.integrations.pykeen_evaluator import RankCollectionEvaluator
from torchrankmetrics.ranking import flags
from torchrankmetrics.ranking.arrays import as_ids
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import rank_scores


class SampledRankCollectionEvaluator(RankCollectionEvaluator):
    """``RankCollectionEvaluator`` that ranks each true entity among sampled ones, as ``SampledRankBasedEvaluator``.

    The ranks are marked as sampled: MRR and hits of them differ from those among all entities (docs/protocols.md). A
    sampled candidate that the evaluation filters is excluded.

    Args:
        evaluation_factory: the triples that will be evaluated.
        *args: as in ``RankCollectionEvaluator``.
        additional_filter_triples: (n, 3) known triples that are not sampled, one tensor or several.
        num_negatives: how many are sampled per triple and side; None: 50.
        head_negatives: (triples, M) entities in place of a sample; together with those for the tail.
        tail_negatives: (triples, M) entities in place of a sample; together with those for the head.
        **kwargs: as in ``RankCollectionEvaluator``.

    Raises:
        ValueError: if there are fewer entities than negatives, one side's are missing, or not one row per triple.
    """

    def __init__(
        self,
        evaluation_factory: CoreTriplesFactory,
        *args: Any,
        additional_filter_triples: Tensor | list[Tensor] | None = None,
        num_negatives: int | None = None,
        head_negatives: Tensor | None = None,
        tail_negatives: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.num_entities = evaluation_factory.num_entities
        triples = evaluation_factory.mapped_triples
        if head_negatives is None and tail_negatives is None:
            number = 50 if num_negatives is None else num_negatives
            if not 0 < number <= self.num_entities:
                raise ValueError(f"num_negatives must be in [1, num_entities] = [1, {self.num_entities}], got {number}")
            self.negative_samples = sample_negatives(triples, additional_filter_triples, number, self.num_entities)
        elif head_negatives is None or tail_negatives is None:
            raise ValueError("head_negatives and tail_negatives go together: pass both, or none")
        else:
            given = {LABEL_HEAD: head_negatives, LABEL_TAIL: tail_negatives}
            self.negative_samples = {side: as_ids(ids, f"{side}_negatives") for side, ids in given.items()}
        for side, ids in self.negative_samples.items():
            if ids.ndim != 2 or len(ids) != len(triples):
                raise ValueError(
                    f"{side}_negatives must be ({len(triples)}, M), a row per triple; got {tuple(ids.shape)}"
                )
        self._sizes = triples.max(0).values + 1
        self._keys, self._order = self._key(triples).sort(stable=True)

    def _rank(
        self,
        hrt_batch: Tensor,
        target: Target,
        scores: Tensor,
        own: Tensor,
        exclude: Tensor | tuple[Tensor, Tensor] | None,
    ) -> Ranks:
        if target not in self.negative_samples:
            raise ValueError(f"candidates are sampled for head and tail; got target {target!r}")
        if self._filter.is_restricted:
            raise ValueError("restrict_entities_to does not go with sampled candidates: pass head_ and tail_negatives")
        candidates = self.negative_samples[target][self._index(hrt_batch.cpu())].to(own.device)
        candidates = torch.cat([own[:, None], candidates], 1)
        excluded = None
        if exclude is not None:
            mask = exclude
            if isinstance(mask, tuple):
                mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
                mask[exclude] = True
            excluded = mask.gather(1, candidates)
            excluded[:, 0] = False
        target_column, sampled = torch.zeros_like(own), scores.gather(1, candidates)
        ranks = rank_scores(sampled, target_column, exclude=excluded, backend=self.backend)
        told = torch.zeros_like(own) if ranks.flags is None else ranks.flags
        return Ranks.trusted(ranks.columns, told | flags.SAMPLED)

    def _index(self, triples: Tensor) -> Tensor:
        """Place of triples (B, 3) among those of the evaluation."""
        key = self._key(triples)
        place = torch.searchsorted(self._keys, key).clamp(max=len(self._keys) - 1)
        new = (self._keys[place] != key) | (triples >= self._sizes).any(1)
        if new.any():
            raise ValueError(f"evaluation_factory must hold all triples evaluated; {triples[new][0].tolist()} is new")
        return self._order[place]

    def _key(self, triples: Tensor) -> Tensor:
        _, relations, tails = self._sizes.tolist()
        head, relation, tail = triples.T
        key: Tensor = (head * relations + relation) * tails + tail
        return key
