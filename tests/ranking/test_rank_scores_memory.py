"""What rank_scores costs and where it waits: no copy of the scores, no question to an accelerator."""

import tracemalloc

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from allocations import Allocations
from fuzzing import cases
from ranking_problems import lay_out
from torchrankmetrics import rank_scores
from torchrankmetrics.kg import KnownAnswers
from torchrankmetrics.ranking.exclude import Excluded
from torchrankmetrics.ranking.scores import rank_dense
from torchrankmetrics.ranking.tasks import Cells, slices_of_pairs


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
        rank_scores(scores, target, exclude=exclude, backend="torch")
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

    @cases(30, 800)
    @given(
        st.lists(st.tuples(st.integers(-2, 5), st.integers(-2, 6)), max_size=12), st.integers(0, 4), st.integers(1, 5)
    )
    def test_pairs_sorted_without_a_shape_that_depends_on_them(self, pairs, B, N):
        row, column = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
        got, bad = slices_of_pairs(Cells(row, column), B, N, fixed_shape=True)
        valid = sorted({(r, c) for r, c in pairs if 0 <= r < B and 0 <= c < N})
        assert got.pairs().T.tolist() == [list(pair) for pair in valid]
        assert bool(bad) == (not all(0 <= r < B and 0 <= c < N for r, c in pairs))
        if B:
            assert got.longest >= int(got.length.max())
        if not bad and B:
            cpu, _ = slices_of_pairs(Cells(row, column), B, N)
            assert torch.equal(cpu.pairs(), got.pairs())

    def test_nothing_waits_for_the_device(self, monkeypatch):
        # a meta tensor has no values: code that reads one (item, bool, nonzero, a shape from data) fails
        monkeypatch.setattr(torch.Tensor, "is_meta", property(lambda _: False))
        scores = torch.empty(4, 9, device="meta")
        target = torch.empty(4, dtype=torch.int64, device="meta")
        pairs = torch.empty(2, 6, dtype=torch.int64, device="meta")
        known = KnownAnswers([0, 0, 1], [1, 2, 3]).to("meta")(target)
        excludes = (None, pairs, known, scores > 0, scores[0] > 0)
        for exclude in excludes:
            for tasks in (target, pairs):
                ranks = rank_scores(scores, tasks, exclude=exclude)
                assert ranks.optimistic.shape == ranks.flags.shape == (tasks.shape[-1],)
        rank_dense(scores, target, Excluded(slices=known, columns=scores[0] > 0))
