"""Batches of rank_triples grow for as long as the time per query falls."""

import pytest
import torch

from torchrankmetrics import rank_triples
from torchrankmetrics.kg import loop as batches, loop as query_side

E = 600


class Clock:
    """Time that only scoring takes."""

    def __init__(self, monkeypatch, cost):
        self.now, self.cost, self.sizes = 0.0, cost, []
        monkeypatch.setattr(batches.time, "perf_counter", lambda: self.now)

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
        (lambda n: 100.0 + n, [16, 16, 32, 32, 64, 64, 128, 128, 120]),  # a price of a call: it grows
        (lambda n: n * (16.0 + n), [16, 16, 32, 32] + 31 * [16] + [8]),  # 16 is the best
        (lambda n: float(n), [16, 16, 32, 32] + 31 * [16] + [8]),  # no gain: back to what was as good
        (lambda n: 4000.0 + n * n, [16, 16, 32, 32, 64, 64, 128, 128, 64, 56]),  # past the best: back to it
        (lambda n: 4e-5 * n, [16, 584]),  # all of them in 30 ms
        (lambda n, once=[9.0]: (once.pop() if once else 0.0) + 4e-5 * n, [16, 16, 568]),  # the first warms up
        (lambda n: 6e-3 + 3e-5 * n, [16, 74, 74, 148, 148, 140]),  # the price of a call at first; then it grows
        (lambda n: 3e-4 * n, [16, 100, 100, 16, 16, 32, 32] + 18 * [16]),  # no gain: back, for the sake of memory
        (lambda n: 2e-3 + 5e-7 * n**3, [16, 118, 118, 16, 16, 32, 32] + 15 * [16] + [12]),  # beyond the best
        (lambda n: 1e-3 * n, [16, 16, 32, 32] + 31 * [16] + [8]),  # two batches of 16 are longer than that
    ],
)
def test_the_size_follows_the_time_per_query(monkeypatch, cost, expected):
    assert ranked(Clock(monkeypatch, cost)) == expected


def test_a_bound_and_a_given_size_hold(monkeypatch):
    monkeypatch.setattr(query_side, "_fitting", lambda *args: 40)
    assert max(ranked(Clock(monkeypatch, lambda n: 100.0))) == 40
    assert set(ranked(Clock(monkeypatch, lambda n: 100.0), batch_size=50)) == {50}
    monkeypatch.setattr(query_side, "_fitting", lambda *args: 3)
    assert ranked(Clock(monkeypatch, lambda n: 100.0))[:3] == [16, 3, 3]
