"""Laws of ranks, and the cases that show whether an evaluator keeps them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from torchrankmetrics.ranking.ranks import Ranks

_SHOWN = 24  # scores that a report writes out


@dataclass(frozen=True)
class Case:
    """A batch of tasks and their ranks.

    Attributes:
        scores: (B, N), higher is better.
        target: (B,) int64.
        exclude: bool (B, N), True = no candidate; or None.
        low: (B,) int64, the optimistic ranks.
        high: (B,) int64, the pessimistic ranks.
        at_best: every rank from low on is right, whatever the tie rule, and so is to count the task as missed.
        note: what is asked, where the scores are too many to be written out.
        repeats: filter entries are given twice, if they are pairs.
    """

    scores: Tensor
    target: Tensor
    exclude: Tensor | None
    low: Tensor
    high: Tensor
    at_best: bool = False
    note: str = ""
    repeats: bool = False

    def ranks(self) -> Ranks:
        """The right ranks; a target is a candidate whatever is excluded."""
        return self._ranks

    @cached_property
    def _ranks(self) -> Ranks:
        count = torch.full_like(self.low, self.scores.shape[1])
        if self.exclude is not None:
            others = self.exclude.scatter(1, self.target[:, None], False)
            count -= others.sum(1)
        return Ranks(self.low, self.high, count)

    def twice(self) -> "Case":
        """The same rows once more, below."""
        return stack(self, self, note=self.note)

    def __str__(self) -> str:
        B, N = self.scores.shape
        kind = "" if self.scores.dtype == torch.float32 else f" {str(self.scores.dtype).removeprefix('torch.')}"
        if self.scores.numel() > _SHOWN:
            return f"{self.note or 'scores'}: ({B}, {N}){kind}"
        text = f"scores{kind} {_rows(self.scores)}, target {self.target.tolist()}"
        if self.exclude is not None:
            out = [row.nonzero().flatten().tolist() for row in self.exclude]
            text += f", exclude columns {out}" + (" (each twice)" if self.repeats else "")
        return text


def case(
    scores: Sequence[float],
    target: int,
    low: int,
    high: int | None = None,
    exclude: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    at_best: bool = False,
) -> Case:
    """One task: its scores, the column of the true candidate, its rank (of a tie both), the columns excluded."""
    out = None
    if exclude is not None:
        out = torch.zeros(1, len(scores), dtype=torch.bool)
        out[0, list(exclude)] = True
    ends = (torch.tensor([low]), torch.tensor([low if high is None else high]))
    return Case(torch.tensor([scores], dtype=dtype), torch.tensor([target]), out, *ends, at_best)


def stack(*cases: Case, note: str = "") -> Case:
    """Cases of one width as a batch."""
    out = None
    if cases[0].exclude is not None:
        out = torch.cat([part.exclude for part in cases if part.exclude is not None])
    scores, target, low, high = (
        torch.cat([getattr(part, name) for part in cases]) for name in ("scores", "target", "low", "high")
    )
    return Case(
        scores=scores,
        target=target,
        exclude=out,
        low=low,
        high=high,
        at_best=cases[0].at_best,
        note=note,
        repeats=cases[0].repeats,
    )


def ranked(ranks: Sequence[int], width: int, note: str = "") -> Case:
    """A task per rank among ``width`` candidates, without ties; scores are positive, and no two rows are the same."""
    rows, targets = [], [1 + i % (width - 2) for i in range(len(ranks))]
    for i, (rank, target) in enumerate(zip(ranks, targets, strict=True)):
        # the ends score lowest and are never true: that columns are treated alike is a law of its own
        best_first = [column for column in range(1, width - 1) if column != target] + [0, width - 1]
        best_first.insert(rank - 1, target)
        row = [0.0] * width
        for place, column in enumerate(best_first):
            row[column] = i + 1 - place / width
        rows.append(row)
    best = torch.tensor(ranks)
    return Case(torch.tensor(rows, dtype=torch.float32), torch.tensor(targets), None, best, best, note=note)


def _rows(scores: Tensor) -> str:
    return "[" + ", ".join("[" + ", ".join(f"{x:.6g}" for x in row) + "]" for row in scores.double().tolist()) + "]"


_INF, _NAN = float("inf"), float("nan")
_WIDTH = 4


@dataclass(frozen=True)
class Law:
    """What an evaluator has to keep.

    Attributes:
        name: of the law.
        says: the law, in a sentence.
        cases: small ones first; none where the auditor has more to do than to compare answers.
        may_refuse: an evaluator that raises here has given no wrong number.
    """

    name: str
    says: str
    cases: Callable[[], list[Case]] = list
    may_refuse: bool = False


def ordinary() -> Case:
    """Tasks without ties, filter or anything odd; the last in their batch is neither first nor last."""
    return ranked([2, 1, 5, 3, 12, 4], 12, note="six tasks without ties")


def _ties() -> list[Case]:
    # of such a width that hits at 1, 3, 5 and 10 tell the rules apart wherever they can
    blocks = [([0.5, 0.5], 0, 1, 2), ([0.5, 0.5], 1, 1, 2), ([0.5, 0.9, 0.5, 0.1], 0, 2, 3)]
    cases = [case(*block) for block in blocks]
    for low, high in ((1, 4), (3, 6), (4, 7), (8, 11), (9, 12)):
        scores = [3.0] * (low - 1) + [2.0] * (high - low + 1) + [1.0] * (16 - high)
        cases += [case(scores, low - 1, low, high), case(scores, high - 1, low, high)]
    return cases


def _constant() -> list[Case]:
    cases = [case([value] * N, target, 1, N) for N in (2, 3, 16) for value in (0.5, 0.0, -1.0) for target in (0, N - 1)]
    return sorted(cases, key=lambda one: one.scores.shape[1])


def _infinities() -> list[Case]:
    cases = [case([_INF, 0.5], target, target + 1) for target in (0, 1)]
    cases += [case([-_INF, 0.5], target, 2 - target) for target in (0, 1)]
    return [*cases, case([_INF, _INF, 0.5], 0, 1, 2), case([-_INF, -_INF, 0.5], 1, 2, 3)]


def _negative() -> list[Case]:
    cases = [case([-1.0, -2.0, -3.0], target, target + 1) for target in (0, 1)]
    cases += [case([0.0, -1.0], target, target + 1) for target in (0, 1)]
    return [*cases, case([-3.0, -1.0, -2.0], 0, 2, exclude=[1]), case([-1.0, -0.5, -2.0], 0, 1, exclude=[1])]


def _saturated() -> list[Case]:
    cases = [case([30.0, 40.0], 0, 2), case([30.0, 40.0], 1, 1), case([-200.0, -300.0], 0, 1)]
    return [*cases, case([-200.0, -300.0], 1, 2), case([100.0, 200.0, 300.0], 0, 3), case([100.0, 200.0, 300.0], 1, 2)]


def _bfloat16() -> list[Case]:
    # 1.001 and 1 are one number in bfloat16, 1.0078125 is the next
    cases = [case([1.0, 1.001], target, 1, 2, dtype=torch.bfloat16) for target in (0, 1)]
    return [*cases, case([1.0, 1.0078125, 1.001, 0.5], 2, 2, 3, dtype=torch.bfloat16)]


def _permuted() -> list[Case]:
    scores = [0.5, 0.9, 0.1, 0.7, 0.3]
    orders = [[(i + shift) % 5 for i in range(5)] for shift in range(5)]
    orders += [order[::-1] for order in orders]
    return [
        case([scores[column] for column in order], order.index(target), rank)
        for target, rank in ((0, 3), (1, 1), (2, 5))
        for order in orders
    ]


def _filter() -> list[Case]:
    # that a single candidate is left is a law of its own
    cases = [case([0.5, 0.9, 0.1], 0, 1, exclude=[1]), case([0.5, 0.9, 0.7], 0, 2, exclude=[1])]
    return [*cases, case([0.5, 0.9, 0.1, 0.7], 0, 3, exclude=[2]), case([0.5, 0.9, 0.1, 0.7], 0, 3, exclude=[])]


def _own_target() -> list[Case]:
    cases = [case([0.5, 0.9, 0.1], 0, 2, exclude=[0]), case([0.5, 0.9, 0.1], 0, 1, exclude=[0, 1])]
    return [*cases, case([0.5, 0.9, 0.1], 1, 1, exclude=[1]), case([0.5, 0.9, 0.1], 2, 2, exclude=[1, 2])]


def _repeated() -> list[Case]:
    cases = [case([0.5, 0.9, 0.7], 0, 2, exclude=[1]), case([0.5, 0.9, 0.8, 0.7], 0, 2, exclude=[1, 3])]
    return [replace(one, repeats=True) for one in cases]


def _finite() -> list[Case]:
    excluded = case([-_INF, 0.9, 0.5], 0, 2, exclude=[2])
    tied = case([-_INF, 0.9, -_INF, 0.5], 0, 2, 3, exclude=[1])
    sentinel = case([-2e30, -3e30, -1e30, -4e30], 0, 2, exclude=[1])
    return [excluded, tied, sentinel]


def _several() -> list[Case]:
    def answers(scores: list[float], ranks: dict[int, int]) -> Case:
        return stack(*(case(scores, own, rank, exclude=[t for t in ranks if t != own]) for own, rank in ranks.items()))

    other = stack(*(case([0.5, 0.9, 0.7], 0, 2, exclude=[column]) for column in (1, 2)))
    best = answers([0.9, 0.8, 0.7, 0.1], {0: 1, 1: 1, 2: 1})
    return [answers([0.9, 0.8, 0.1], {0: 1, 1: 1}), other, best, answers([0.1, 0.9, 0.5, 0.7], {0: 3, 2: 3})]


def _last_batch() -> list[Case]:
    sizes = (3, 5, 33, 65, 129, 257, 1027)
    # what is left over has the last rank, which the others seldom have
    return [
        ranked([1 + (i % 5 == 0) for i in range(B - 3)] + [_WIDTH] * 3, _WIDTH, note=f"{B} tasks without ties")
        for B in sizes
    ]


def _padded() -> list[Case]:
    rows = [case([0.5, 0.9, 0.1], 1, 1), case([1.5, 1.9, 1.1], 0, 2), case([2.5, 2.9, 2.1], 2, 3)]
    return [stack(rows[0], rows[2], rows[2]), stack(*rows, rows[0], rows[0], rows[0])]


def _overflow() -> list[Case]:
    bytes_ = [case(scores, 0, 2, dtype=torch.int8) for scores in ([-100, 100], [-128, 127], [-128, 0])]
    many = torch.arange(70_000, dtype=torch.float32)[None]
    ends = torch.tensor([70_000 - 2_000])
    wide = Case(many, torch.tensor([2_000]), None, ends, ends, note="70000 candidates, all but 2000 above the true one")
    return [*bytes_, wide]


def _counters() -> list[Case]:
    half = torch.zeros(1, 1000, dtype=torch.bfloat16)
    half[0, :702] = 1.0
    half[0, 702] = 0.5
    rank = torch.tensor([703])
    halves = Case(half, torch.tensor([702]), None, rank, rank, note="702 candidates of 1000 above the true one")
    return [halves]


def million_case() -> Case:
    """A rank that float32 cannot hold, 2^24 + 3: 67 MB of scores."""
    above = 2**24 + 2
    scores = torch.ones(1, above + 2)
    scores[0, -1] = 0.0
    scores[0, 7] = 0.5
    rank = torch.tensor([above + 1])
    return Case(scores, torch.tensor([7]), None, rank, rank, note=f"{above} candidates above the true one")


def many_candidates() -> int:
    """Candidates of ``million_case``."""
    return 2**24 + 4


def _nan_truth() -> list[Case]:
    rows = (([_NAN, 0.5], 0), ([0.5, _NAN], 1), ([0.9, _NAN, 0.1, 0.5], 1))
    return [case(scores, target, len(scores), at_best=True) for scores, target in rows]


def _nan_candidates() -> list[Case]:
    return [case([0.5, _NAN], 0, 2), case([_NAN, 0.5], 1, 2), case([0.5, _NAN, 0.1, 0.9], 0, 3)]


def _all_nan() -> list[Case]:
    return [case([_NAN] * 3, target, 2, 3, at_best=True) for target in (0, 1, 2)]


def _single() -> list[Case]:
    alone = case([0.5], 0, 1)
    return [alone, alone.twice(), case([0.5, 0.9, 0.1], 0, 1, exclude=[1, 2])]


LAWS = (
    Law("plain_ranks", "without ties, the rank is one more than the number of candidates that score higher"),
    Law("order_of_batches", "an answer depends neither on earlier calls nor on the order of rows"),
    Law("values", "every metric is its definition of the ranks and the numbers of candidates"),
    Law("one_based", "the best rank is 1"),
    Law("batch_of_one", "a task by itself has the rank it has in a batch"),
    Law("filter", "what is excluded is no candidate", _filter),
    Law("ties", "equal scores are ranked by one rule", _ties),
    Law("constant_scorer", "of equal scores the rank is that of the rule, whichever column is true", _constant),
    Law("nan_truth", "a true candidate with score NaN ranks last, or counts as missed", _nan_truth, True),
    Law("nan_candidates", "a candidate with score NaN counts as better than the true one", _nan_candidates, True),
    Law("all_nan", "scores that are all NaN rank no better than chance", _all_nan, True),
    Law("infinities", "infinite scores are ordinary scores", _infinities, True),
    Law("negative_scores", "scores of zero and below are ordinary scores", _negative),
    Law("saturated_sigmoid", "scores that differ are no tie, however large", _saturated),
    Law("bfloat16_ties", "equal scores in bfloat16 are ranked by the same rule", _bfloat16, True),
    Law("permuted_candidates", "the order of the columns changes no rank", _permuted),
    Law("own_target_in_filter", "the true candidate stays where the filter lists it", _own_target),
    Law("repeated_filter_entries", "what the filter lists twice counts once", _repeated),
    Law("filter_by_finite_values", "what is excluded is told by the filter, not by the score", _finite, True),
    Law("several_answers", "every row has a filter of its own: several answers of a query come as rows", _several),
    Law("single_candidate", "the only candidate ranks first", _single),
    Law("k_above_candidates", "with no more than k candidates every task is a hit at k"),
    Law("last_incomplete_batch", "every task counts once, whatever their number", _last_batch),
    Law("padded_repeats", "a row that is repeated has its rank again and counts again", _padded),
    Law("scores_unmodified", "what is passed in is the same afterwards"),
    Law("integer_overflow", "scores in int8 and ranks above 2^15 and 2^16 are no matter", _overflow, True),
    Law("float_counters", "ranks are counted as integers, in bfloat16 scores and beyond 2^24", _counters, True),
)
