"""OGB's link evaluator with the same values, and the ranks behind them; OGB is not needed."""

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.evaluate import evaluate
from torchrankmetrics.metrics.names import Metrics
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.negatives import Predictions
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.validation import check_choice

# what OGB 1.3.6 measures on each of its link data sets
OGB_METRICS = {
    "ogbl-ppa": "hits@100",
    "ogbl-collab": "hits@50",
    "ogbl-ddi": "hits@20",
    "ogbl-vessel": "rocauc",
}
OGB_METRICS |= dict.fromkeys(("ogbl-citation2", "ogbl-wikikg2", "ogbl-biokg"), "mrr")


class Evaluator:
    """``ogb.linkproppred.Evaluator`` with ranks; name, attributes, dicts and numbers are the same.

    Ties follow OGB: hits@K counts pessimistic ranks, the lists of MRR come from realistic ones,
    ROC-AUC counts ties as a half. Unlike OGB, a NaN never helps, and every dataset accepts arrays
    and every form of negatives, with a warning if OGB compares all positives with one list and
    ``y_pred_neg`` is (B, M).

    Args:
        name (str): name of a link dataset, such as "ogbl-collab".

    Attributes:
        eval_metric: OGB's metric of the dataset: "hits@<K>", "mrr" or "rocauc".
        K: the K of hits; may be set.

    Raises:
        ValueError: for another name.

    Source: Hu et al. 2020, Open Graph Benchmark (arXiv 2005.00687).

    >>> import torch
    >>> from torchrankmetrics.integrations.ogb import Evaluator
    >>> evaluator = Evaluator("ogbl-ddi")
    >>> evaluator.K = 2
    >>> positive, negative = torch.tensor([0.9, 0.5]), torch.tensor([0.6, 0.7, 0.1])
    >>> result = evaluator.eval({"y_pred_pos": positive, "y_pred_neg": negative})
    >>> result, result.ranks
    ({'hits@2': 0.5}, Ranks(optimistic=[1, 3], pessimistic=[1, 3], num_candidates=[4, 4]))
    >>> result.evaluate(["hits@2", "adjusted_hits@2"])
    {'hits_at_2': 0.5, 'adjusted_hits_at_2': 0.0}
    """

    def __init__(self, name: str) -> None:
        self.name = check_choice("name", name, OGB_METRICS)
        self.eval_metric = OGB_METRICS[name]
        if self.eval_metric.startswith("hits@"):
            self.K = int(self.eval_metric.removeprefix("hits@"))

    def eval(self, input_dict: Predictions, *, backend: str = "auto") -> "Result":
        """Compute the metrics of OGB for this dataset.

        Args:
            input_dict (mapping): "y_pred_pos" (B,) and "y_pred_neg" in every form of
                ``Ranks.from_negatives``.
            backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.

        Returns:
            {"hits@<K>": float}, {"rocauc": float}, or float32 (B,) tensors by "hits@1_list",
            "hits@3_list", "hits@10_list", "mrr_list".

        Raises:
            TypeError, ValueError, IndexError: as ``Ranks.from_negatives``; ValueError if positives
                or negatives lack.
        """
        ranks = Ranks.from_negatives(input_dict, backend=backend)
        if not len(ranks):
            raise ValueError("y_pred_pos must contain at least one positive score, got none")
        if ranks.flags is not None and (ranks.flags & fault.NAN).any():
            warn(
                "y_pred_pos or y_pred_neg contain NaN; here a NaN never helps, OGB's evaluator may "
                "put it first"
            )
        if self.eval_metric != "mrr" and getattr(input_dict["y_pred_neg"], "ndim", 1) == 2:
            warn(
                f"y_pred_neg is (B, M), negatives of each positive: {self.eval_metric} is not "
                "comparable to OGB's, which has one list for all positives; pass y_pred_neg (M,)"
            )
        result = Result()
        result.ranks = ranks
        result.eval_metric = self.eval_metric
        if self.eval_metric == "mrr":
            result |= {
                f"hits@{k}_list": (ranks.realistic <= k).to(torch.float32) for k in (1, 3, 10)
            }
            result["mrr_list"] = 1 / ranks.realistic.to(torch.float32)
        elif self.eval_metric == "rocauc":
            pairs = int((ranks.num_candidates - 1).sum())
            if pairs == 0:
                raise ValueError("y_pred_neg must contain a negative for ROC-AUC, got none")
            # twice, so that a tie is an integer
            wrong = int((ranks.optimistic + ranks.pessimistic - 2).sum())
            result["rocauc"] = 1 - wrong / (2 * pairs)
        else:
            result[f"hits@{self.K}"] = float((ranks.pessimistic <= self.K).double().mean())
        return result


class Result(dict[str, float | Tensor]):
    """Result of ``eval``: OGB's dict, with ``ranks`` of the positives and ``eval_metric``.

    The ranks are marked as sampled.

    >>> import torch
    >>> from torchrankmetrics.integrations.ogb import Evaluator
    >>> positive, negative = torch.tensor([0.9, 0.5]), torch.tensor([0.6, 0.7, 0.1])
    >>> scores = {"y_pred_pos": positive, "y_pred_neg": negative}
    >>> result = Evaluator("ogbl-citation2").eval(scores)
    >>> result.ranks
    Ranks(optimistic=[1, 3], pessimistic=[1, 3], num_candidates=[4, 4])
    """

    ranks: Ranks
    eval_metric: str

    def evaluate(self, metrics: Metrics | None = None, **options: Any) -> dict[str, float]:
        """Values of the ranks by canonical key.

        Arguments and errors as ``torchrankmetrics.evaluate``.
        """
        return evaluate(self.ranks, metrics=metrics, **options)
