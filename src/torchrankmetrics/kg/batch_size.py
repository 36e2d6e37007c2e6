"""How many queries are scored at once: more while that saves time, fewer if memory is short."""

import math
import time

import torch

FIRST = 16
_FALLS = 0.95
# seconds: a shorter batch may be mostly the cost of its calls, and cannot have filled much memory
_SHORT = 0.03
_SCORES_CPU = 1 << 22
_SCORES_ACCELERATOR = 1 << 28
_SHARE = 8  # of the free memory of a GPU


class BatchSize:
    """Number of queries of the next batch: ``given``, or more while that saves time.

    Without a given number it starts at 16, and doubles as long as a query takes less time.
    """

    def __init__(self, given: int | None, most: int = FIRST) -> None:
        self.size = min(FIRST, most) if given is None else given
        self._grows = given is None
        self._least_seconds = math.inf  # of a query, and the size of its batch
        self._best_size = self.size

    def halve(self, tried: int) -> None:
        """Choose half of a size that did not fit in memory, from now on."""
        self._settle(max(1, tried // 2))

    def settle_for_all(self, num_columns: int, device: torch.device) -> None:
        """Choose a size that does not depend on time or memory, the same on all processes."""
        if self._grows:
            self._settle(most_queries(num_columns, device))

    def grow(self, begin: float, num_columns: int, itemsize: int, device: torch.device) -> None:
        """Choose the next size, from the time since ``begin``, when a batch of this size began."""
        if not self._grows:
            return
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elapsed = time.perf_counter() - begin
        seconds = elapsed / self.size
        most = fitting_queries(num_columns, itemsize, device)
        if self.size >= most:
            self._settle(most)
        elif elapsed > _SHORT and seconds > _FALLS * self._least_seconds:
            self._settle(self._best_size)
        else:
            self._least_seconds = seconds
            self._best_size = self.size
            self.size = min(2 * self.size, most)

    def _settle(self, size: int) -> None:
        self.size = size
        self._grows = False


def most_queries(num_columns: int, device: torch.device) -> int:
    """Return how many queries to score at once, by the number of scores."""
    scores = _SCORES_CPU if device.type == "cpu" else _SCORES_ACCELERATOR
    return max(1, scores // num_columns)


def fitting_queries(num_columns: int, itemsize: int, device: torch.device) -> int:
    """Return how many queries to score at once, by their scores and the memory of a GPU."""
    number = most_queries(num_columns, device)
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        number = min(number, free // (_SHARE * num_columns * itemsize))
    return max(1, number)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is one of the CUDA, ROCm or CPU allocator, or of Python's."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text
    )
