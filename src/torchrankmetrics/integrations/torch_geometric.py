"""The metrics of ``torch_geometric.metrics`` from ranks: one import changes. PyG is not needed."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchrankmetrics.decorators import eager
from torchrankmetrics.integrations.drop_in import DropIn
from torchrankmetrics.integrations.pyg import ranks_of_predictions
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.ranking.arrays import Integers, Numbers, as_ids
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.validation import check_int, shorten

_STAYS = (
    "LinkPredCoverage",
    "LinkPredDiversity",
    "LinkPredPersonalization",
    "LinkPredAveragePopularity",
)


def __getattr__(name: str) -> Any:
    if name in _STAYS:
        raise ImportError(
            f"{name} depends on the predicted destinations, not on ranks of true edges: import it "
            "from torch_geometric.metrics"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class LinkPredMetric(DropIn):
    """Base of the ``LinkPred`` metrics of PyG: averages over the sources with a true edge.

    ``compute`` and ``forward`` return 0-d tensors of the default dtype. The values are those of PyG
    2.8, with these exceptions:

    - A destination that is listed or true twice for one source is an error; PyG counts it twice.
    - Without true edges values are NaN, with a warning; PyG returns 0.

    Args:
        k (int): number of first predictions that count.
        num_dst_nodes (int, default None): number of all destinations, for chance-adjusted values of
            ``table()``; then predictions must have at least k columns.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.

    Raises:
        TypeError, ValueError: for other arguments.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredPrecision
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredPrecision(2)(top, edges)
    tensor(0.5000)
    """

    # of the equal RankMetric
    _name: ClassVar[str]
    weighted: bool = False

    def __init__(self, k: int, *, num_dst_nodes: int | None = None, **kwargs: Any) -> None:
        super().__init__(f"{self._name}@{check_int('k', k, 1)}", **kwargs)
        self.k = k
        self.num_dst_nodes = num_dst_nodes

    @eager
    def update(  # type: ignore[override]  # the arguments of PyG
        self,
        pred_index_mat: Integers,
        edge_label_index: Integers,
        edge_label_weight: Numbers | None = None,
        *,
        query: Integers | None = None,
    ) -> None:
        """Rank the true edges of a batch of sources.

        Args:
            pred_index_mat (integers): (B, at least k) different destinations predicted for B
                sources, best first; fewer columns are all predictions.
            edge_label_index (integers): (2, P), or a tuple of two (P,): source row and destination
                of a true edge.
            edge_label_weight (numbers, default None): (P,), for weighted metrics: edges without a
                positive weight are ignored.
            query (integers, default None): (B,) ids of the sources, to compare two models.

        Raises:
            TypeError, ValueError, IndexError: for bad input, before the state changes.
        """
        self._check(pred_index_mat, edge_label_weight)
        weight = edge_label_weight if self.weighted else None
        edges = pred_index_mat, edge_label_index
        ranks = ranks_of_predictions(*edges, self.num_dst_nodes, edge_label_weight=weight)
        self._add(ranks, weight, query)

    def _check(self, predictions: Any, weight: Any) -> None:
        """Raise for a batch that does not fit."""
        if self.weighted and weight is None:
            raise ValueError(
                f"edge_label_weight must be passed to update: {self.key!r} is weighted"
            )
        if self.num_dst_nodes is None:
            return
        shape = tuple(as_ids(predictions, "pred_index_mat").shape)
        if len(shape) != 2 or shape[1] < self.k:
            raise ValueError(
                f"pred_index_mat must be (B, at least k={self.k}) with num_dst_nodes, got {shape}"
            )

    def _add(self, ranks: Ranks, weight: Any, query: Integers | None) -> None:
        """Store the ranks of the true edges, for a weighted metric with their positive weights."""
        assert ranks.rows is not None
        gain = None
        if self.weighted:
            weight = torch.as_tensor(weight)
            gain = weight[weight > 0]
        if query is not None:
            query = as_ids(query, "query").to(ranks.columns.device)[ranks.rows.row]
        RankMetric.update(self, ranks, gain=gain, query=query)

    @eager
    def compute(self) -> Tensor:
        """Average over the sources so far, 0-d of the default dtype; NaN without true edges."""
        return super().compute().to(torch.get_default_dtype())


class LinkPredPrecision(LinkPredMetric):
    """PyG's ``LinkPredPrecision``: the equal metric is ``precision@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredPrecision
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredPrecision(2)(top, edges)
    tensor(0.5000)
    """

    _name = "precision"


class LinkPredRecall(LinkPredMetric):
    """PyG's ``LinkPredRecall``: the equal metric is ``recall@k``.

    Args:
        k, num_dst_nodes: as ``LinkPredMetric``.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.
        weighted (bool, default False): recall of weights is not available.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredRecall
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredRecall(2)(top, edges)
    tensor(0.7500)
    """

    _name = "recall"

    def __init__(
        self, k: int, weighted: bool = False, *, num_dst_nodes: int | None = None, **kwargs: Any
    ) -> None:
        if weighted:
            raise ValueError(
                "weighted must be False: recall of weights is not available here, use "
                "torch_geometric.metrics.LinkPredRecall"
            )
        super().__init__(k, num_dst_nodes=num_dst_nodes, **kwargs)


class LinkPredF1(LinkPredMetric):
    """PyG's ``LinkPredF1``: the equal metric is ``f1@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredF1
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredF1(2)(top, edges)
    tensor(0.5833)
    """

    _name = "f1"


class LinkPredMAP(LinkPredMetric):
    """PyG's ``LinkPredMAP``: the equal metric is ``ap_cap@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredMAP
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredMAP(2)(top, edges)
    tensor(0.5000)
    """

    _name = "ap_cap"


class LinkPredNDCG(LinkPredMetric):
    """PyG's ``LinkPredNDCG``: the equal metric is ``ndcg@k``.

    Args:
        k, num_dst_nodes: as ``LinkPredMetric``.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.
        weighted (bool, default False): weights of true edges are their relevance labels.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredNDCG
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredNDCG(2)(top, edges)
    tensor(0.6220)
    """

    _name = "ndcg"

    def __init__(
        self, k: int, weighted: bool = False, *, num_dst_nodes: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(k, num_dst_nodes=num_dst_nodes, **kwargs)
        self.weighted = weighted


class LinkPredMRR(LinkPredMetric):
    """PyG's ``LinkPredMRR``: the equal metric is ``rr@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredMRR
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredMRR(2)(top, edges)
    tensor(0.7500)
    """

    _name = "rr"


class LinkPredHitRatio(LinkPredMetric):
    """PyG's ``LinkPredHitRatio``: the equal metric is ``success@k``.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations.torch_geometric import LinkPredHitRatio
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> LinkPredHitRatio(2)(top, edges)
    tensor(1.)
    """

    _name = "success"


class LinkPredMetricCollection(nn.ModuleDict):
    """PyG's ``LinkPredMetricCollection``: several ``LinkPred`` metrics that are ranked once.

    Args:
        metrics (list or dict): metrics of this module; keys of a list are those of PyG, such as
            "LinkPredMAP@10" and "WeightedLinkPredNDCG@10".

    Raises:
        TypeError, ValueError: for other metrics, such as PyG's own, or none.

    >>> from torch import tensor
    >>> from torchrankmetrics.integrations import torch_geometric
    >>> top, edges = tensor([[4, 2, 0], [1, 3, 2]]), tensor([[0, 0, 1], [0, 4, 3]])
    >>> metrics = torch_geometric.LinkPredMetricCollection([torch_geometric.LinkPredMAP(2)])
    >>> metrics.update(top, edges)
    >>> metrics.compute()
    {'LinkPredMAP@2': tensor(0.5000)}
    """

    def __init__(self, metrics: Sequence[LinkPredMetric] | Mapping[str, LinkPredMetric]) -> None:
        super().__init__()
        if not isinstance(metrics, Mapping):
            metrics = {_key(metric): metric for metric in metrics}
        if not metrics:
            raise ValueError("metrics is empty: pass at least one metric")
        for metric in metrics.values():
            _check_metric(metric)
        nn.ModuleDict.update(self, metrics)

    @property
    def max_k(self) -> int:
        """The largest k of the metrics."""
        return max(metric.k for metric in self._metrics())

    @property
    def weighted(self) -> bool:
        """Whether a metric is weighted."""
        return any(metric.weighted for metric in self._metrics())

    def update(  # type: ignore[override]  # the arguments of PyG
        self,
        pred_index_mat: Integers,
        edge_label_index: Integers,
        edge_label_weight: Numbers | None = None,
        *,
        query: Integers | None = None,
    ) -> None:
        """Rank the true edges of a batch of sources, once for all metrics.

        Args:
            pred_index_mat (integers): (B, at least k) different destinations, best first.
            edge_label_index (integers): (2, P), or a tuple of two (P,): source row and destination.
            edge_label_weight (numbers, default None): (P,); edges without a positive weight are
                ignored by all metrics, as in PyG.
            query (integers, default None): (B,) ids of the sources.
        """
        ranks: dict[int | None, Ranks] = {}
        for metric in self._metrics():
            metric._check(pred_index_mat, edge_label_weight)
            size = metric.num_dst_nodes
            if size not in ranks:
                ranks[size] = ranks_of_predictions(
                    pred_index_mat, edge_label_index, size, edge_label_weight=edge_label_weight
                )
        for metric in self._metrics():
            metric._add(ranks[metric.num_dst_nodes], edge_label_weight, query)

    def compute(self) -> dict[str, Tensor]:
        """Return the value of every metric by its key."""
        return {name: metric.compute() for name, metric in zip(self, self._metrics(), strict=True)}

    def reset(self) -> None:
        """Remove all true edges."""
        for metric in self._metrics():
            metric.reset()

    def _metrics(self) -> list[LinkPredMetric]:
        return list(self.values())  # type: ignore[arg-type]  # checked in the constructor


def _key(metric: Any) -> str:
    _check_metric(metric)
    return f"{'Weighted' if metric.weighted else ''}{type(metric).__name__}@{metric.k}"


def _check_metric(metric: Any) -> None:
    if not isinstance(metric, LinkPredMetric):
        raise TypeError(
            f"metrics must be of torchrankmetrics.integrations.torch_geometric, got "
            f"{shorten(metric)}; put PyG's own into another collection"
        )
