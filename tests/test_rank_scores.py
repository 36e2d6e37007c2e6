import math
import tracemalloc

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import reference_ranks as reference
from allocations import Allocations
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.counting import plain
from torchrankmetrics.ranking.exclusion import exclusion_from_pairs
from torchrankmetrics.ranking.known import KnownAnswers
from torchrankmetrics.ranking.scores import rank_filtered, rank_scores

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
INF, NAN = math.inf, math.nan


def lines(ranks):
    flags = [0] * len(ranks) if ranks.flags is None else ranks.flags.tolist()
    return [
        (o, p, n, bool(f & fault.NAN))
        for o, p, n, f in zip(
            ranks.optimistic.tolist(),
            ranks.pessimistic.tolist(),
            ranks.num_candidates.tolist(),
            flags,
            strict=True,
        )
    ]


def lay_out(scores, strides):
    """The same values in other memory."""
    B, N = scores.shape
    if strides == "column":
        return scores.T.contiguous().T
    if strides == "sliced":
        return torch.stack([scores, scores + 1], dim=2).reshape(B, 2 * N)[:, ::2]
    if strides == "window":
        wide = torch.cat([torch.full_like(scores[:, :1], 5), scores, torch.full_like(scores[:, :1], 6)], dim=1)
        return torch.cat([wide, wide])[:B, 1 : N + 1]
    if strides == "column window":
        return torch.cat([scores, scores + 1]).T.contiguous().T[:B]
    return scores.contiguous()


STRIDES = ["row", "column", "sliced", "window", "column window"]
VALUES = st.sampled_from([-INF, -2.0, -0.0, 0.0, 1.0, 1.5, 7.0, INF, NAN])


@st.composite
def problems(draw, values=VALUES):
    B, N = draw(st.integers(0, 5)), draw(st.integers(1, 9))
    rows = [[draw(values) for _ in range(N)] for _ in range(B)]
    form = draw(st.sampled_from(["one", "pairs"]))
    if form == "one" or B == 0:
        tasks = [(i, draw(st.integers(0, N - 1))) for i in range(B)]
    else:
        tasks = draw(st.lists(st.tuples(st.integers(0, B - 1), st.integers(0, N - 1)), max_size=9))
    cells = st.tuples(st.integers(0, max(B - 1, 0)), st.integers(0, N - 1))
    pairs = draw(st.lists(cells, max_size=20)) if B else []
    return rows, B, N, form if B else "one", tasks, pairs


def as_target(form, tasks):
    if form == "one":
        return torch.tensor([column for _, column in tasks], dtype=torch.int64)
    pairs = torch.tensor(tasks, dtype=torch.int64).reshape(-1, 2).T
    return (pairs[0], pairs[1]) if len(tasks) == 1 else pairs  # one pair in a batch of two would be ambiguous


def as_exclude(kind, pairs, tasks, B, N):
    """The exclusion in one of its forms, and the excluded columns of a row as a function."""
    by_row = {i: {c for r, c in pairs if r == i} for i in range(B)}
    both = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    if kind == "none":
        return None, lambda row: ()
    if kind == "restriction":
        gone = {c for _, c in pairs} - {c for _, c in tasks}
        mask = torch.zeros(N, dtype=torch.bool)
        mask[sorted(gone)] = True
        return mask, lambda row: gone
    if kind == "mask":
        mask = torch.zeros(B, N, dtype=torch.bool)
        mask[both[0], both[1]] = True
        return mask, by_row.__getitem__
    if kind == "index":
        return KnownAnswers(both[0], both[1])(torch.arange(B)), by_row.__getitem__
    return (both if kind == "pairs" else (both[0], both[1])), by_row.__getitem__


KINDS = ["none", "pairs", "tuple", "mask", "index", "restriction"]


@settings(deadline=None, max_examples=150)
@given(problems(), st.sampled_from(FLOATS), st.sampled_from(STRIDES), st.sampled_from(KINDS))
def test_ranks_of_floating_scores(problem, dtype, strides, kind):
    rows, B, N, form, tasks, pairs = problem
    scores = lay_out(torch.tensor(rows, dtype=dtype).reshape(B, N), strides)
    before = scores.clone()
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    ranks = rank_scores(scores, as_target(form, tasks), exclude=exclude)
    assert lines(ranks) == reference.ranks(rows, tasks, gone)
    assert torch.equal(scores.nan_to_num(nan=99.0), before.nan_to_num(nan=99.0))
    assert ranks.optimistic.dtype == ranks.pessimistic.dtype == ranks.num_candidates.dtype == torch.int64


