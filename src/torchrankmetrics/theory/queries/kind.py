"""What a metric of queries is asked for: the value of a query, its moments by chance and its best value."""

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.queries.sample import QuerySample


class QueryKind:
    """A kind of metric of one query; the mean over queries is taken elsewhere.

    By chance the places of the m answers are a uniform m-subset of 1..N. So a block of ties is a small query by chance,
    and a constant scorer has the null mean.
    """

    def values(self, sample: QuerySample) -> FloatArray:
        """Expectation over the orders of tied candidates, (Q,) float64; NaN where the metric is undefined."""
        raise NotImplementedError

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance >= 0 by chance: (u,) int64 twice in, sorted by N, then m; (u,) float64 twice out."""
        raise NotImplementedError

    def optimum(self, N: IntArray, m: IntArray) -> FloatArray:
        """Value of the ranking whose first m candidates are the answers, (u,) float64."""
        return self.values(QuerySample.tied(m, m, N))
