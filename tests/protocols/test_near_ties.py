"""Candidates whose scores are those of the true ones but for float noise: told where they are more than by chance."""

import warnings

import pytest
import torch

from torchrankmetrics import KnownTriples, RankMetricWarning, Tolerance, rank_triples
from torchrankmetrics.protocols import near_ties

N = TASKS = 640


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tasks(seed=1):
    return torch.stack(
        [torch.arange(TASKS), torch.zeros(TASKS).long(), torch.randint(N, (TASKS,), generator=generator(seed))], 1
    )


def twins(dtype=torch.float32):
    """Scores of pairs of candidates that are equal."""
    return torch.randn(TASKS, N // 2, generator=generator(), dtype=dtype).repeat_interleave(2, 1)


def with_noise(scores, units=1):
    unit = torch.nextafter(scores.abs(), torch.tensor(torch.inf, dtype=scores.dtype)) - scores.abs()
    return scores + unit * torch.randint(-units, units + 1, scores.shape, generator=generator(2))


def is_told(scores, triples=None, known=None, **options):
    triples = tasks() if triples is None else triples
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rank_triples(lambda h, r: scores[h], None, triples, known, progress=False, **options)
    found = [str(one.message) for one in caught if issubclass(one.category, RankMetricWarning)]
    assert all("units in the last place" in text for text in found)
    return bool(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_between_scores_that_should_tie_is_told_and_a_tolerance_ends_it(dtype):
    scores = with_noise(twins(dtype))
    assert is_told(scores)
    assert not is_told(scores, tolerance=Tolerance(relative=1e-5))
    assert not is_told(scores, tolerance=1e-5)


def test_the_message_counts_the_tasks_looked_at_on_both_sides():
    scores = with_noise(twins())
    triples = tasks()
    text = r"^\d+ of 64 ranking tasks looked at .* tolerance=Tolerance"
    with pytest.warns(RankMetricWarning, match=text) as told:
        table = rank_triples(
            lambda h, r: scores[h], lambda r, t: scores[t], triples, None, batch_size=50, progress=False
        )
    assert told[0].filename == __file__  # it points at who asked
    assert table.summary().notes[-1] == str(told[0].message)  # and is not lost with the warning
    assert not any("last place" in note for note in table.side("tail").summary().notes)


def test_without_near_ties_the_summary_has_no_word_of_them():
    scores = twins()
    table = rank_triples(lambda h, r: scores[h], None, tasks(), None, progress=False)
    assert table.near_ties is None
    assert not any("last place" in note for note in table.summary().notes)


def test_which_tasks_are_looked_at_does_not_depend_on_the_batches(monkeypatch):
    scores = with_noise(twins())
    told = set()
    for size, cells in ((None, 1 << 20), (1, 1 << 20), (7, 2 * N), (50, 1), (TASKS, 1), (TASKS, 1 << 20)):
        monkeypatch.setattr(near_ties, "_CELLS", cells)  # looked at, at once
        with pytest.warns(RankMetricWarning, match="units in the last place") as found:
            rank_triples(lambda h, r: scores[h], None, tasks(), None, batch_size=size, progress=False)
        told.add(str(found[0].message))
    assert len(told) == 1


def test_ties_and_scores_of_their_own_are_not_near():
    assert not is_told(twins())
    assert not is_told(torch.randn(TASKS, N, generator=generator()))
    assert not is_told(with_noise(twins()).bfloat16())
    assert not is_told(torch.full((TASKS, N), torch.inf))


def test_scores_so_dense_that_chance_brings_them_near_are_not_told():
    # one candidate within eight units of each task, and eight around it
    near = 1 + 2.0**-23 * torch.randint(1, 80, (TASKS, N), generator=generator())
    assert not is_told(near)


def test_candidates_that_are_not_counted_are_not_near():
    scores = with_noise(twins())
    triples = tasks()
    other = triples.clone()
    other[:, 2] ^= 1
    known = KnownTriples(torch.cat([triples, other]), num_entities=N)
    assert is_told(scores, triples, KnownTriples(triples, num_entities=N))
    assert not is_told(scores, triples, known)
    even = triples - triples % 2 * torch.tensor([0, 0, 1])
    assert not is_told(scores, even, candidates=torch.arange(0, N, 2))


def test_few_tasks_and_few_near_ties_are_not_told():
    scores = with_noise(twins())
    assert not is_told(scores, tasks()[:40])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_and_vanished_true_scores_are_not_looked_at(dtype):
    drawn = torch.randn(TASKS, N, generator=generator(), dtype=dtype)
    masked = torch.rand(TASKS, N, generator=generator(3)) < 0.3
    assert not is_told(drawn.masked_fill(masked, torch.finfo(dtype).min))
    assert not is_told((drawn * 60).softmax(1))
