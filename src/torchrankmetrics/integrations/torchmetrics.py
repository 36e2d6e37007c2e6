"""The metrics of ``torchmetrics.retrieval`` from ranks: one import changes, the values stay."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.decorators import eager
from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.integrations.drop_in import DropIn
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.state import value_device
from torchrankmetrics.queries.definitions import QueryDefinition, recall_at
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.ranking.arrays import Integers, Numbers, as_tensor
from torchrankmetrics.table.columns import Columns
from torchrankmetrics.table.queries import queries_of
from torchrankmetrics.validation import check_choice, check_int, shorten

EmptyTargetAction = Literal["neg", "pos", "skip", "error"]
Aggregation = Literal["mean", "median", "min", "max"] | Callable[..., Tensor]
_AGGREGATIONS = ("mean", "median", "min", "max")
_ALL = 1 << 62  # a cut-off behind every list
_STAYS = {
    "RetrievalPrecisionRecallCurve": "a curve",
    "RetrievalRecallAtFixedPrecision": "a point of a curve",
}


def __getattr__(name: str) -> Any:
    if name in _STAYS:
        raise ImportError(
            f"{name} is {_STAYS[name]}, not a mean over queries: import it from "
            "torchmetrics.retrieval"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class RetrievalMetric(DropIn):
    """Base of the metrics of ``torchmetrics.retrieval``, as a mapping of the values of queries.

    ``compute`` and ``forward`` return 0-d float32, as torchmetrics. The values are those of
    torchmetrics 1.9.0, with these exceptions:

    - Tied scores have the expected value over their orders; torchmetrics takes the order of its
      sort. (``RetrievalNormalizedDCG`` is expected there, too.)
    - A score of 0 or below is a score. torchmetrics counts relevant documents with such scores as
      missed in MRR, MAP, precision and recall.
    - NaN scores never help.
    - Scores are compared as they are; torchmetrics rounds them to float32.
    - Labels below 0, which torchmetrics accepts for NDCG, are an error.
    - ``compute`` before any ``update`` is NaN, with a warning.

    ``update`` waits for an accelerator, as in torchmetrics.

    Args:
        empty_target_action (str, default "neg"): value of queries without a relevant document: 0
            ("neg"), 1 ("pos"), none ("skip"; 0 if no query is left), or a ValueError ("error").
        ignore_index (int, default None): label of documents that are left out.
        top_k (int, default None): number of first places that count; None: all.
        aggregation (str or callable, default "mean"): "mean", "median", "min", "max", or a function
            of the values (Q,) float64, by ascending index, and ``dim=None``.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.

    Raises:
        TypeError, ValueError: for other arguments.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalRecall
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalRecall(top_k=1, aggregation="max")(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.)
    """

    # of the equal RankMetric, without and with a cut-off
    _names: ClassVar[tuple[str, str]]
    _is_graded: ClassVar[bool] = False
    _lacking: ClassVar[str] = "relevant document"

    def __init__(
        self,
        empty_target_action: EmptyTargetAction = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        check_choice("empty_target_action", empty_target_action, get_args(EmptyTargetAction))
        if not callable(aggregation):
            check_choice("aggregation", aggregation, _AGGREGATIONS)
        if ignore_index is not None and not isinstance(ignore_index, int):
            raise ValueError(f"ignore_index must be an int or None, got {shorten(ignore_index)}")
        whole, cut = self._names
        name = whole if top_k is None else cut.format(check_int("top_k", top_k, 1))
        is_zero = empty_target_action == "neg"
        super().__init__(name, empty_queries="zero" if is_zero else "skip", **kwargs)
        self.empty_target_action = empty_target_action
        self.ignore_index = ignore_index
        self.top_k = top_k
        self.aggregation = aggregation

    @eager
    def update(  # type: ignore[override]  # the arguments of torchmetrics
        self,
        preds: Tensor,
        target: Tensor,
        indexes: Integers,
        *,
        sample_id: Integers | None = None,
    ) -> None:
        """Store scores and labels; entries of one index are one query over updates and processes.

        Args:
            preds (Tensor): scores of any shape, higher is better.
            target (Tensor): bool or labels of that shape: 0 and 1, for NDCG numbers of at least 0.
            indexes (integers): the query of each score, of that shape, at least 0.
            sample_id (integers, default None): of that shape: repeats of an id, as of a distributed
                sampler, count once.

        Raises:
            TypeError, ValueError: for bad input, before the state changes.
        """
        given: dict[str, Numbers] = {"preds": preds, "target": target, "indexes": indexes}
        if sample_id is not None:
            given["sample_id"] = sample_id
        columns: dict[str, Any] = {name: as_tensor(one, name) for name, one in given.items()}
        shapes = {name: tuple(column.shape) for name, column in columns.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(f"{', '.join(columns)} must have one shape, got {shapes}")
        columns = {name: column.flatten() for name, column in columns.items()}
        if self.ignore_index is not None:
            used = columns["target"] != self.ignore_index
            columns = {name: column[used.to(column.device)] for name, column in columns.items()}
        label = columns["target"]
        is_binary = (label == 0) | (label == 1)
        if not (self._is_graded or is_binary.all()):
            raise ValueError(f"target must be 0 or 1, got {label[~is_binary][0].item()}")
        RankMetric.update(self, **columns)

    @eager
    def compute(self) -> Tensor:
        """Aggregate the values of all queries so far, 0-d float32."""
        analysis = self.rows.analysis()
        self._warn_of(analysis, [self.measure])
        rows = analysis.all_rows
        queries = self._definition.read(queries_of(rows))
        queries = queries.take(np.argsort(Columns(rows).query[queries.row]))
        values = self._values(queries)
        values = np.where(np.isnan(values), 0.0, values)  # as torchmetrics where it is undefined

        is_empty = self._is_empty(queries)
        values[is_empty] = 1.0 if self.empty_target_action == "pos" else 0.0
        if self.empty_target_action == "skip":
            values = values[~is_empty]
        elif self.empty_target_action == "error" and is_empty.any():
            raise ValueError(
                f"target must have a {self._lacking} for every index, got {is_empty.sum()} without "
                "any; empty_target_action='skip' leaves these queries out"
            )
        value = self._aggregated(torch.from_numpy(values)) if analysis.has_rows else torch.nan
        return torch.as_tensor(value, dtype=torch.float32, device=value_device(self.device))

    @property
    def _definition(self) -> QueryDefinition:
        return self.measure.definition  # type: ignore[return-value]  # names of query metrics

    def _values(self, queries: QuerySample) -> FloatArray:
        """Value of every query, (Q,); NaN where it is undefined."""
        return self._definition.values(queries)

    def _is_empty(self, queries: QuerySample) -> npt.NDArray[np.bool_]:
        """Which queries have the value of ``empty_target_action``, (Q,)."""
        return np.asarray(queries.num_relevant == 0)

    def _aggregated(self, values: Tensor) -> Any:
        if not len(values):
            return 0.0
        if callable(self.aggregation):
            return self.aggregation(values, dim=None)
        return getattr(values, self.aggregation)()


class RetrievalMRR(RetrievalMetric):
    """torchmetrics' ``RetrievalMRR``: the equal metric is ``rr``, with top_k ``rr@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalMRR
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalMRR()(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.5000)
    """

    _names = "rr", "rr@{}"


class RetrievalMAP(RetrievalMetric):
    """torchmetrics' ``RetrievalMAP``: the equal metric is ``ap``.

    With top_k, torchmetrics divides the sum of precisions by the number of relevant documents
    within the first k, so that finding fewer of them can raise the value. trec_eval divides by the
    number of all relevant documents of the query: this is ``ap@k``. Tied scores with top_k have
    ``ap@k`` over ``recall@k``, both expected over the orders of ties.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalMAP
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalMAP()(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.5417)
    """

    _names = "ap", "ap@{}"

    def _values(self, queries: QuerySample) -> FloatArray:
        values = super()._values(queries)
        if self.top_k is None:
            return values
        found = recall_at(self.top_k).values(queries)
        return np.divide(values, found, out=np.zeros_like(values), where=found > 0)


class RetrievalNormalizedDCG(RetrievalMetric):
    """torchmetrics' ``RetrievalNormalizedDCG``: the equal metric is ``ndcg`` or ``ndcg@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalNormalizedDCG
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalNormalizedDCG()(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.6622)
    """

    _names = "ndcg", "ndcg@{}"
    _is_graded = True


class RetrievalPrecision(RetrievalMetric):
    """torchmetrics' ``RetrievalPrecision``: the equal metric with top_k is ``precision@k``.

    Args:
        empty_target_action, ignore_index, top_k, aggregation: as ``RetrievalMetric``.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.
        adaptive_k (bool, default False): divide by the number of documents of a query if it has
            less than top_k.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalPrecision
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalPrecision(top_k=2)(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.5000)
    """

    _names = f"precision@{_ALL}", "precision@{}"

    def __init__(
        self,
        empty_target_action: EmptyTargetAction = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        adaptive_k: bool = False,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        if not isinstance(adaptive_k, bool):
            raise ValueError(f"adaptive_k must be True or False, got {shorten(adaptive_k)}")
        super().__init__(empty_target_action, ignore_index, top_k, aggregation, **kwargs)
        self.adaptive_k = adaptive_k

    def _values(self, queries: QuerySample) -> FloatArray:
        values = super()._values(queries)
        if self.top_k is not None and not self.adaptive_k:
            return values
        k = _ALL if self.top_k is None else self.top_k
        return np.asarray(values * (k / np.minimum(k, queries.num_candidates)))


class RetrievalRecall(RetrievalMetric):
    """torchmetrics' ``RetrievalRecall``: the equal metric with top_k is ``recall@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalRecall
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalRecall(top_k=2)(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.7500)
    """

    _names = f"recall@{_ALL}", "recall@{}"


class RetrievalHitRate(RetrievalMetric):
    """torchmetrics' ``RetrievalHitRate``: the equal metric with top_k is ``success@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalHitRate
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalHitRate(top_k=1)(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.)
    """

    _names = f"success@{_ALL}", "success@{}"


class RetrievalFallOut(RetrievalMetric):
    """torchmetrics' ``RetrievalFallOut``: the equal metric is ``fall_out@k``; lower is better.

    ``empty_target_action`` is for queries whose documents are all relevant. Queries without a
    relevant document have the share of their documents within the first k.

    Args:
        empty_target_action (str, default "pos"): as ``RetrievalMetric``.
        ignore_index, top_k, aggregation: as ``RetrievalMetric``.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalFallOut
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalFallOut(top_k=1)(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(1.)
    """

    _names = f"fall_out@{_ALL}", "fall_out@{}"
    _lacking = "document that is not relevant"

    def __init__(
        self,
        empty_target_action: EmptyTargetAction = "pos",
        ignore_index: int | None = None,
        top_k: int | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(empty_target_action, ignore_index, top_k, aggregation, **kwargs)

    def _values(self, queries: QuerySample) -> FloatArray:
        N = queries.num_candidates
        k = _ALL if self.top_k is None else self.top_k
        return np.where(queries.num_relevant == 0, np.minimum(k, N) / N, super()._values(queries))

    def _is_empty(self, queries: QuerySample) -> npt.NDArray[np.bool_]:
        return np.asarray(queries.num_relevant == queries.num_candidates)


class RetrievalRPrecision(RetrievalMetric):
    """torchmetrics' ``RetrievalRPrecision``: the equal metric is ``r_precision``.

    Args:
        empty_target_action, ignore_index, aggregation: as ``RetrievalMetric``.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalRPrecision
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalRPrecision()(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.2500)
    """

    _names = "r_precision", "r_precision"

    def __init__(
        self,
        empty_target_action: EmptyTargetAction = "neg",
        ignore_index: int | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(empty_target_action, ignore_index, None, aggregation, **kwargs)


class RetrievalAUROC(RetrievalMetric):
    """torchmetrics' ``RetrievalAUROC``: the equal metric without top_k is ``query_auc``.

    With top_k, only the first k documents of a query are a list; relevant documents that are tied
    across this limit are outside of it. As in torchmetrics, a list of relevant documents only, or
    of others only, has the value 0.

    Args:
        empty_target_action, ignore_index, top_k, aggregation: as ``RetrievalMetric``.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.
        max_fpr (None, default None): partial areas are not available.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torchmetrics import RetrievalAUROC
    >>> scores, labels = tensor([0.9, 0.4, 0.1, 0.6, 0.7]), tensor([0, 1, 1, 1, 0])
    >>> RetrievalAUROC()(scores, labels, indexes=tensor([0, 0, 0, 1, 1]))
    tensor(0.)
    """

    _names = "query_auc", "query_auc"

    def __init__(
        self,
        empty_target_action: EmptyTargetAction = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        max_fpr: None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        if max_fpr is not None:
            raise ValueError(
                f"max_fpr must be None, got {shorten(max_fpr)}: the partial area is not available "
                "here, use torchmetrics.retrieval.RetrievalAUROC"
            )
        super().__init__(empty_target_action, ignore_index, top_k, aggregation, **kwargs)
        self.max_fpr = max_fpr

    def _values(self, queries: QuerySample) -> FloatArray:
        if self.top_k is None:
            return super()._values(queries)
        is_inside = queries.pessimistic <= self.top_k
        first = replace(
            queries,
            answers=np.where(is_inside, queries.answers, 0),
            num_candidates=np.minimum(queries.num_candidates, self.top_k),
        )
        return super()._values(first)