@settings(deadline=None, max_examples=80)
@given(
    problems(st.integers(0, 4)),
    st.sampled_from([*INTEGERS, torch.bool]),
    st.sampled_from(STRIDES[:2]),
    st.sampled_from(KINDS),
)
def test_ranks_of_integer_scores(problem, dtype, strides, kind):
    rows, B, N, form, tasks, pairs = problem
    scores = lay_out(torch.tensor(rows, dtype=torch.int64).reshape(B, N).to(dtype), strides)
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    ranks = rank_scores(scores, as_target(form, tasks), exclude=exclude, counting="torch")
    assert lines(ranks) == reference.ranks(scores.tolist(), tasks, gone)


@pytest.mark.parametrize("counting", ["auto", "torch"])
def test_integers_beyond_the_digits_of_a_float_are_told_apart(counting):
    scores = torch.tensor([[2**53, 2**53 + 1, 2**53 - 1]])
    assert lines(rank_scores(scores, torch.tensor([0]), counting=counting)) == [(2, 2, 3, False)]


@settings(deadline=None, max_examples=60)
@given(problems(), st.sampled_from(FLOATS), st.integers(1, 7), st.integers(1, 5), st.sampled_from(KINDS), st.booleans())
def test_tiles_of_any_size_count_the_same(problem, dtype, tile, entries, kind, by_column):
    rows, B, N, form, tasks, pairs = problem
    scores = lay_out(torch.tensor(rows, dtype=dtype).reshape(B, N), "column" if by_column else "row")
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_TILE", tile)
        patch.setattr(plain, "_ENTRIES", entries)
        ranks = rank_scores(scores, as_target(form, tasks), exclude=exclude, counting="torch")
    assert lines(ranks) == reference.ranks(rows, tasks, gone)


@settings(deadline=None, max_examples=60)
@given(problems(), st.sampled_from(["index", "pairs"]), st.sets(st.integers(0, 8)))
def test_known_answers_and_a_restriction_at_once(problem, kind, outside):
    rows, B, N, form, tasks, pairs = problem
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    outside = {c for c in outside if c < N} - {c for _, c in tasks}
    restriction = torch.tensor([c in outside for c in range(N)])
    scores = torch.tensor(rows).reshape(B, N)
    for counting in ("torch", "auto"):
        ranks = rank_filtered(scores, as_target(form, tasks), exclude, restriction, counting)
        assert lines(ranks) == reference.ranks(rows, tasks, lambda row: gone(row) | outside)


class TestLaw1:
    """Ranks do not depend on what does not concern them."""

    scores = torch.randint(-4, 4, (6, 40), generator=torch.Generator().manual_seed(1)).float()
    target = torch.arange(6) * 5
    expected = lines(rank_scores(scores, target))

    def test_permuting_the_candidates(self):
        order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
        place = order.argsort()[self.target]
        assert lines(rank_scores(self.scores[:, order], place)) == self.expected

    @pytest.mark.parametrize("monotone", [torch.exp, torch.arctan, lambda s: s**3 - 5, lambda s: s.double() * 1e-300])
    def test_strictly_monotone_maps(self, monotone):
        assert lines(rank_scores(monotone(self.scores), self.target)) == self.expected

    def test_splitting_the_batch(self):
        parts = [lines(rank_scores(s, t)) for s, t in zip(self.scores.split(4), self.target.split(4), strict=True)]
        assert [line for part in parts for line in part] == self.expected

    def test_an_expanded_row(self):
        row = self.scores[:1]
        assert lines(rank_scores(row.expand(3, -1), torch.tensor([0, 5, 7]))) == reference.ranks(
            row.tolist(), [(0, 0), (0, 5), (0, 7)]
        )

    def test_an_expanded_column(self):
        column = torch.tensor([[1.0], [NAN]])
        assert lines(rank_scores(column.expand(2, 4), torch.tensor([0, 3]))) == [(1, 4, 4, False), (4, 4, 4, True)]

    def test_scores_with_a_negative_bit(self):
        scores = torch.view_as_complex(torch.stack([self.scores, self.scores], dim=-1)).conj().imag
        assert scores.is_neg()
        assert lines(rank_scores(scores, self.target)) == lines(rank_scores(-self.scores, self.target))

    def test_the_own_column_is_left_out_by_index(self):
        assert lines(rank_scores(torch.zeros(1, 3), torch.tensor([1]))) == [(1, 3, 3, False)]

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
    def test_the_integer_type_of_the_target(self, dtype):
        assert lines(rank_scores(self.scores, self.target.to(dtype))) == self.expected


