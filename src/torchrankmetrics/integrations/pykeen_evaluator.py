"""`RankCollectionEvaluator` for PyKEEN, and the candidates that its evaluation filters."""

from __future__ import annotations  # the reference is built without PyKEEN

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch
from pykeen.constants import TARGET_TO_INDEX, TARGET_TO_KEYS
from pykeen.evaluation import Evaluator
from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey, summarize_values
from pykeen.typing import LABEL_RELATION, InductiveMode, Target
from torch import Tensor

from torchrankmetrics.definitions.protocol import Average, View
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.errors import warn
from torchrankmetrics.integrations.pykeen_results import (
    Keywords,
    Known,
    RankResults,
    Requested,
    known_triples,
    pykeen_keys,
    relation_metrics,
    requested_metrics,
)
from torchrankmetrics.kg.known_triples import KnownTriples
from torchrankmetrics.metrics.collection import RankCollection
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.ranking.counting import chosen
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import rank_scores
from torchrankmetrics.table.columns import ABSENT, SIDE_CODES, Columns
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import one_number

_ID_BITS = 30  # two ids and a side in one int64


class RankCollectionEvaluator(Evaluator[RankBasedMetricKey]):
    """Evaluator for PyKEEN's ``pipeline``, evaluation loops, early stopper and ``hpo_pipeline``.

    A NaN score counts against the model. PyKEEN's own evaluator treats NaN as filtered, so a diverged model ranks
    first. ``LCWAEvaluationLoop`` also marks filtered candidates with NaN: pass ``known`` there. ``collection`` contains
    the last evaluation until the next one begins, with relations as groups and triple indices as sample ids.

    Args:
        metrics (sequence of str, default None): as in ``RankCollection``, or metrics of PyKEEN; None: all of
            ``RankBasedEvaluator``, and the tie rate.
        metrics_kwargs (mapping, default None): of PyKEEN's metrics: a dict for all, or one per metric.
        add_defaults (bool, default False): whether the default metrics are computed beside ``metrics``.
        views (sequence of str, default ("base",)): as in ``RankCollection``.
        rank_types (sequence of str): as in ``RankCollection``; default all three of PyKEEN.
        expectation (ExpectationProvider, default None): as in ``RankCollection``.
        average (str, default "micro"): "micro", or "macro": every query weighs the same, as in
            ``MacroRankBasedEvaluator``; the group of a rank is its query then.
        filtered (bool, default True): whether known triples are left out of the candidates.
        known (KnownTriples or triples, default None): the triples to filter, the evaluated ones included:
            ``KnownTriples``, datasets or triples factories. PyKEEN's own filter triples are excluded in addition. None:
            only PyKEEN's filter triples.
        clear_on_finalize (bool, default True): if False, evaluations accumulate until ``clear``.
        batch_size, slice_size (int, default None): of the evaluation; None: PyKEEN's choice.
        mode (str, default None): inductive mode, or None.
        backend (str, default "auto"): as ``rank_scores`` takes it.

    Raises:
        TypeError, ValueError: as ``RankCollection`` and ``known_triples``; and if known is given, but not filtered.
    """

    metric_result_cls = RankResults

    def __init__(
        self,
        metrics: Requested | None = None,
        *,
        metrics_kwargs: Keywords | None = None,
        add_defaults: bool = False,
        views: Sequence[View] = ("base",),
        rank_types: Sequence[RankType] = ("realistic", "optimistic", "pessimistic"),
        average: Average = "micro",
        expectation: ExpectationProvider | None = None,
        filtered: bool = True,
        known: Known | None = None,
        clear_on_finalize: bool = True,
        batch_size: int | None = None,
        slice_size: int | None = None,
        mode: InductiveMode | None = None,
        backend: str = "auto",
    ) -> None:
        if known is not None and not filtered:
            raise ValueError("known must be None if filtered is False, got known triples; leave one of them out")
        chosen(torch.empty(0, 0, device="cpu"), backend)  # an error before a model is trained
        # the mask distinguishes filtered scores from NaN scores of the model
        super().__init__(filtered, filtered, batch_size, slice_size, mode)
        requested = requested_metrics(metrics, metrics_kwargs, add_defaults)
        self._relation_metrics = relation_metrics(requested)
        self.collection = RankCollection(
            requested,
            views=views,
            rank_types=rank_types,
            sides=("both", "head", "tail"),
            expectation=expectation,
            average=average,
        )
        self.average = average
        self.backend = backend
        self.clear_on_finalize = clear_on_finalize
        self.num_entities: int | None = None
        if known is not None and not isinstance(known, KnownTriples):
            known = known_triples(*known) if isinstance(known, list | tuple) else known_triples(known)
        self._known = known
        self._columns_of: Tensor | None = None  # column of each entity, -1: none; None: all entities are columns
        self._with_score: dict[Target, Tensor] = {}  # columns that were not NaN in every row
        self._ranked: dict[Target, int] = {}
        self._finished = False

    def evaluate(self, *args: Any, **kwargs: Any) -> RankResults:
        """Evaluate as ``pykeen.evaluation.Evaluator.evaluate`` does, with its arguments."""
        given = inspect.signature(Evaluator.evaluate).bind(self, *args, **kwargs).arguments
        entities = given.get("restrict_entities_to")
        if entities is not None:
            ids = torch.as_tensor(entities if isinstance(entities, Tensor) else list(entities)).cpu()
            self._columns_of = torch.full((int(ids.max()) + 1,), -1)
            self._columns_of[ids] = torch.arange(len(ids))
        try:
            results = super().evaluate(*args, **kwargs)
        finally:
            self._columns_of = None
        assert isinstance(results, RankResults)
        return results

    def process_scores_(
        self,
        hrt_batch: Tensor,
        target: Target,
        scores: Tensor,
        true_scores: Tensor | None = None,
        dense_positive_mask: Tensor | None = None,
    ) -> None:
        """Rank a batch; PyKEEN calls it.

        Raises:
            ValueError: if a target is not among the entities of the evaluation, or ``known`` is the only filter and
                lacks an evaluated triple.
        """
        if self._finished:
            self.clear()
        entities = hrt_batch[:, TARGET_TO_INDEX[target]]
        own, inside = self._columns(entities, target)
        if not inside.all():
            missing = int(entities[~inside][0])
            raise ValueError(
                f"restrict_entities_to must contain the {target} of every evaluated triple; {missing} is missing"
            )
        exclude = self._exclude(hrt_batch, target, scores, own, dense_positive_mask)
        ranks = self._rank(hrt_batch, target, scores, own, exclude)
        if target != LABEL_RELATION:
            self.num_entities = scores.shape[1]
        elif self._relation_metrics:  # few evaluations rank relations: for the others they would be a third more
            self.collection.add_metrics(self._relation_metrics)
            self._relation_metrics = []
        first = self._ranked.get(target, 0)
        self.collection.update(
            ranks,
            side=target,
            group=self._group(hrt_batch, target),
            sample_id=torch.arange(first, first + len(own), device=own.device),
        )
        self._ranked[target] = first + len(own)

    def clear(self) -> None:
        """Reset the ranks; PyKEEN calls it before each evaluation, but not in its evaluation loops."""
        self.collection.reset()
        self._with_score, self._ranked, self._finished = {}, {}, False

    def finalize(self) -> RankResults:
        """Results of the sides that were ranked; ``collection`` keeps the ranks until the next batch comes.

        Raises:
            ValueError: if nothing was evaluated since the last time.
        """
        if self._finished or not self._ranked:
            raise ValueError("no ranks: call evaluate first")
        for target, with_score in self._with_score.items():
            lost = (~with_score).nonzero()[:, 0].tolist()
            if lost and self._ranked[target] > 1:
                warn(
                    f"{len(lost)} of {len(with_score)} columns of the {target} scores ({', '.join(map(str, lost[:3]))}"
                    f"{', ...' if lost[3:] else ''}) were NaN in every row and were excluded as filtered. The "
                    "evaluation loop marks filtered candidates with NaN, too. Pass known= to the evaluator: then a NaN "
                    "score of the model counts against the model"
                )
        values = self.collection.compute()
        results = RankResults({key: float(values[name]) for key, (name, _) in self.computed(self._ranked).items()})
        results.table = self.collection.table()
        results._measures = list(self.collection.measures.values())
        self._finished = self.clear_on_finalize
        return results

    def finalize_multi(self, n_boot: int = 1_000, seed: int = 42) -> dict[str, list[float]]:
        """Values of every metric on resampled tasks: triples are drawn with replacement, with all their sides.

        Args:
            n_boot (int, default 1000): number of resamples.
            seed (int, default 42): random seed of the first; each side is drawn as in PyKEEN's ``finalize_multi``.

        Returns:
            Dict of PyKEEN's key to ``n_boot`` values.

        Raises:
            ValueError: if nothing was evaluated.
        """
        if not self._ranked:
            raise ValueError("no ranks: call evaluate first")
        rows = self.collection.table().rows
        order = Columns(rows).sample_id.argsort(stable=True)
        parts = [rows[order][Columns(rows[order]).side == SIDE_CODES[side]] for side in self._ranked]
        for part in parts:
            Columns(part).sample_id = ABSENT  # a triple that is drawn twice counts twice
        drawn = self.collection.clone()
        names = {".".join(key): name for key, (name, _) in self.computed(self._ranked).items()}
        result: dict[str, list[float]] = {key: [] for key in names}
        for number in range(n_boot):
            ids = [np.random.default_rng(seed + number).integers(len(part), size=len(part)) for part in parts]
            drawn.reset()
            drawn.update(RankTable(torch.cat([part[i] for part, i in zip(parts, ids, strict=True)])))
            values = drawn.compute()
            for key, name in names.items():
                result[key].append(float(values[name]))
        return result

    def finalize_with_confidence(
        self,
        estimator: str | Callable[[Sequence[float]], float] = np.median,
        ci: float | str | Callable[[Sequence[float]], float] = 90,
        n_boot: int = 1_000,
        seed: int = 42,
    ) -> dict[str, tuple[float, float]]:
        """Centre and spread of every metric over resampled tasks, as PyKEEN's evaluator gives them.

        Args:
            estimator (str or callable, default numpy.median): of the centre: a function, or the name of one of NumPy.
            ci (float, str or callable, default 90): the same for the spread; or how many per cent in the middle its
                width covers. (PyKEEN 1.11.1 takes the middle 10 for 90.)
            n_boot (int, default 1000): as in ``finalize_multi``.
            seed (int, default 42): as in ``finalize_multi``.

        Returns:
            Dict of PyKEEN's key to (center, spread).

        Raises:
            ValueError: if nothing was evaluated, or ci is not within [0, 100].
        """
        if not isinstance(ci, str) and not callable(ci):
            width = one_number(ci)
            if width is None or not 0 <= width <= 100:
                raise ValueError(f"ci must be within [0, 100] per cent, got {ci}")
            ends = 50 - width / 2, 50 + width / 2
            ci = lambda values: float(np.diff(np.percentile(values, ends))[0])  # noqa: E731
        drawn = self.finalize_multi(n_boot, seed)
        return {key: summarize_values(values, estimator=estimator, ci=ci) for key, values in drawn.items()}

    def computed(self, sides: Collection[str] = ("head", "tail")) -> dict[RankBasedMetricKey, tuple[str, Measure]]:
        """Map PyKEEN's keys to keys and measures of ``collection``, for the ranked sides.

        Args:
            sides (collection of str, default ("head", "tail")): sides that were ranked.

        Returns:
            Dict of PyKEEN's key to (key, measure).
        """
        result: dict[RankBasedMetricKey, tuple[str, Measure]] = {}
        for name, measure in self.collection.measures.items():
            if measure.side == "both" or measure.side in sides:
                result |= dict.fromkeys(pykeen_keys(name, measure), (name, measure))
        return result

    def _rank(
        self,
        hrt_batch: Tensor,
        target: Target,
        scores: Tensor,
        own: Tensor,
        exclude: Tensor | tuple[Tensor, Tensor] | None,
    ) -> Ranks:
        return rank_scores(scores, own, exclude=exclude, backend=self.backend)

    def _group(self, hrt_batch: Tensor, target: Target) -> Tensor:
        if self.average == "micro":
            return hrt_batch[:, 1]
        first, second = hrt_batch[:, TARGET_TO_KEYS[target]].T
        query: Tensor = ((SIDE_CODES[target] << _ID_BITS | first) << _ID_BITS) | second
        return query

    def _columns(self, ids: Tensor, target: Target) -> tuple[Tensor, Tensor]:
        """Return the columns of ids among the scores, and a mask of the ids that have one."""
        if self._columns_of is None or target == LABEL_RELATION:
            return ids, torch.ones_like(ids, dtype=torch.bool)
        columns_of = self._columns_of.to(ids.device)
        column = columns_of[ids.clamp(max=len(columns_of) - 1)]
        return column, (ids < len(columns_of)) & (column >= 0)

    def _exclude(
        self, hrt_batch: Tensor, target: Target, scores: Tensor, own: Tensor, mask: Tensor | None
    ) -> Tensor | tuple[Tensor, Tensor] | None:
        """Return the excluded candidates of scores (B, N) with target columns own (B,): bool or (rows, columns)."""
        known = None
        if self._known is not None:
            if self._columns_of is None and target != LABEL_RELATION and self._known.num_entities > scores.shape[1]:
                raise ValueError(
                    f"known has {self._known.num_entities} entities, but the {target} scores have {scores.shape[1]} "
                    "columns"
                )
            look_up = {"head": self._known.heads, "relation": self._known.relations, "tail": self._known.tails}[target]
            row, answer = look_up(*hrt_batch[:, TARGET_TO_KEYS[target]].T).pairs()
            column, inside = self._columns(answer, target)
            known = row[inside], column[inside]
        if mask is not None:
            excluded = mask != 0
            if known is not None:
                excluded[known] = True
            return excluded
        if known is not None:  # an evaluation loop replaces the scores of filtered candidates by NaN
            is_known = torch.zeros(len(own), dtype=torch.bool, device=own.device)
            is_known[known[0][known[1] == own[known[0]]]] = True
            if not is_known.all():
                missing = hrt_batch[~is_known][0].tolist()
                raise ValueError(
                    f"known must contain all filtered triples, the evaluated ones included; {missing} is missing"
                )
            return known
        if not self.filtered:
            return None
        lost = scores.isnan()
        self._with_score[target] = self._with_score.get(target, torch.zeros_like(lost[0])) | ~lost.all(0)
        return lost & ~lost.gather(
            1, own[:, None]
        )  # if the target score is NaN, other NaN scores may come from the model
