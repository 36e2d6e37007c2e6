"""Messages stay short, whatever an argument holds."""

import pytest

from torchrankmetrics import RankDefinition, Ranks, adjust, compare, evaluate
from torchrankmetrics.definitions import power_mean_rank
from torchrankmetrics.definitions.candidates import integers
from torchrankmetrics.queries import QueryDefinition

LONG = "ab_" * 33_333 + "c"
RANKS = Ranks([1, 2, 5], None, 9)
OTHERS = Ranks([1, 2, 5] * 20, None, 9), Ranks([2, 1, 4] * 20, None, 9)
MODELS = dict(zip("ab", OTHERS, strict=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda: evaluate([1, 2], 9, metrics=[LONG]),
        lambda: evaluate([1, 2], 9, metrics=["mr"], views=LONG),
        lambda: evaluate([1, 2], LONG, metrics=["mr"]),
        lambda: evaluate([1.5], metrics=[RankDefinition(LONG, f=lambda r: 1 / r)], views="z_score"),
        lambda: evaluate([1, 2], 9, **{LONG: 1}),
        lambda: adjust(LONG, "mr", 14),
        lambda: adjust("3.5", "mr", "9" * 100_000),
        lambda: compare(RANKS, RANKS, LONG),
        lambda: compare(MODELS, "mrr", baseline=LONG),
        lambda: compare({LONG: RANKS}, "mrr"),
        lambda: compare(MODELS, ["mrr", "mr"])[LONG],
        lambda: integers(LONG, "num_candidates"),
        lambda: power_mean_rank(LONG),
        lambda: RankDefinition(LONG + "-"),
        lambda: RankDefinition(LONG, f=lambda r: r * 0 + 1),
        lambda: RankDefinition("x", aggregation=LONG),
        lambda: QueryDefinition(LONG),
    ],
)
def test_values_of_the_user_are_shortened(call):
    with pytest.raises((ValueError, TypeError, KeyError)) as error:
        call()
    assert len(str(error.value)) < 1000