class TestLaw2:
    """NaN never helps."""

    def test_a_nan_truth_ranks_last_a_nan_candidate_above(self):
        scores = torch.tensor([[NAN, 1.0, 2.0], [0.0, NAN, -1.0], [NAN, NAN, NAN]])
        ranks = rank_scores(scores, torch.tensor([0, 0, 0]))
        assert lines(ranks) == [(3, 3, 3, True), (2, 2, 3, True), (3, 3, 3, True)]

    def test_infinities_are_scores(self):
        scores = torch.tensor([[INF, INF, -INF], [-INF, INF, -INF]])
        assert lines(rank_scores(scores, torch.tensor([0, 0]))) == [(1, 2, 3, False), (2, 3, 3, False)]

    def test_an_excluded_nan_is_not_told(self):
        scores = torch.tensor([[0.0, NAN, -1.0]])
        assert lines(rank_scores(scores, torch.tensor([0]), exclude=torch.tensor([[0], [1]]))) == [(1, 1, 2, False)]

    def test_a_single_nan_candidate(self):
        assert lines(rank_scores(torch.tensor([[NAN]]), torch.tensor([0]))) == [(1, 1, 1, True)]


def test_negative_scores_with_the_first_true_are_mrr_1():
    ranks = rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([0]))
    assert (1 / ranks.realistic).mean() == 1.0


def test_one_pair_where_it_is_not_ambiguous():
    assert lines(rank_scores(torch.eye(3), torch.tensor([[2], [0]]))) == [(2, 3, 3, False)]


@pytest.mark.trains
def test_nothing_of_the_graph_is_kept():
    scores = torch.randn(3, 4, requires_grad=True) * 2
    ranks = rank_scores(scores, torch.tensor([0, 1, 2]), exclude=torch.zeros(3, 4, dtype=torch.bool))
    assert not any(part.requires_grad for part in (ranks.optimistic, ranks.pessimistic))
    assert scores.grad_fn is not None
    with torch.inference_mode():
        inside = rank_scores(torch.zeros(2, 3), torch.tensor([0, 1]))
    assert lines(inside) == [(1, 3, 3, False)] * 2


def test_more_tasks_than_a_tile_and_long_slices():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 50, (3, 700), generator=generator).float()
    target = torch.stack(
        [torch.randint(0, 3, (400,), generator=generator), torch.randint(0, 700, (400,), generator=generator)]
    )
    exclude = torch.rand(3, 700, generator=generator) < 0.9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_TILE", 128)
        patch.setattr(plain, "_ENTRIES", 1000)
        ranks = rank_scores(scores, target, exclude=exclude.nonzero().T, counting="torch")
    gone = [set(row.nonzero()[:, 0].tolist()) for row in exclude]
    assert lines(ranks) == reference.ranks(scores.tolist(), target.T.tolist(), gone.__getitem__)


