"""The order in which queries are drawn: at random, each with the odds of its number of tasks."""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray


class Draws:
    """Queries drawn without replacement, each in proportion to its tasks among those left, and their tasks in a row.

    Args:
        query: (n,) int64, the query of each task.
        seed: of the order; it depends on nothing else.

    Attributes:
        queries: (Q,) int64, the place of each drawn query among the sorted, distinct ones.
        tasks: (n,) int64, indices of the tasks, query after query.
        border: (Q + 1,) int64, where the tasks of each drawn query begin, and the last ones end.
    """

    def __init__(self, query: IntArray, seed: int) -> None:
        _, of_task, number = np.unique(query, return_inverse=True, return_counts=True)
        # the first of independent clocks rings with the odds of their rates, and so does the next of those left
        self.queries = np.argsort(np.random.default_rng(seed).exponential(size=len(number)) / number, kind="stable")
        place = np.empty(len(number), dtype=np.int64)
        place[self.queries] = np.arange(len(number))
        self.tasks = np.argsort(place[of_task], kind="stable")
        self.border = np.concatenate([np.zeros(1, np.int64), np.cumsum(number[self.queries])])

    def __len__(self) -> int:
        return len(self.queries)

    def of(self, first: int, last: int) -> IntArray:
        """Tasks of the drawn queries from ``first`` up to ``last``, which is not among them."""
        return self.tasks[self.border[first] : self.border[last]]

    def sizes(self, last: int) -> FloatArray:
        """Number of tasks of each of the first drawn queries."""
        return np.diff(self.border[: last + 1]).astype(np.float64)
