"""`rank_scores`: filtered ranks from a score matrix."""

from torch import Tensor

from torchrankmetrics.eager import eager
from torchrankmetrics.errors import suggest_keywords
from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.exclude import Exclude, Excluded
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.tasks import Target, read_tasks


@eager
@suggest_keywords
def rank_scores(
    scores: Tensor | Array,
    target: Target,
    *,
    exclude: Exclude = None,
    backend: str = "auto",
) -> Ranks:
    """Rank the true candidates of a batch among all columns that are not excluded.

    optimistic = 1 + #{j a candidate, j != target : s_j > s_target}; pessimistic with >=. The target is excluded by
    index. NaN never helps: a NaN target score ranks last, a NaN candidate counts as better. +-inf are ordinary scores.

    Args:
        scores (Tensor or array): (B, N), any real dtype and strides, higher is better; never modified or copied whole.
            An array is taken as a tensor on the CPU, for every argument.
        target (Tensor, list or tuple): (B,) integers, the column of the true candidate of each row. Or several true
            candidates per row, one ranking task each: a list of the columns of every row, or of dicts {column: label};
            bool or floating labels (B, N), also as a SciPy sparse matrix; a tuple (rows, columns); or integer pairs
            (2, P) of (row, column). Labels are the ``gain`` of the ranks, and 0 is not relevant.
            Integers of the shape of the scores, or (B, 1), are an error: they could be labels, pairs or columns.
        exclude (Tensor, list or tuple, default None): columns that are not candidates. Known positives, in every form
            of target except (B,) integers and floating labels, or as ``KnownTriples`` returns them: the target of a
            task is never excluded, and repeats count once. Or bool (N,), True = not a candidate of any row: then an
            excluded target is an error.
        backend (str, default "auto"): "auto", "torch" or "numba" (extra ``fast``): how comparisons are counted; the
            ranks are the same.

    Returns:
        ``Ranks`` with int64 (tasks,) tensors on the device of the scores.

    Raises:
        TypeError: if targets or pairs are not integers, or scores are complex.
        ValueError: if shapes or devices do not match, a form is ambiguous, or a target is excluded for all rows.
        IndexError: if a target or an excluded column is outside [0, N). On an accelerator the last two are raised at
            ``compute`` of the metric that takes the ranks, without a synchronisation here.

    Source: Berrendorf et al. 2020 (arXiv 2002.06914), sections 2 and 3.1.

    >>> import torch
    >>> rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([1]))
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    >>> import torch
    >>> rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([1]), exclude=[[0]])
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[2])
    """
    return rank_dense(read_scores(scores, "scores"), target, exclude, backend=backend)


def rank_dense(
    scores: Tensor,
    target: Target,
    exclude: Exclude | Excluded,
    *,
    backend: str = "auto",
    by_query: bool = True,
    named: bool = False,
    name: str = "scores",
) -> Ranks:
    """Rank as ``rank_scores``; ``by_query`` and ``named`` as in ``read_tasks``, errors call the scores by ``name``."""
    check_scores(scores, name)
    tasks = read_tasks(target, exclude, scores.shape, scores.device, by_query=by_query, named=named)
    if scores.requires_grad:
        scores = scores.detach()
    count = choose(scores, backend).count_matrix
    counts = count(scores, None, tasks.row, tasks.column, tasks.excluded)
    return Ranks.from_counts(counts, tasks.flags, tasks.rows, tasks.gain)


def check_scores(scores: Tensor, name: str = "scores", *, some: bool = True) -> None:
    """Check that scores can be ranked; without ``some``, N may be 0 (an empty shard)."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor of shape (B, N), got {type(scores).__name__}")
    if scores.ndim != 2:
        raise ValueError(f"{name} must be (B, N): one row of candidate scores per query; got {tuple(scores.shape)}")
    if some and scores.shape[1] == 0:
        raise ValueError(f"{name} must have at least one candidate (N >= 1), got shape {tuple(scores.shape)}")
    if scores.is_complex():
        raise TypeError(f"{name} must be real numbers, got {scores.dtype}")