SCORES = torch.zeros(3, 5)
BAD = {
    "not a tensor": (([[1.0]], torch.tensor([0])), {}, TypeError, "scores"),
    "one dimension": ((torch.zeros(5), torch.tensor([0])), {}, ValueError, "scores"),
    "no candidate": ((torch.zeros(3, 0), torch.tensor([0, 0, 0])), {}, ValueError, "scores"),
    "complex": ((torch.zeros(1, 2, dtype=torch.complex64), torch.tensor([0])), {}, TypeError, "scores"),
    "target above": ((SCORES, torch.tensor([0, 5, 0])), {}, IndexError, r"target.*\[0, 5\).*task 1 has column 5"),
    "target negative": ((SCORES, torch.tensor([0, 0, -1])), {}, IndexError, "target.*task 2 has column -1"),
    "target float": ((SCORES, torch.tensor([0.0, 1.0, 2.0])), {}, TypeError, "target.*float32"),
    "target bool": ((SCORES, torch.tensor([True, False, True])), {}, TypeError, "target.*bool"),
    "target short": ((SCORES, torch.tensor([0, 1])), {}, ValueError, r"target.*\(3,\).*\(2,\)"),
    "target (B, 1)": ((SCORES, torch.tensor([[0], [1], [2]])), {}, ValueError, "target.*squeeze"),
    "target (2, 1), B = 2": ((SCORES[:2], torch.tensor([[0], [1]])), {}, ValueError, "target.*tuple"),
    "target (3, 2)": ((SCORES, torch.zeros(3, 2, dtype=torch.int64)), {}, ValueError, "target"),
    "target 0-d": ((SCORES, torch.tensor(1)), {}, ValueError, "target"),
    "target a number": ((SCORES, 1), {}, TypeError, "target"),
    "target row above": ((SCORES, torch.tensor([[0, 3], [0, 0]])), {}, IndexError, "target.*task 1.*row 3"),
    "target row negative": ((SCORES, torch.tensor([[-1, 0], [0, 0]])), {}, IndexError, "target.*row -1"),
    "target of no row": ((SCORES[:0], torch.tensor([[0], [0]])), {}, IndexError, "target"),
    "target tuple uneven": ((SCORES, (torch.tensor([0]), torch.tensor([0, 1]))), {}, ValueError, "target"),
    "target tuple float": ((SCORES, (torch.tensor([0]), torch.tensor([0.0]))), {}, TypeError, "target"),
    "exclude column above": (
        (SCORES, torch.arange(3)),
        {"exclude": torch.tensor([[0], [5]])},
        IndexError,
        "exclude.*5",
    ),
    "exclude column negative": (
        (SCORES, torch.arange(3)),
        {"exclude": torch.tensor([[0], [-1]])},
        IndexError,
        "exclude",
    ),
    "exclude row": ((SCORES, torch.arange(3)), {"exclude": torch.tensor([[3], [0]])}, IndexError, "exclude"),
    "exclude float": ((SCORES, torch.arange(3)), {"exclude": torch.zeros(2, 1)}, TypeError, "exclude.*float32"),
    "exclude (3, P)": ((SCORES, torch.arange(3)), {"exclude": torch.zeros(3, 1).long()}, ValueError, "exclude"),
    "exclude a string": ((SCORES, torch.arange(3)), {"exclude": "all"}, TypeError, "exclude"),
    "mask shape": ((SCORES, torch.arange(3)), {"exclude": torch.zeros(5, 3).bool()}, ValueError, r"exclude.*\(3, 5\)"),
    "restriction shape": ((SCORES, torch.arange(3)), {"exclude": torch.zeros(3).bool()}, ValueError, "exclude"),
    "restricted target": (
        (SCORES, torch.arange(3)),
        {"exclude": torch.tensor([0, 1, 0, 0, 0]).bool()},
        ValueError,
        "target.*column 1 of task 1",
    ),
    "other queries": (
        (SCORES, torch.arange(3)),
        {"exclude": KnownAnswers([0], [1])(torch.arange(2))},
        ValueError,
        "exclude.*3",
    ),
    "index too wide": (
        (SCORES, torch.arange(3)),
        {"exclude": KnownAnswers([0], [5])(torch.arange(3))},
        IndexError,
        "exclude.*5",
    ),
    "counting": ((SCORES, torch.arange(3)), {"counting": "fast"}, ValueError, 'counting.*"auto".*fast'),
    "triton": ((SCORES, torch.arange(3)), {"counting": "triton"}, ValueError, "counting"),
    "wrong device": ((SCORES, torch.arange(3, device="meta")), {}, ValueError, "target.*device.*cpu"),
    "exclude elsewhere": (
        (SCORES, torch.arange(3)),
        {"exclude": torch.zeros(5, dtype=torch.bool, device="meta")},
        ValueError,
        "exclude.*device",
    ),
    "pairs elsewhere": (
        (SCORES, torch.arange(3)),
        {"exclude": torch.zeros(2, 1, dtype=torch.int64, device="meta")},
        ValueError,
        "exclude.*device",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    args, keywords, error, message = BAD[case]
    with pytest.raises(error, match=message):
        rank_scores(*args, **keywords)


@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("kind", ["none", "pairs", "mask", "restriction", "several"])
def test_the_scores_are_never_copied(kind, layout):
    # 32 MiB of scores; an operator may allocate the tile and what grows with the tasks or with N alone
    B, N = 256, 1 << 15
    scores = lay_out(torch.zeros(B, N), layout)
    target: object = torch.arange(B)
    exclude = {
        "pairs": torch.stack([torch.arange(B), torch.arange(B) + 1]),
        "mask": torch.zeros(B, N, dtype=torch.bool),
        "restriction": torch.zeros(N, dtype=torch.bool),
    }.get(kind)
    if kind == "several":
        target = (torch.arange(2 * B) // 2, torch.arange(2 * B))
    with Allocations() as seen:
        rank_scores(scores, target, exclude=exclude, counting="torch")
    assert 0 < seen.largest <= 2 << 20
    rank_scores(scores, target, exclude=exclude)  # compiled, if Numba is there, before NumPy's memory is watched
    tracemalloc.start()
    try:
        with Allocations() as seen:
            rank_scores(scores, target, exclude=exclude)
        assert max(seen.largest, tracemalloc.get_traced_memory()[1]) <= 2 << 20
    finally:
        tracemalloc.stop()


class TestAcceleratorPaths:
    """What only an accelerator takes, run on the CPU: no device is at hand in every test run."""

    @settings(deadline=None, max_examples=80)
    @given(problems(), st.integers(8, 200))
    def test_masked_blocks_count_known_answers(self, problem, tile):
        rows, B, N, _, tasks, pairs = problem
        scores = torch.tensor(rows).reshape(B, N)
        row, column = torch.tensor(tasks, dtype=torch.int64).reshape(-1, 2).T
        true = scores[row, column]
        known = KnownAnswers(*torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T)(torch.arange(B))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain, "_TILE_ACCELERATOR", tile)
            total = torch.zeros(4, len(tasks), dtype=torch.int64)
            plain._add_known_masked(total, scores, true, row, column, known, None)
        assert torch.equal(total, plain._count_known(scores, true, row, column, known, None))

    @settings(deadline=None, max_examples=80)
    @given(problems())
    def test_nan_by_a_third_comparison(self, problem):
        rows, B, N, _, tasks, _ = problem
        scores = torch.tensor(rows).reshape(B, N)
        row, column = torch.tensor(tasks, dtype=torch.int64).reshape(-1, 2).T
        true = scores[row, column]
        nan = plain._sweep(scores, true, row, None, [torch.ne])[0]
        assert nan.tolist() == [sum(math.isnan(s) for s in rows[r]) for r, _ in tasks]

    @settings(deadline=None, max_examples=80)
    @given(
        st.lists(st.tuples(st.integers(-2, 5), st.integers(-2, 6)), max_size=12), st.integers(0, 4), st.integers(1, 5)
    )
    def test_pairs_sorted_without_a_shape_that_depends_on_them(self, pairs, B, N):
        from torchrankmetrics.ranking.exclusion import slices_of_fixed_shape

        row, column = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
        got, bad = slices_of_fixed_shape(row, column, B, N)
        valid = sorted({(r, c) for r, c in pairs if 0 <= r < B and 0 <= c < N})
        assert got.pairs().T.tolist() == [list(pair) for pair in valid]
        assert bool(bad) == (not all(0 <= r < B and 0 <= c < N for r, c in pairs))
        assert got.longest >= int(got.length.max()) if B else True
        if not bad and B:
            cpu, _ = exclusion_from_pairs(torch.stack([row, column]), B, N, torch.device("cpu"))
            assert torch.equal(cpu.pairs(), got.pairs())

    def test_nothing_waits_for_the_device(self):
        # a meta tensor has no values: whatever asks for one (item, bool, nonzero, a shape from data) is an error
        scores = torch.empty(4, 9, device="meta")
        target = torch.empty(4, dtype=torch.int64, device="meta")
        pairs = torch.empty(2, 6, dtype=torch.int64, device="meta")
        known = KnownAnswers([0, 0, 1], [1, 2, 3]).to("meta")(target)
        excludes = (None, pairs, known, scores > 0, scores[0] > 0)
        for exclude in excludes:
            for tasks in (target, pairs):
                ranks = rank_scores(scores, tasks, exclude=exclude)
                assert ranks.optimistic.shape == ranks.flags.shape == (tasks.shape[-1],)
        rank_filtered(scores, target, known, scores[0] > 0, "auto")
