"""`Ranks`: optimistic and pessimistic ranks with numbers of candidates; `rank_scores`."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.decorators import eager
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import (
    Array,
    Integers,
    Numbers,
    as_ids,
    as_tensor,
    check_device,
    read_scores,
    sort_owners,
)
from torchrankmetrics.ranking.counting import Excluded, count
from torchrankmetrics.ranking.tasks import Exclude, QueryRows, Target, read_tasks
from torchrankmetrics.validation import MOST_CANDIDATES, is_int, one_number, shorten

if TYPE_CHECKING:
    from torchrankmetrics.ranking.best import BestCandidates
    from torchrankmetrics.ranking.negatives import Negatives, Predictions


class Ranks:
    """Optimistic and pessimistic ranks of the targets, with the number of candidates of each task.

    optimistic = 1 + #{j != target : s_j > s_target}, pessimistic the same with >=; 1 is best.
    Source: Berrendorf et al. 2020 (arXiv 2002.06914), section 3.1.

    Args:
        optimistic (integers): (tasks,) integers, 1 <= optimistic <= pessimistic.
        pessimistic (integers, default None): (tasks,) integers up to num_candidates; None: as
            optimistic (no ties).
        num_candidates (integers, default None): (tasks,) integers or one for all, the target
            included, below 2^62; None: unknown, then only base values such as mrr, mr and
            hits@10 are computed.
        filtered (bool, default None): whether the other relevant items of a query are excluded from
            a task; None: unknown, then metrics of queries raise for several relevant items.

    Raises:
        TypeError: if anything is not integer, or filtered is not a bool.
        ValueError: if shapes or devices differ, or values are out of range; on an accelerator
            values are checked at ``compute``, without a synchronization here.

    >>> import torch
    >>> from torchrankmetrics import Ranks
    >>> ranks = Ranks(torch.tensor([1, 2]), torch.tensor([1, 5]), 14)
    >>> ranks.realistic
    tensor([1.0000, 3.5000], dtype=torch.float64)
    """

    columns: Tensor  # int64 (3, tasks): optimistic, pessimistic, num_candidates
    flags: Tensor | None  # int64 (tasks,), sums of the constants in ``flags.py``; None: all are 0
    rows: QueryRows | None = None  # rows of scores of the tasks; None: one task each
    gain: Tensor | None = None  # float64 (tasks,), labels of a graded target; None: all are 1
    # the best candidates of the queries, if ``top_k`` of ``rank_embeddings`` was given
    answers: BestCandidates | None = None

    def __init__(
        self,
        optimistic: Integers,
        pessimistic: Integers | None = None,
        num_candidates: Integers | None = None,
        *,
        filtered: bool | None = None,
    ) -> None:
        if not isinstance(filtered, bool | None):
            raise TypeError(f"filtered must be True, False or None, got {shorten(filtered)}")
        if (number := one_number(pessimistic)) is not None:
            raise TypeError(
                "pessimistic must be (tasks,) integers, the second argument; for the number of "
                f"candidates write Ranks({shorten(optimistic)}, num_candidates={number})"
            )
        low = _integer_vector(optimistic, "optimistic")
        high = low if pessimistic is None else _integer_vector(pessimistic, "pessimistic", low)
        N = (
            torch.full_like(low, fault.UNKNOWN)
            if num_candidates is None
            else _num_candidates(num_candidates, low)
        )
        self.columns = torch.stack((low, high, N))
        self.flags = self._faults(
            torch.full_like(low, MOST_CANDIDATES) if num_candidates is None else N
        )
        if filtered is not None:
            mark = torch.full_like(low, fault.FILTERED if filtered else fault.RAW)
            self.flags = mark if self.flags is None else self.flags + mark

    @classmethod
    def from_negatives(
        cls,
        positive: Numbers | Predictions,
        negatives: Negatives | None = None,
        *,
        exclude: Numbers | None = None,
        indexes: Integers | None = None,
        backend: str = "auto",
    ) -> Ranks:
        """Rank each true score among sampled negatives, as OGB and TGB do.

        ``num_candidates`` is the number of negatives of each positive plus one. AUC and
        ``full_rank_estimate`` of such ranks estimate the full ones without bias if the negatives
        are a uniform draw; MRR and hits have no unbiased correction. Summaries note that ranks are
        sampled.

        Args:
            positive (numbers or mapping): (B,) scores of the targets, higher is better; or
                OGB's dict of "y_pred_pos" and "y_pred_neg", which may contain "exclude" or
                "indexes" too.
            negatives (Tensor or list, default None): same dtype and device: (B, M); (M,), shared by
                all positives; or ragged: a list of B vectors, (B, M) with ``exclude``, or flat (T,)
                with ``indexes``.
            exclude (numbers, default None): bool (B, M), True for entries that are not negatives:
                padding. Entries of -inf that are not marked are negatives, and num_candidates
                counts them.
            indexes (integers, default None): (T,) integers, the positive of each flat negative, in
                any order.
            backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.

        Returns:
            One entry per positive, marked as ranks among sampled candidates.

        Raises:
            TypeError, ValueError, IndexError: if dtypes, shapes, devices, keys or indexes do not
                match.

        >>> import torch
        >>> from torchrankmetrics import Ranks
        >>> Ranks.from_negatives(torch.tensor([0.5]), torch.tensor([[0.9, 0.5, 0.1]]))
        Ranks(optimistic=[2], pessimistic=[3], num_candidates=[4])
        """
        from torchrankmetrics.ranking.negatives import count_negatives, read_predictions

        if isinstance(positive, Mapping):
            if negatives is not None:
                raise ValueError(
                    "negatives must not be given in addition to a dict, which contains them"
                )
            positive, negatives, exclude, indexes = read_predictions(positive, exclude, indexes)
        if negatives is None:
            raise TypeError(
                "negatives are missing: pass them in addition to positive, or both as a dict"
            )
        counts = count_negatives(positive, negatives, exclude, indexes, backend)
        return from_counts(counts, torch.full_like(counts[0], fault.SAMPLED))

    @property
    def optimistic(self) -> Tensor:
        """int64 (tasks,), in [1, pessimistic]."""
        return self.columns[0]

    @property
    def pessimistic(self) -> Tensor:
        """int64 (tasks,), in [optimistic, num_candidates]."""
        return self.columns[1]

    @property
    def num_candidates(self) -> Tensor:
        """int64 (tasks,), the target included."""
        return self.columns[2]

    @property
    def realistic(self) -> Tensor:
        """(optimistic + pessimistic) / 2, float64 (tasks,)."""
        return (self.optimistic + self.pessimistic).to(torch.float64) / 2

    def full_rank_estimate(self, num_candidates: Integers) -> Tensor:
        """Estimate the realistic ranks among all candidates, without bias.

        1 + (s - 1) (N - 1) / m for a rank s among m sampled negatives, because s - 1 ~
        Hypergeometric(N - 1, r - 1, m) for the full rank r. Its mean estimates the mean rank; other
        metrics of it are biased, because they are not linear.

        Args:
            num_candidates (integers): N, all candidates of each task after filtering: (tasks,)
                integers, or one int.

        Returns:
            (tasks,) float64.

        Raises:
            TypeError, ValueError: if N is not integer, of another shape or below the sampled
                number, or a task has no negative.

        >>> from torchrankmetrics import Ranks
        >>> Ranks([1, 3], None, 11).full_rank_estimate(1001)
        tensor([  1., 201.], dtype=torch.float64)
        """
        full = _num_candidates(num_candidates, self.optimistic)
        negatives = self.num_candidates - 1
        wrong = (negatives < 1) | (full < self.num_candidates)
        if wrong.any():
            first = int(wrong.nonzero()[0])
            got = f"{max(int(negatives[first]), 0)} negatives, num_candidates={int(full[first])}"
            raise ValueError(
                "the estimate needs a sampled negative in every task, and num_candidates of all "
                f"candidates; task {first} has {got}"
            )
        return 1 + (self.realistic - 1) * (full - 1) / negatives

    def __len__(self) -> int:
        return self.columns.shape[1]

    def __repr__(self) -> str:
        names = ("optimistic", "pessimistic", "num_candidates")
        known = names[: 2 if (self.num_candidates == fault.UNKNOWN).all() else 3]
        end = ", ...]" if len(self) > 6 else "]"
        parts = (f"{name}={str(getattr(self, name)[:6].tolist())[:-1]}{end}" for name in known)
        return f"Ranks({', '.join(parts)})"

    def _faults(self, N: Tensor) -> Tensor | None:
        """Raise an error for values out of range, or flag their tasks on an accelerator."""
        faults = (
            ((N < 1) | (N > MOST_CANDIDATES), fault.NO_CANDIDATES),
            ((self.optimistic < 1) | (self.pessimistic > N), fault.RANK_RANGE),
            (self.optimistic > self.pessimistic, fault.RANK_ORDER),
        )
        if not N.is_cpu:
            return torch.stack([wrong * kind for wrong, kind in faults]).sum(0)
        for wrong, kind in faults:
            if wrong.any():
                first = int(wrong.nonzero()[0])
                if kind == fault.RANK_RANGE and (self.optimistic[wrong] == 0).any():
                    task = int((self.optimistic == 0).nonzero()[0])
                    raise ValueError(
                        f"ranks must start at 1, but task {task} has rank 0; add 1 if yours start "
                        "at 0"
                    )
                error, text = fault.ERRORS[kind]
                o, p, n = (int(x[first]) for x in (self.optimistic, self.pessimistic, N))
                among = "unknown" if n == MOST_CANDIDATES else n
                raise error(
                    f"{text}; task {first} has optimistic {o}, pessimistic {p}, "
                    f"num_candidates {among}"
                )
        return None


def trusted(
    columns: Tensor,
    flags: Tensor | None,
    rows: QueryRows | None = None,
    gain: Tensor | None = None,
) -> Ranks:
    """Return ranks from their attributes, which are right by construction and not checked again."""
    ranks = Ranks.__new__(Ranks)
    ranks.columns = columns
    ranks.flags = flags
    ranks.rows = rows
    ranks.gain = gain
    return ranks


def from_counts(
    counts: Tensor,
    flags: Tensor | None,
    rows: QueryRows | None = None,
    gain: Tensor | None = None,
) -> Ranks:
    """Return ranks from the counts of ``counting``, int64 (4, tasks), which are overwritten."""
    if counts.is_cpu:
        numbers = counts.numpy()  # NumPy's calls cost a fifth of torch's
        ranked = numbers[:3]
        ranked += 1
        columns = torch.from_numpy(ranked)
        has_nan = bool(np.count_nonzero(numbers[3]))
    else:
        # to look would wait for the device
        columns = counts[:3] + 1
        has_nan = True
    if has_nan:
        nan = (counts[3] > 0) * fault.NAN
        flags = nan if flags is None else nan + flags
    return trusted(columns, flags, rows, gain)


def _integer_vector(values: Integers, name: str, like: Tensor | None = None) -> Tensor:
    tensor = as_tensor(values, name)
    if tensor.ndim != 1 or (like is None and tensor.numel() and tensor.is_floating_point()):
        raise (TypeError if like is None and tensor.is_floating_point() else ValueError)(
            f"{name} must be (tasks,) integers, one rank or number for each ranking task, got "
            f"{tensor.dtype} {tuple(tensor.shape)}; scores (B, N) become ranks by "
            "rank_scores(scores, target)"
        )
    tensor = as_ids(tensor, name)
    if like is not None and tensor.shape != like.shape:
        raise ValueError(
            f"{name} must have the shape of optimistic, {tuple(like.shape)}; got "
            f"{tuple(tensor.shape)}"
        )
    if like is not None:
        check_device(tensor, name, like.device, "optimistic")
    return tensor


def _num_candidates(given: Integers, like: Tensor) -> Tensor:
    if isinstance(given, Tensor | np.ndarray) and given.ndim == 0:
        given = as_ids(given, "num_candidates").expand(len(like))
    if not is_int(given):
        return _integer_vector(given, "num_candidates", like)
    if not 1 <= given <= MOST_CANDIDATES:
        error, text = fault.ERRORS[fault.NO_CANDIDATES]
        raise error(f"{text}; got {given}")
    return torch.full_like(like, int(given))


@eager
def rank_scores(
    scores: Tensor | Array, target: Target, *, exclude: Exclude = None, backend: str = "auto"
) -> Ranks:
    """Rank the target of each row of scores among all columns that are not excluded.

    rank = 1 + number of other candidates with a higher score. Candidates with the score of the
    target make two ranks: the best (optimistic) and the worst (pessimistic). NaN never helps: a NaN
    target ranks last, a NaN candidate counts as better. +-inf are ordinary scores.

    Args:
        scores (Tensor or array): (B, N), any real dtype and strides, higher is better; never
            modified or copied whole. An array is taken as a tensor on the CPU, for every argument.
        target (Tensor, list or tuple): the column of the target of each row, (B,) integers. Or
            several targets per row, one ranking task each: a list of the columns of every row, such
            as [[0, 3], [2]], or of dicts {column: label}; bool or floating labels (B, N), 0 is not
            relevant, also as a SciPy sparse matrix; or a tuple (rows, columns) of two vectors.
            Labels are the ``gain`` of the ranks. Integers with two dimensions are an error: they
            could be labels, pairs or columns.
        exclude (Tensor, list or tuple, default None): known positives, in every form of target
            except (B,) integers and floating labels, or as ``KnownTriples`` returns them; the
            target of a task is never excluded. Or bool (N,), True = not a candidate of any row:
            then an excluded target is an error.
        backend (str, default "auto"): "auto", "torch" or "numba" (extra ``fast``); the ranks are
            the same.

    Returns:
        ``Ranks`` with int64 (tasks,) tensors on the device of the scores.

    Raises:
        TypeError: if targets or pairs are not integers, or scores are complex.
        ValueError: if shapes or devices do not match, a form is ambiguous, or a target is excluded
            for all rows.
        IndexError: if a target or an excluded column is outside [0, N). On an accelerator the last
            two are raised at ``compute`` of the metric that takes the ranks, without a
            synchronization here.

    Source: Berrendorf et al. 2020 (arXiv 2002.06914), sections 2 and 3.1.

    >>> import torch
    >>> from torchrankmetrics import rank_scores
    >>> scores = torch.tensor([[0.1, 0.9, 0.3], [0.8, 0.2, 0.5]])
    >>> rank_scores(scores, torch.tensor([1, 2]))
    Ranks(optimistic=[1, 2], pessimistic=[1, 2], num_candidates=[3, 3])
    >>> rank_scores(scores, torch.tensor([1, 2]), exclude=[[], [0]])  # 0 is another target of row 1
    Ranks(optimistic=[1, 1], pessimistic=[1, 1], num_candidates=[3, 2])
    """
    return rank_dense(read_scores(scores, "scores"), target, exclude, backend=backend)


def rank_dense(
    scores: Tensor,
    target: Target,
    exclude: Exclude | Excluded,
    *,
    backend: str = "auto",
    by_query: bool | None = None,
    name: str = "scores",
) -> Ranks:
    """Rank as ``rank_scores``; ``by_query`` as in ``read_tasks``; ``name`` is for errors."""
    if scores.ndim != 2:
        hint = ""
        if scores.ndim == 1:
            hint = "; for one query pass scores[None] and a target of one entry"
        raise ValueError(
            f"{name} must be (B, N): one row of candidate scores per query; got "
            f"{tuple(scores.shape)}{hint}"
        )
    if scores.shape[1] == 0:
        raise ValueError(
            f"{name} must have at least one candidate (N >= 1), got shape {tuple(scores.shape)}"
        )
    if scores.is_complex():
        raise TypeError(f"{name} must be real numbers, got {scores.dtype}")
    tasks = read_tasks(target, exclude, scores.shape, scores.device, by_query=by_query)
    if scores.requires_grad:
        scores = scores.detach()
    counts = count(scores, None, tasks.row, tasks.column, tasks.excluded, backend=backend)
    flags = tasks.flags_by(counts[2], scores.shape[1])
    return from_counts(counts, flags, tasks.rows, tasks.gain)


def rank_listed(
    scores: Tensor, relevant: Tensor, query: Tensor, excluded: Tensor | None, backend: str = "auto"
) -> tuple[Ranks, Tensor]:
    """Rank the relevant items of lists by scores (T,); also return their indices.

    ``relevant`` is bool (T,), and ``query`` int64 (T,) names the list of each item. The queries in
    ascending order are the rows of the ranks. An excluded item is a candidate of its own task only.
    """
    place = relevant.nonzero()[:, 0]
    order, owner = sort_owners(query)
    at = place
    if order is not None:  # where the sorted scores have the relevant items, in the order given
        scores = scores[order]
        excluded = None if excluded is None else excluded[order]
        at = torch.empty_like(order).index_copy_(
            0, order, torch.arange(len(order), device=order.device)
        )[place]
    new = torch.ones_like(owner, dtype=torch.bool)
    new[1:] = owner[1:] != owner[:-1]
    first = new.nonzero()[:, 0]
    row = torch.searchsorted(first, at, right=True) - 1
    borders = torch.cat([first, first.new_tensor([len(owner)])])
    counts = count(
        scores, None, row, at - first[row], Excluded(cells=excluded), borders, backend=backend
    )
    flags = torch.full_like(place, fault.RAW)
    if excluded is not None:
        flags = torch.where(excluded[at], fault.FILTERED, fault.RAW)
    return from_counts(counts, flags), place
