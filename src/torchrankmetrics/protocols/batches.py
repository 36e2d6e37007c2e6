"""How many queries a model is given at once: as many as make each of them cheaper."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

FIRST = 16
_RUNS = 2  # batches of a size, the faster of which counts: the first ones warm up
_FALLS = 0.95
_SHORT = 0.03  # seconds: a batch of less may be mostly the price of its calls, and cannot have filled much memory


class BatchSize:
    """A number of queries: 16, then as many as a short time is enough for, doubled while the time of each falls.

    Where the leap brings nothing, it doubles from 16 on.

    Args:
        fixed: the number for all batches; None: it grows.
        device: where the queries are scored; on what is neither a CPU nor CUDA nothing is timed, and it grows at once.
    """

    def __init__(self, fixed: int | None, device: torch.device) -> None:
        self.size = fixed or FIRST
        self._grows, self._device = fixed is None, device
        self._seconds: list[float] = []  # per query, of this size
        self._best: tuple[float, int] | None = None
        self._leap: int | None = None  # the size after 16; 0: that was a mistake

    @contextmanager
    def timed(self, queries: int) -> Iterator[None]:
        """Take the time of a batch of so many queries."""
        if not self._grows:
            yield
            return
        self._wait()
        begin = time.perf_counter()
        yield
        self._wait()
        if queries == self.size:  # the last one may be smaller
            self._seconds.append((time.perf_counter() - begin) / queries)

    def grow(self, bound: Callable[[], int]) -> None:
        """Choose the next size, up to a bound, which is asked for only while the size grows."""
        if not self._grows:
            return
        most = bound()
        if self._device.type not in ("cpu", "cuda"):
            self.fix(most)
        elif self.size > most:
            self._leap = most if self.size == self._leap else self._leap
            self.size, self._seconds = most, []
        elif self._seconds:
            self._choose(min(self._seconds), most)

    def _choose(self, time_now: float, most: int) -> None:
        if self._leap is None and self._best is None:
            leap = most if most * time_now <= _SHORT else int(_SHORT / time_now)
            if leap >= 2 * self.size:
                self._best, self._leap = (time_now, self.size), leap
                self.size, self._seconds = leap, []
                return
        if len(self._seconds) < _RUNS:
            return
        if self._best is None or time_now <= _FALLS * self._best[0]:
            self._best = time_now, self.size
            self.size, self._seconds = min(2 * self.size, most), []
            self._grows = self.size > self._best[1]
        elif self.size == self._leap:
            self.size, self._best, self._seconds, self._leap = self._best[1], None, [], 0
        else:
            self.fix(self._best[1])

    def fix(self, size: int) -> None:
        """Keep a size from now on."""
        self.size, self._grows = size, False

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
