"""What is no candidate in a batch of PyKEEN: known triples, a restriction, scores that an evaluation loop took away."""

from __future__ import annotations  # the reference is built without PyKEEN

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from pykeen.constants import TARGET_TO_KEYS
from pykeen.typing import LABEL_HEAD, LABEL_RELATION, LABEL_TAIL, Target
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.protocols.known_triples import KnownTriples


class CandidateFilter:
    """Which columns of a batch of scores are left out.

    Args:
        filtered: whether anything is.
        known: the triples whose other answers are; None: what PyKEEN marks.
    """

    def __init__(self, filtered: bool, known: KnownTriples | None) -> None:
        self.filtered = filtered
        self.known = known
        self._place: Tensor | None = None
        self._with_score: dict[Target, Tensor] = {}

    @contextmanager
    def restricted(self, entities: Tensor | Collection[int] | None) -> Iterator[None]:
        """Read columns as those of some entities inside; None: of all."""
        self._place = None if entities is None else _places(entities)
        try:
            yield
        finally:
            self._place = None

    @property
    def is_restricted(self) -> bool:
        """Whether columns are those of some entities."""
        return self._place is not None

    def column(self, entities: Tensor, target: Target) -> Tensor:
        """Columns (B,) of the true answers.

        Raises:
            ValueError: if one is not among the entities that the evaluation is restricted to.
        """
        column, inside = self._placed(entities, target)
        if not inside.all():
            missing = int(entities[~inside][0])
            raise ValueError(f"restrict_entities_to must hold the true {target} of every task; {missing} is missing")
        return column

    def exclude(
        self, hrt_batch: Tensor, target: Target, scores: Tensor, own: Tensor, mask: Tensor | None
    ) -> Tensor | tuple[Tensor, Tensor] | None:
        """What is left out of scores (B, N) with the true columns own (B,), as bool (B, N) or (rows, columns).

        Raises:
            ValueError: if a triple is not known and PyKEEN gives no mask, so that the known ones tell all; or if these
                have more entities than there are scores.
        """
        known = None if self.known is None else self._pairs(self.known, hrt_batch, target, scores.shape[1])
        if mask is not None:
            excluded = mask != 0
            if known is not None:
                excluded[known] = True
            return excluded
        if known is not None:  # of an evaluation loop: what it filtered has lost its scores
            told = torch.zeros(len(own), dtype=torch.bool, device=own.device)
            told[known[0][known[1] == own[known[0]]]] = True
            if not told.all():
                missing = hrt_batch[~told][0].tolist()
                raise ValueError(
                    f"known must hold all that is filtered, the evaluated triples too; {missing} is missing"
                )
            return known
        if not self.filtered:
            return None
        lost = scores.isnan()
        self._with_score[target] = self._with_score.get(target, torch.zeros_like(lost[0])) | ~lost.all(0)
        return lost & ~lost.gather(1, own[:, None])  # where the true score is NaN, so may the others be

    def warn(self, num_tasks: Mapping[Target, int]) -> None:
        """Tell of columns that an evaluation loop filtered in every row, or the model left without a score."""
        for target, with_score in self._with_score.items():
            lost = (~with_score).nonzero()[:, 0].tolist()
            if lost and num_tasks[target] > 1:
                warn(
                    f"{len(lost)} of {len(with_score)} columns of the {target} scores ({', '.join(map(str, lost[:3]))}"
                    f"{', ...' if lost[3:] else ''}) were NaN in every row and left out as filtered: the evaluation "
                    "loop does not tell what it filters from a NaN of the model. Pass known= to the evaluator: then "
                    "such a NaN counts against the model"
                )

    def clear(self) -> None:
        """Forget which columns had scores."""
        self._with_score = {}

    def _placed(self, ids: Tensor, target: Target) -> tuple[Tensor, Tensor]:
        """Columns of ids, and which are there."""
        if self._place is None or target == LABEL_RELATION:
            return ids, torch.ones_like(ids, dtype=torch.bool)
        place = self._place.to(ids.device)
        column = place[ids.clamp(max=len(place) - 1)]
        return column, (ids < len(place)) & (column >= 0)

    def _pairs(self, known: KnownTriples, hrt_batch: Tensor, target: Target, num_columns: int) -> tuple[Tensor, Tensor]:
        if not self.is_restricted and target != LABEL_RELATION and known.num_entities > num_columns:
            raise ValueError(
                f"known has {known.num_entities} entities, but the {target} scores have {num_columns} columns"
            )
        look_up = {LABEL_HEAD: known.heads, LABEL_RELATION: known.relations, LABEL_TAIL: known.tails}[target]
        row, answer = look_up(*hrt_batch[:, TARGET_TO_KEYS[target]].T).pairs()
        column, inside = self._placed(answer, target)
        return row[inside], column[inside]


def _places(entities: Tensor | Collection[int]) -> Tensor:
    """Column of each entity id among those that the evaluation is restricted to, -1 elsewhere."""
    ids = torch.as_tensor(entities if isinstance(entities, Tensor) else list(entities)).cpu()
    place = torch.full((int(ids.max()) + 1,), -1)
    place[ids] = torch.arange(len(ids))
    return place
