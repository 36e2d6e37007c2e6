"""Ranks: what it takes, and ranks among sampled negatives against plain loops."""

import itertools
import math
import random

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given

import reference_ranks as reference
from fuzzing import cases
from ranking_problems import STRIDES, flagged_lines, lay_out
from torchrankmetrics import RankCollection, RankMetricWarning, Ranks, RankTable, evaluate
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import unique_rows

VALUES = [-math.inf, -1.0, -0.0, 0.0, 2.0, math.inf, math.nan]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_ranks_of_any_integer_type_become_int64_with_their_mean_and_one_number_serves_all(dtype):
    ranks = Ranks(
        torch.tensor([1, 2, 3], dtype=dtype),
        torch.tensor([1, 5, 4], dtype=dtype),
        torch.tensor([9, 14, 4]),
    )
    assert ranks.realistic.tolist() == [1.0, 3.5, 3.5]
    assert ranks.realistic.dtype == torch.float64
    assert {x.dtype for x in (ranks.optimistic, ranks.pessimistic, ranks.num_candidates)} == {
        torch.int64
    }
    assert Ranks([3, 1], None, 7).columns.tolist() == [[3, 1], [3, 1], [7, 7]]
    for empty in ([], torch.tensor([]), torch.empty(0, dtype=dtype)):
        assert (len(Ranks(empty, None, 5)), Ranks(empty, None, 5).optimistic.dtype) == (
            0,
            torch.int64,
        )


@pytest.mark.parametrize("form", ["matrix", "exclude", "shared", "list", "dict"])
@cases(25, 600)
@given(st.integers(0, 10**6), st.sampled_from(DTYPES), st.sampled_from(STRIDES))
def test_negatives_of_every_form_are_ranked_as_by_plain_loops(form, seed, dtype, strides):
    draw = random.Random(seed)
    M, positive = draw.randint(0, 6), draw.choices(VALUES, k=draw.randint(0, 5))
    ragged = [
        draw.choices(VALUES, k=M if form == "matrix" else draw.randint(0, M)) for _ in positive
    ]
    if form == "shared":
        ragged = ragged[:1] * len(positive)
    true = torch.tensor(positive).to(dtype).requires_grad_()
    owner = torch.tensor([i for i, row in enumerate(ragged) for _ in row], dtype=torch.int64)
    flat = torch.tensor([score for row in ragged for score in row]).to(dtype)
    padding = draw.choice(VALUES)
    matrix = (
        torch.tensor([row + [padding] * (M - len(row)) for row in ragged])
        .reshape(len(true), M)
        .to(dtype)
    )
    mask = torch.tensor(
        [[j >= len(row) for j in range(M)] for row in ragged], dtype=torch.bool
    ).reshape(len(true), M)
    order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(0))
    given_ = {
        "matrix": (true, lay_out(matrix, strides)),
        "exclude": (true, lay_out(matrix, strides), mask),
        "shared": (true, flat[: len(ragged[0]) if ragged else 0]),
        "list": (true, [torch.tensor(row).to(dtype) for row in ragged]),
        "dict": ({"y_pred_pos": true, "y_pred_neg": flat[order], "indexes": owner[order]},),
    }[form]
    ranks = Ranks.from_negatives(*given_[:2], exclude=(*given_, None, None)[2])
    assert flagged_lines(ranks) == [
        reference.rank([p, *row], 0) for p, row in zip(positive, ragged, strict=True)
    ]
    assert bool((ranks.flags & fault.SAMPLED).all())


def samples(scores, m):
    """Every set of m negatives of a target in first place, equally likely: one batch of ranks."""
    negatives = torch.tensor(list(itertools.combinations(scores[1:], m)), dtype=torch.float32)
    return Ranks.from_negatives(torch.full((len(negatives),), scores[0]), negatives)


@pytest.mark.parametrize("m", [1, 3, 6])
@pytest.mark.parametrize(
    "scores", [[2.0, 5, 4, 1, 0, 3, 1], [2.0, 2, 2, 1, 4, 2, 5], [9.0, 0, 0, 0, 0, 0, 0]]
)
def test_the_estimate_of_the_full_rank_is_unbiased(scores, m):
    full = Ranks.from_negatives(
        torch.tensor(scores[:1]), torch.tensor([scores[1:]], dtype=torch.float32)
    )
    sampled = samples(scores, m)
    assert len(sampled) == math.comb(6, m)
    assert sampled.full_rank_estimate(7).mean().item() == pytest.approx(
        full.realistic.item(), rel=1e-14
    )
    values = evaluate(sampled, metrics=["amri"])
    assert values["amri"] == pytest.approx(
        evaluate(full, metrics=["amri"])["amri"], rel=1e-13, abs=1e-14
    )


def test_the_estimate_takes_counts_per_task():
    ranks = Ranks([1, 3, 2], [1, 4, 2], [5, 5, 11])
    expected = [1.0, 1 + 2.5 * 99 / 4, 1 + 1 * 10 / 10]
    assert ranks.full_rank_estimate(torch.tensor([9, 100, 11])).tolist() == expected


@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_the_printed_tables_say_that_candidates_were_sampled(storage, tmp_path):
    note = (
        "ranks are among sampled candidates: "
        "MRR, hits and similar metrics differ from the full candidate set"
    )
    collection = RankCollection(["mrr"], storage=storage)
    collection.update(Ranks([1, 2], None, 5), group=0)
    assert "sampled" not in str(collection.summary())
    collection.update(samples([1.0, 2, 3, float("nan")], 2), group=1)
    with pytest.warns(RankMetricWarning, match="NaN"):
        summary = str(collection.summary())
    collection.table().save(tmp_path / "a.npz")
    other = RankCollection(["mrr"])
    other.update(RankTable.load(tmp_path / "a.npz").ranks)
    assert f"3 {note}" in summary
    assert "2 ranking tasks have NaN scores" in summary
    assert f"3 {note}" in str(collection.breakdown())
    with pytest.warns(RankMetricWarning, match="NaN"):
        assert note in str(other.summary())


IDS = st.one_of(
    st.integers(0, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-(2**63), 2**63 - 1, 2**32, 0]),
)


# at the limits of one number: 2^32 (2^31 - 1) is below 2^63, and 2^63 is one too many
@example(2, [0, 0, 2**32 - 1, 2**31 - 2, 2**32 - 1, 0, 0, 0])
@example(2, [5, -7, 2**32 + 4, 2**31 - 9, 2**32 + 4, -7, 5, -7])
@example(2, [0, 0, 2**32 - 1, 2**31 - 1, 0, 1, 1, 0, 0, 1])
@given(st.integers(1, 4), st.lists(IDS, max_size=160))
def test_distinct_rows_are_those_of_torch(columns, numbers):
    rows = torch.tensor(numbers[: len(numbers) // columns * columns], dtype=torch.int64).reshape(
        -1, columns
    )
    found, expected = unique_rows(rows), torch.unique(rows, dim=0, return_inverse=True)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert {one.dtype for one in found} == {torch.int64}
