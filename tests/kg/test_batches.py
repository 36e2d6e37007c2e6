"""Batches of rank_triples grow while they are short or the time per query falls."""

import pytest
import torch

from torchrankmetrics import rank_triples
from torchrankmetrics.kg import loop

E = 600


class Clock:
    """Time that only scoring takes."""

    def __init__(self, monkeypatch, cost):
        self.now, self.cost, self.sizes = 0.0, cost, []
        monkeypatch.setattr(loop.time, "perf_counter", lambda: self.now)

    def score(self, heads, relations):
        self.sizes.append(len(heads))
        self.now += self.cost(len(heads))
        return torch.zeros(len(heads), E)


def ranked(clock, **options):
    triples = torch.stack([torch.arange(E), torch.zeros(E).long(), torch.arange(E)], 1)
    table = rank_triples(clock.score, None, triples, None, progress=False, **options)
    assert table.ranks.pessimistic.tolist() == [E] * E
    return clock.sizes


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (lambda n: 100.0 + n, [16, 32, 64, 128, 256, 104]),  # a call has a price: it grows
        (lambda n: n * (16.0 + n), [16, 32] + 34 * [16] + [8]),  # 16 is the best
        (lambda n: float(n), [16, 32] + 34 * [16] + [8]),  # no gain: back to 16
        (lambda n: 4000.0 + n * n, [16, 32, 64, 128] + 5 * [64] + [40]),  # 64 is the best
        (lambda n: 4e-5 * n, [16, 32, 64, 128, 256, 104]),  # short batches grow without a gain
        (lambda n: 3e-4 * n, [16, 32, 64, 128] + 5 * [64] + [40]),  # until they take 30 ms
        (lambda n, once=[9.0]: (once.pop() if once else 0.0) + 1e-3 * n, [16, 32, 64] + 15 * [32] + [8]),  # warm-up
    ],
)
def test_the_size_follows_the_time_per_query(monkeypatch, cost, expected):
    assert ranked(Clock(monkeypatch, cost)) == expected


def test_a_bound_and_a_given_size_hold(monkeypatch):
    monkeypatch.setattr(loop, "_fitting", lambda *args: 40)
    assert max(ranked(Clock(monkeypatch, lambda n: 100.0))) == 40
    assert set(ranked(Clock(monkeypatch, lambda n: 100.0), batch_size=50)) == {50}
    monkeypatch.setattr(loop, "_fitting", lambda *args: 3)
    assert ranked(Clock(monkeypatch, lambda n: 100.0))[:3] == [16, 3, 3]
