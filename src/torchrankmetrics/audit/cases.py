"""Checks of an evaluator: small batches whose ranks follow from the definition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking.ranks import Ranks

INF = float("inf")
NAN = float("nan")
# candidates of the largest case: its rank is the first that float32 cannot hold
LARGEST = 2**24 + 4


@dataclass(frozen=True, eq=False)
class Case:
    """A batch of ranking tasks: scores (B, N), target (B,) int64 and exclude (B, N) bool or None.

    ``note`` replaces scores too long to print.
    """

    scores: Tensor
    target: Tensor
    exclude: Tensor | None = None
    note: str = ""

    @cached_property
    def has_nan_target(self) -> bool:
        """Whether any rank that is not too good is right: a NaN target may also be a miss."""
        return bool(self.scores.gather(1, self.target[:, None]).isnan().any())

    @cached_property
    def ranks(self) -> Ranks:
        """The right ranks: a NaN candidate is better than the target, a NaN target ranks last."""
        own = self.scores.gather(1, self.target[:, None])
        nan = self.scores.isnan()
        others = (
            torch.ones_like(self.scores, dtype=torch.bool)
            if self.exclude is None
            else ~self.exclude
        )
        others = others.scatter(1, self.target[:, None], False)
        count = 1 + others.sum(1)
        if self.has_nan_target:  # not better than the mean rank of equal scores
            return Ranks(torch.maximum(1 + (~nan & others).sum(1), (count + 1) // 2), count, count)
        optimistic = 1 + (((self.scores > own) | nan) & others).sum(1)
        return Ranks(optimistic, optimistic + ((self.scores == own) & others).sum(1), count)

    def __str__(self) -> str:
        kind = ""
        if self.scores.dtype != torch.float32:
            kind = f" {str(self.scores.dtype).removeprefix('torch.')}"
        if self.scores.numel() > 24:
            return f"{self.note or 'scores'}: {tuple(self.scores.shape)}{kind}"
        rows = ", ".join(map(_text, self.scores.double().tolist()))
        text = f"scores{kind} [{rows}], target {self.target.tolist()}"
        if self.exclude is None:
            return text
        columns = [row.nonzero().flatten().tolist() for row in self.exclude]
        return f"{text}, exclude columns {columns}"


def _text(scores: list[float]) -> str:
    return f"[{', '.join(f'{x:.6g}' for x in scores)}]"


def one(scores: Sequence[float], target: int, exclude: Sequence[int] | None = None) -> Case:
    """One ranking task; ``exclude`` lists columns."""
    mask = None
    if exclude is not None:
        mask = torch.tensor([[column in exclude for column in range(len(scores))]])
    return Case(torch.tensor([scores], dtype=torch.float32), torch.tensor([target]), mask)


def tasks(*rows: tuple[Any, ...], dtype: torch.dtype = torch.float32) -> list[Case]:
    """One case per target of each row (scores, targets), or (scores, targets, excluded)."""
    cases = [one(scores, target, *out) for scores, targets, *out in rows for target in targets]
    return [replace(case, scores=case.scores.to(dtype)) for case in cases]


def stack(*cases: Case) -> Case:
    """Cases of one width as one batch."""
    masks = [case.exclude for case in cases if case.exclude is not None]
    scores = torch.cat([case.scores for case in cases])
    target = torch.cat([case.target for case in cases])
    return Case(scores, target, torch.cat(masks) if masks else None, cases[0].note)


def ranked(ranks: Sequence[int], width: int, note: str = "") -> Case:
    """One ranking task per rank among ``width`` candidates; all scores of the batch differ."""
    rows = []
    targets = [1 + i % (width - 2) for i in range(len(ranks))]
    for i, (rank, target) in enumerate(zip(ranks, targets, strict=True)):
        # the first and last columns score lowest and are never targets: the order of columns is a
        # check of its own
        order = [column for column in range(1, width - 1) if column != target] + [0, width - 1]
        order.insert(rank - 1, target)
        rows.append([i + 1 - order.index(column) / width for column in range(width)])
    return Case(torch.tensor(rows, dtype=torch.float32), torch.tensor(targets), note=note)


def placed(above: int, width: int, note: str, dtype: torch.dtype = torch.float32) -> Case:
    """One ranking task with so many candidates above the true one, and the others below it."""
    scores = torch.zeros(1, width, dtype=dtype)
    scores[0, :above] = 1.0
    scores[0, above] = 0.5
    return Case(scores, torch.tensor([above]), note=f"{note} above the true one")


def largest() -> Case:
    """A rank that float32 cannot hold, 2^24 + 3: 67 MB of scores."""
    return placed(LARGEST - 2, LARGEST, f"{LARGEST - 2} candidates")


def _filter() -> list[Case]:
    cases = tasks(([0.5, 0.9, 0.1], [0], [1]), ([0.5, 0.9, 0.7], [0], [1]))
    cases += tasks(([0.5, 0.9, 0.1, 0.7], [0], [2]), ([0.5, 0.9, 0.1, 0.7], [0], []))
    wide = ranked([2], 40)
    masks = {"best": wide.scores == wide.scores.max(), "worst": torch.arange(40)[None] == 0}
    return cases + [
        replace(wide, exclude=mask, note=f"the {name} of all excluded")
        for name, mask in masks.items()
    ]


def _ties() -> list[Case]:
    cases = tasks(([0.5, 0.5], [0, 1]), ([0.5, 0.9, 0.5, 0.1], [0]))
    # blocks of ties around ranks 1, 3, 5 and 10: hits at k then differ between tie rules
    for low, high in ((1, 4), (3, 6), (4, 7), (8, 11), (9, 12)):
        scores = [3.0] * (low - 1) + [2.0] * (high - low + 1) + [1.0] * (16 - high)
        cases += tasks((scores, [low - 1, high - 1]))
    return cases


def _permuted() -> list[Case]:
    scores = [0.5, 0.9, 0.1, 0.7, 0.3]
    columns = [0, 1, 2, 3, 4]
    orders = [columns[shift:] + columns[:shift] for shift in range(5)]
    orders += [order[::-1] for order in orders]
    cases = []
    for target, order in product((0, 1, 2), orders):
        cases.append(one([scores[i] for i in order], order.index(target)))
    return cases


def _several() -> list[Case]:
    queries = (
        ([0.9, 0.8, 0.1], (0, 1)),
        ([0.9, 0.8, 0.7, 0.1], (0, 1, 2)),
        ([0.1, 0.9, 0.5, 0.7], (0, 2)),
    )
    first, *others = (_query(scores, relevant) for scores, relevant in queries)
    own_filters = stack(one([0.5, 0.9, 0.7], 0, [1]), one([0.5, 0.9, 0.7], 0, [2]))
    return [first, own_filters, *others]


def _query(scores: Sequence[float], relevant: tuple[int, ...]) -> Case:
    """One ranking task per relevant item, which excludes the others."""
    cases = []
    for target in relevant:
        cases.append(one(scores, target, [column for column in relevant if column != target]))
    return stack(*cases)


def _pairs_of_ranks() -> list[Case]:
    pairs = [[k, k + 1] for k in (1, 2, 3, 5, 10, 20, 50, 100)]
    pairs += [[2, 5], [119, 120]]
    return [ranked(ranks, 120, f"ranks {ranks} among 120") for ranks in pairs]


def _constant() -> list[Case]:
    rows = [([x] * N, [0, N - 1]) for N, x in product((2, 3, 16), (0.5, 0.0, -1.0))]
    return tasks(*rows)


def _incomplete_batches() -> list[Case]:
    """Batches whose last rows have the last rank, which the others seldom have."""
    cases = []
    for size in (3, 5, 33, 65, 129, 257, 1027):
        ranks = ([2, 1, 1, 1, 1] * size)[: size - 3]
        cases.append(ranked([*ranks, 4, 4, 4], 4, f"{size} tasks without ties"))
    return cases


_ROWS = tasks(([0.5, 0.9, 0.1], [1]), ([1.5, 1.9, 1.1], [0]), ([2.5, 2.9, 2.1], [2]))
# the last is neither first nor last
ORDINARY = ranked([2, 1, 5, 3, 12, 4], 12, note="six tasks without ties")


DESCRIPTIONS = {
    "plain_ranks": "without ties, the rank is 1 plus the number of candidates with a higher score",
    "order_of_batches": "results depend neither on earlier calls nor on the order of rows",
    "values": "every metric follows from ranks and numbers of candidates by its definition",
    "batch_of_one": "a ranking task alone has the rank it has in a batch",
    "filter": "excluded candidates are not counted",
    "ties": "equal scores are ranked by one rule",
    "constant_scorer": "equal scores are ranked by this rule, whichever column is the target",
    "nan_truth": "a target with score NaN ranks last or counts as a miss",
    "nan_candidates": "a candidate with score NaN counts as better than the target",
    "all_nan": "scores that are all NaN rank no better than random",
    "infinities": "infinite scores are ordinary scores",
    "negative_scores": "scores of zero and below are ordinary scores",
    "saturated_sigmoid": "different scores are not tied, however large they are",
    "bfloat16_ties": "scores that are equal in bfloat16 are ranked by the same rule",
    "permuted_candidates": "the order of the columns changes no rank",
    "own_target_in_filter": "the target stays a candidate if the filter lists it",
    "filter_by_finite_values": "the filter excludes candidates, not a special score",
    "several_answers": "every row has its own filter: several relevant items of a query are rows",
    "single_candidate": "the only candidate ranks first",
    "k_above_candidates": "with at most k candidates every ranking task is a hit at k",
    "last_incomplete_batch": "every ranking task counts once, whatever their number",
    "padded_repeats": "a repeated row has the same rank and counts again",
    "scores_unmodified": "the arguments are not modified",
    "integer_overflow": "int8 scores and ranks above 2^15 and 2^16 are right",
    "float_counters": "ranks are counted as integers, with bfloat16 scores and beyond 2^24",
}
MAY_RAISE = {
    "nan_truth",
    "nan_candidates",
    "all_nan",
    "infinities",
    "bfloat16_ties",
    "filter_by_finite_values",
}
MAY_RAISE |= {"integer_overflow", "float_counters"}  # an exception does not fail these
CASES = {  # small ones first
    "plain_ranks": [ORDINARY],
    "values": _pairs_of_ranks(),
    "batch_of_one": [ranked([2], 12)],
    "filter": _filter(),
    "ties": _ties(),
    "constant_scorer": _constant(),
    "nan_truth": tasks(([NAN, 0.5], [0]), ([0.5, NAN], [1]), ([0.9, NAN, 0.1, 0.5], [1])),
    "nan_candidates": tasks(([0.5, NAN], [0]), ([NAN, 0.5], [1]), ([0.5, NAN, 0.1, 0.9], [0])),
    "all_nan": tasks(([NAN] * 3, [0, 1, 2])),
    "infinities": tasks(
        ([INF, 0.5], [0, 1]),
        ([-INF, 0.5], [0, 1]),
        ([INF, INF, 0.5], [0]),
        ([-INF, -INF, 0.5], [1]),
    ),
    "negative_scores": tasks(([-1.0, -2.0, -3.0], [0, 1]), ([0.0, -1.0], [0, 1]))
    + tasks(([-3.0, -1.0, -2.0], [0], [1]), ([-1.0, -0.5, -2.0], [0], [1])),
    "saturated_sigmoid": tasks(
        ([30.0, 40.0], [0, 1]), ([-200.0, -300.0], [0, 1]), ([100.0, 200.0, 300.0], [0, 1])
    ),
    # 1.001 is 1 in bfloat16, the next number is 1.0078125
    "bfloat16_ties": tasks(
        ([1.0, 1.001], [0, 1]), ([1.0, 1.0078125, 1.001, 0.5], [2]), dtype=torch.bfloat16
    ),
    "permuted_candidates": _permuted(),
    "own_target_in_filter": tasks(
        ([0.5, 0.9, 0.1], [0], [0]),
        ([0.5, 0.9, 0.1], [0], [0, 1]),
        ([0.5, 0.9, 0.1], [1], [1]),
        ([0.5, 0.9, 0.1], [2], [1, 2]),
    ),
    "filter_by_finite_values": tasks(
        ([-INF, 0.9, 0.5], [0], [2]), ([-INF, 0.9, -INF, 0.5], [0], [1])
    )
    + tasks(([-2e30, -3e30, -1e30, -4e30], [0], [1])),
    "several_answers": _several(),
    "single_candidate": [
        one([0.5], 0),
        stack(one([0.5], 0), one([0.5], 0)),
        one([0.5, 0.9, 0.1], 0, [1, 2]),
    ],
    "k_above_candidates": tasks(([0.5, 0.9], [1, 0])),
    "last_incomplete_batch": _incomplete_batches(),
    "padded_repeats": [stack(_ROWS[0], _ROWS[2], _ROWS[2]), stack(*_ROWS, *_ROWS[:1] * 3)],
    "integer_overflow": [
        *tasks(([-100, 100], [0]), ([-128, 127], [0]), ([-128, 0], [0]), dtype=torch.int8),
        Case(
            torch.arange(7e4)[None],
            torch.tensor([2000]),
            note="70000 candidates, all but 2000 above the true one",
        ),
    ],
    "float_counters": [placed(702, 1000, "702 candidates of 1000", torch.bfloat16)],
}
