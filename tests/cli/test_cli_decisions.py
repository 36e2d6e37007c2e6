"""compare --margin: the numbers of the library."""

import pytest

from command_line import records
from torchrankmetrics import RankTable
from torchrankmetrics.cli import main
from torchrankmetrics.inference import equivalence

pytestmark = pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")


def test_margin_gives_the_equivalence_of_the_library(cli_folder, capsys):
    options = ["-m", "mrr,mr", "--margin", "0.2", "--cluster", "sample_id"]
    got = records(capsys, "compare", "a.npz", "b.npz", *options)
    for row in got:
        a, b = RankTable.load("a.npz"), RankTable.load("b.npz")
        found = equivalence(a, b, row["metric"], margin=0.2, cluster="sample_id")
        assert row["difference"] == found.difference
        assert (row["low"], row["high"]) == (found.low, found.high)
        assert row["p_equivalent"] == found.p_equivalent
        assert (row["equivalent"] == "yes") == found.equivalent
    assert [row["metric"] for row in got] == ["mrr", "mr"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["compare", "a.npz", "b.npz", "--margin", "0"], "margin must be above 0"),
        (
            ["compare", "a.npz", "b.npz", "plain.npz", "--margin", "0.1"],
            "--margin would do nothing with three models or more",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_line(cli_folder, capsys, arguments, told):
    assert main(arguments) == 2
    assert told in capsys.readouterr().err
